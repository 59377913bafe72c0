"""Find a browser, start it, and be sure that it is gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from ..errors import BrowserNotFound
from .runfolder import RunFolder, as_tmpdir

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import CDPSession, Playwright

__all__ = ["Browser", "Choice", "find_browser"]

_COMMANDS = ("google-chrome-stable", "google-chrome", "chromium", "chromium-browser", "chrome", "msedge")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
)
#: Seconds that a polite end may take before processes are killed.
_GRACE = 3.0
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_HOW_TO_INSTALL = "run `abp doctor --install`, or set ABP_BROWSER to the executable of a Chromium or Chrome"


@dataclass(frozen=True, slots=True)
class Choice:
    """A browser executable and why it was taken."""

    path: str
    reason: str


def find_browser(executable: str | None = None) -> Choice | None:
    """The browser to start: ``executable`` (or ``ABP_BROWSER``), else an installed Chrome or Chromium, else the one
    that ``playwright install chromium`` put there. ``None`` if there is none.

    Raises :class:`~transports.errors.BrowserNotFound` if the one that was asked for does not exist.
    """
    asked = executable or os.environ.get("ABP_BROWSER")
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise BrowserNotFound(f"no executable browser at {asked}; correct ABP_BROWSER or unset it")
        return Choice(found, "named by ABP_BROWSER" if not executable else "named by the caller")
    for command in (*_COMMANDS, *_PLACES):
        if found := shutil.which(command):
            return Choice(found, "installed on this system")
    for found_path in sorted(_playwright_folder().glob("chromium-*/chrome-*/*"), reverse=True):
        if found_path.name in ("chrome", "chrome.exe") and os.access(found_path, os.X_OK):
            return Choice(str(found_path), "installed by Playwright")
    return None


def _playwright_folder() -> Path:
    if own := os.environ.get("PLAYWRIGHT_BROWSERS_PATH"):
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "")) / "ms-playwright"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ms-playwright"


class Browser:
    """A Chromium of our own. ``async with Browser() as browser`` starts it; several transports may share one::

        async with Browser() as browser:
            async with connect(url, transport=PlaywrightTransport(url, browser=browser)) as app: ...

    Closing ends every process that was started and removes every temporary file, also if the browser hangs.
    """

    def __init__(self, *, headless: bool = True, executable: str | None = None, timeout: float = 30.0) -> None:
        self._headless = headless
        self._executable = executable
        self._timeout = timeout
        self._stack = ExitStack()
        self._playwright: Playwright | None = None
        self._pids: list[int] = []
        self.folder = Path()
        #: More than two large downloads at once only take each other's time (measured).
        self.download_slots = asyncio.Semaphore(2)

    async def __aenter__(self) -> Self:
        choice = find_browser(self._executable)
        if choice is None:
            raise BrowserNotFound(f"no Chromium or Chrome was found on this system; {_HOW_TO_INSTALL}")
        if sys.platform == "linux" and not self._headless and not any(map(os.environ.get, _DISPLAYS)):
            raise BrowserNotFound(
                "there is no display for a browser window; unset ABP_HEADLESS, or leave headless=True"
            )
        self.folder = self._stack.enter_context(RunFolder())
        try:
            async with asyncio.timeout(self._timeout):
                await self._launch(choice)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise BrowserNotFound(
                    f"{choice.path} did not start within {self._timeout:g} s; {_HOW_TO_INSTALL}"
                ) from error
            if isinstance(error, _playwright_error()):
                first = str(error).strip().splitlines()[0]
                raise BrowserNotFound(f"{choice.path} did not start ({first}); {_HOW_TO_INSTALL}") from error
            raise
        return self

    async def _launch(self, choice: Choice) -> None:
        from playwright.async_api import async_playwright

        with as_tmpdir(self.folder):
            starting = asyncio.ensure_future(async_playwright().start())
            try:
                self._playwright = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # A driver that has only half started cannot be stopped: let it start, so that it can.
                await asyncio.wait((starting,), timeout=_GRACE)
                if starting.done() and not starting.exception():
                    self._playwright = starting.result()
                raise
        root = sys.platform == "linux" and os.geteuid() == 0
        self._browser = await self._playwright.chromium.launch(
            executable_path=choice.path,
            headless=self._headless,
            # Chromium refuses its sandbox to root; for everybody else it stays on.
            args=["--no-sandbox"] if root else [],
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        self._cdp = await self._browser.new_browser_cdp_session()
        processes = (await self._cdp.send("SystemInfo.getProcessInfo"))["processInfo"]
        browser = next(process["id"] for process in processes if process["type"] == "browser")
        self._pids = [psutil.Process(browser).ppid(), browser]  # the driver started it

    @property
    def playwright(self) -> PlaywrightBrowser:
        """The browser as Playwright has it."""
        return self._browser

    @property
    def cdp(self) -> CDPSession:
        """The browser's own CDP session."""
        return self._cdp

    @property
    def version(self) -> str:
        return self._browser.version

    async def responds(self) -> bool:
        """Whether it is alive and not frozen."""
        try:
            async with asyncio.timeout(_GRACE):
                await self._cdp.send("Browser.getVersion")
        except Exception:  # noqa: BLE001 - whatever is wrong with it
            return False
        return True

    async def restart(self) -> None:
        """End it, and start another one in its place."""
        await self.aclose()
        await self.__aenter__()

    async def aclose(self) -> None:
        """End it; idempotent, takes a few seconds at most, and kills what does not end."""
        playwright, self._playwright = self._playwright, None
        family = _family(self._pids)
        try:
            if playwright is not None:
                if hasattr(self, "_browser"):
                    await _within(_GRACE, self._browser.close())
                    # Playwright's stop() waits for its driver, which waits for a browser that may hang.
                    await _kill(process for process in family if process.pid != self._pids[0])
                await _within(_GRACE, playwright.stop())
        finally:
            await _kill(family)
            self._pids = []
            self._stack.close()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error


async def _within(seconds: float, work: Coroutine[object, object, object]) -> None:
    """Wait for a step of closing, but neither for ever nor for its success: the next step is stronger."""
    with contextlib.suppress(TimeoutError, Exception):
        async with asyncio.timeout(seconds):
            await work


def _family(pids: list[int]) -> list[psutil.Process]:
    """The processes and all that descend from them, as long as they can still be told."""
    family: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for member in (process, *process.children(recursive=True)):
                family[member.pid] = member
    return list(family.values())


async def _kill(processes: Iterable[psutil.Process]) -> None:
    alive = [process for process in processes if _runs(process)]
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))  # psutil refuses a reused pid
    deadline = time.monotonic() + _GRACE
    while any(map(_runs, alive)) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Whether it is more than an entry that its parent has yet to collect."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
