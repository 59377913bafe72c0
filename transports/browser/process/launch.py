"""Start a browser, or attach to one, and be sure that what was started is gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import psutil

from ...errors import BrowserNotFound, ConnectFailed, ProfileInUse, UsageError, first_line
from ...protocol.urls import redact_url
from ..timeouts import playwright_timeout
from .find import ENGINES, HOW_TO_INSTALL, Choice, find_browser
from .processes import family, kill
from .profile import ALREADY_OPEN, claimed
from .runfolder import RunFolder, as_tmpdir

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import BrowserContext, CDPSession, Playwright

__all__ = ["Browser"]

#: Seconds that a polite end may take before processes are killed.
_GRACE = 3.0
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


class Browser:
    """A browser for any number of sessions at once. ``async with Browser() as browser`` starts it::

        async with Browser() as browser:
            async with connect(url, browser=browser) as app: ...

    ``name`` is ``chromium``, ``chrome``, ``msedge``, ``firefox`` or ``webkit``; without it any Chromium or Chrome will
    do. ``executable`` overrides where it is. Each session gets a context of its own, so that cookies and storage of two
    never meet, except with:

    - ``profile``, a folder that keeps what a user is signed in to; one process at a time can have it open.
    - ``extensions``, folders with a ``manifest.json``, which Chromium loads. Extensions live in the profile.
    - ``cdp_url``, such as ``http://127.0.0.1:9222``: a running Chromium, which is attached to, with the profile that it
      has. It is left running, with all tabs but ours.

    ``timeout`` in seconds is for starting. Closing ends every process that was started and removes every temporary
    file, also if the browser hangs. Opening raises :class:`~transports.errors.BrowserNotFound`,
    :class:`~transports.errors.ProfileInUse` and :class:`~transports.errors.ConnectFailed` (nothing to attach to).
    """

    def __init__(
        self,
        *,
        headless: bool = True,
        executable: str | None = None,
        timeout: float = 30.0,
        name: str | None = None,
        profile: str | Path | None = None,
        extensions: Sequence[str | Path] = (),
        cdp_url: str | None = None,
    ) -> None:
        if cdp_url is not None and (name or executable or profile or extensions):
            raise UsageError(
                "cdp_url= attaches to a browser as it is: it takes no name, executable, profile, extension"
            )
        self.engine = ENGINES.get(name or "chromium", "")
        if extensions and self.engine != "chromium":
            raise UsageError(f"{name} loads no Chrome extensions; use browser='chromium'")
        self._headless = headless
        self._executable = executable
        self._timeout = timeout
        self._name = name
        self._profile = None if profile is None else Path(profile).expanduser().absolute()
        self._extensions = tuple(Path(folder).expanduser().absolute() for folder in extensions)
        self._cdp_url = cdp_url
        self._loaded: dict[Path, str] = {}
        self._stack = ExitStack()
        self._playwright: Playwright | None = None
        self._cdp: CDPSession | None = None
        self._pids: list[int] = []
        self._shown = redact_url(cdp_url) if cdp_url else name or "Chromium"
        #: The context that all sessions share; ``None`` where each gets its own.
        self.context: BrowserContext | None = None
        self.folder = Path()
        #: More than two large downloads at once only take each other's time (measured).
        self.download_slots = asyncio.Semaphore(2)

    @property
    def attached(self) -> bool:
        """Whether it is somebody else's, and goes on without us."""
        return self._cdp_url is not None

    @property
    def shares_context(self) -> bool:
        """Whether all its sessions share one context."""
        return bool(self._cdp_url or self._profile or self._extensions)

    async def __aenter__(self) -> Self:
        choice = None if self.attached else self._chosen()
        try:
            self.folder = self._stack.enter_context(RunFolder())
            if self._profile is not None:
                self._stack.enter_context(claimed(self._profile))
            async with asyncio.timeout(self._timeout):
                await self._start_driver()
                await (self._attach() if choice is None else self._launch(choice))
                for folder in self._extensions:
                    await self.load_extension(folder)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise self._not_started(f"within {self._timeout:g} s") from error
            if isinstance(error, _playwright_error()):
                raise self._not_started(f"({first_line(error)})") from error
            raise
        return self

    def _chosen(self) -> Choice:
        choice = find_browser(self._executable, self._name)
        if choice is None:
            ways = {
                "chrome": "install it, or leave browser= out to take any Chromium",
                "msedge": "install it, or leave browser= out to take any Chromium",
                "firefox": "run `playwright install firefox`, or install the system's",
                "webkit": "run `playwright install webkit`",
            }
            wanted = self._name or "Chromium or Chrome"
            raise BrowserNotFound(f"no {wanted} was found on this system; {ways.get(self._name or '', HOW_TO_INSTALL)}")
        if sys.platform == "linux" and not self._headless and not any(map(os.environ.get, _DISPLAYS)):
            raise BrowserNotFound(
                "there is no display for a browser window; unset ABP_HEADLESS, or leave headless=True"
            )
        self._shown = choice.path
        return choice

    def _not_started(self, how: str) -> Exception:
        if self._cdp_url is not None:
            how = how.replace(self._cdp_url, self._shown)  # its query may hold a key
            return ConnectFailed(
                f"no browser to attach to at {self._shown} {how}; start one with --remote-debugging-port=9222 and a "
                "--user-data-dir of its own, and give its address"
            )
        if any(text in how for text in ALREADY_OPEN):
            return ProfileInUse.at(self._profile)
        if self.engine != "chromium":
            how += f"; `playwright install {self.engine}` brings the build that Playwright is made for"
            return BrowserNotFound(f"{self._shown} did not start {how}")
        return BrowserNotFound(f"{self._shown} did not start {how}; {HOW_TO_INSTALL}")

    async def _start_driver(self) -> None:
        from playwright.async_api import async_playwright

        manager = async_playwright()
        with as_tmpdir(self.folder):
            starting = asyncio.ensure_future(manager.start())
            try:
                self._playwright = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # A driver that has only half started cannot be stopped: let it start, so that it can.
                await asyncio.wait((starting,), timeout=_GRACE)
                if starting.done() and not starting.exception():
                    self._playwright = starting.result()
                raise
        self._pids = _driver(manager)

    async def _attach(self) -> None:
        assert self._playwright is not None and self._cdp_url is not None
        # Its downloads, media settings and focus stay as its user has them.
        self._browser = await self._playwright.chromium.connect_over_cdp(
            self._cdp_url, no_defaults=True, timeout=playwright_timeout(self._timeout)
        )
        self.context = self._browser.contexts[0]
        self._cdp = await self._browser.new_browser_cdp_session()

    async def _launch(self, choice: Choice) -> None:
        assert self._playwright is not None
        engine = getattr(self._playwright, self.engine)
        root = sys.platform == "linux" and os.geteuid() == 0
        options: dict[str, Any] = {
            "executable_path": choice.path,
            "headless": self._headless,
            # Chromium refuses its sandbox to root; for everybody else it stays on.
            "args": ["--no-sandbox"] if root and self.engine == "chromium" else [],
            "handle_sigint": False,
            "handle_sigterm": False,
            "handle_sighup": False,
            "timeout": 0,  # the time for starting is limited around this
        }
        if self.engine == "firefox" and not choice.own:
            options["channel"] = "moz-firefox"  # a Firefox as Mozilla ships it: over WebDriver BiDi
        if self._extensions:
            options["ignore_default_args"] = ["--disable-extensions"]
        if not self.shares_context:
            self._browser = await engine.launch(**options)
        else:
            profile = self._profile or Path(
                self._stack.enter_context(TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True))
            )
            self.context = await engine.launch_persistent_context(
                profile,
                accept_downloads=self.engine != "chromium",
                **options,
            )
            assert self.context is not None and self.context.browser is not None
            self._browser = self.context.browser
        if self.engine == "chromium":
            self._cdp = await self._browser.new_browser_cdp_session()
            processes = (await self._cdp.send("SystemInfo.getProcessInfo"))["processInfo"]
            browser = next(process["id"] for process in processes if process["type"] == "browser")
            self._pids = [psutil.Process(browser).ppid(), browser]  # the driver started it
        else:
            self._pids = [process.pid for process in family(self._pids)]

    async def load_extension(self, folder: Path) -> str:
        """The id that the browser gives the extension in ``folder``, which is loaded if it is not there yet. Raises
        :class:`~transports.errors.UsageError` if this browser was started without extensions, and
        :class:`~transports.errors.ConnectFailed` if it does not take this one."""
        if not self._extensions or self._cdp is None:
            raise UsageError(f"this browser was started without extensions; give it extensions=[{str(folder)!r}]")
        folder = folder.absolute()
        if folder not in self._loaded:
            try:
                # No --load-extension: Chrome and Edge ignore it from 137 on, and nobody would tell the id.
                reply = await self._cdp.send("Extensions.loadUnpacked", {"path": str(folder)})
            except _playwright_error() as error:
                reason = first_line(error).rpartition("Extensions.loadUnpacked): ")[2]
                raise ConnectFailed(
                    f"{self._shown} did not load the extension in {folder}: {reason}; if it is a Chrome or Edge, "
                    "which may refuse unpacked extensions (from 137 on --load-extension is ignored), use a Chromium"
                ) from error
            self._loaded[folder] = reply["id"]
        return self._loaded[folder]

    @property
    def playwright(self) -> PlaywrightBrowser:
        """The browser as Playwright has it."""
        return self._browser

    @property
    def cdp(self) -> CDPSession:
        """The browser's own CDP session; a Firefox or WebKit has none (:class:`~transports.errors.UsageError`)."""
        if self._cdp is None:
            raise UsageError(f"{self._name} has no CDP; use a Chromium")
        return self._cdp

    @property
    def version(self) -> str:
        return self._browser.version

    async def responds(self) -> bool:
        """Whether it is alive and not frozen."""
        if self._cdp is None:
            return self._browser.is_connected()
        try:
            async with asyncio.timeout(_GRACE):
                await self._cdp.send("Browser.getVersion")
        except Exception:  # noqa: BLE001 - whatever is wrong with it
            return False
        return True

    async def restart(self) -> None:
        """End it, and start another one in its place."""
        await self.aclose()
        self.context = None
        self._loaded.clear()
        await self.__aenter__()

    async def aclose(self) -> None:
        """End it, or let go of it if it is not ours; idempotent, takes a few seconds at most, and kills what does not
        end."""
        playwright, self._playwright = self._playwright, None
        processes = family(self._pids)
        try:
            if playwright is not None:
                if hasattr(self, "_browser"):
                    await _within(_GRACE, self._browser.close())
                    # Playwright's stop() waits for its driver, which waits for a browser that may hang.
                    await kill(process for process in processes if process.pid != self._pids[0])
                await _within(_GRACE, playwright.stop())
        finally:
            await kill(processes)
            self._pids = []
            self._stack.close()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _driver(manager: object) -> list[int]:
    """The driver's process. Playwright does not give it away: where its inside looks different, it goes unnamed, and
    one that hangs while it is attached to a browser is left to end with us."""
    client = getattr(manager, "_client", None) or getattr(manager, "_connection", None)
    process = getattr(getattr(client, "_transport", None), "_proc", None)
    return [] if process is None else [process.pid]


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error


async def _within(seconds: float, work: Coroutine[object, object, object]) -> None:
    """Wait for a step of closing, but neither for ever nor for its success: the next step is stronger."""
    with contextlib.suppress(TimeoutError, Exception):
        async with asyncio.timeout(seconds):
            await work
