"""Starts a browser, or attaches to one, and makes sure that what was started is gone afterwards."""

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

from ...errors import BrowserNotFound, ConnectFailed, UsageError, first_line
from ...protocol.urls import redact_url
from ..timeouts import playwright_timeout
from .driver import start_driver
from .find import ENGINES, BrowserChoice, find_browser
from .processes import kill, process_tree
from .profile import lock_profile
from .runfolder import RunFolder, as_tmpdir
from .start_errors import attach_error, not_found, start_error

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import BrowserContext, CDPSession, Playwright

__all__ = ["Browser"]

#: Seconds for the browser and its driver to end by themselves before their processes are killed.
_GRACE = 3.0
#: WebMCP is an origin trial in Chromium. The other names are those of Playwright, whose own switch this one replaces.
_CHROMIUM_ARGS = ("--enable-features=WebMCP,CDPScreenshotNewSurface,SkipListAccountsWithoutGaiaCookies",)
_DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY")


class Browser:
    """A browser for any number of sessions at once. ``async with Browser() as browser`` starts it::

        async with Browser() as browser:
            async with connect(url, browser=browser) as app: ...

    ``name`` is ``chromium``, ``chrome``, ``msedge``, ``firefox`` or ``webkit``; without it any Chromium or Chrome is
    used. ``executable`` is the path of one. Each session gets a context of its own, so that cookies and storage of two
    sessions never mix, except with:

    - ``profile``, a folder that keeps what a user is signed in to; one process at a time can have it open.
    - ``extensions``, folders with a ``manifest.json``, which Chromium loads. Extensions live in the profile.
    - ``cdp_url``, such as ``http://127.0.0.1:9222``: a running Chromium, which is attached to with the profile that it
      has. It is left running, with all tabs but ours.

    ``timeout`` in seconds covers the start. Closing ends every process that was started and removes every temporary
    file, even if the browser hangs. Opening raises :class:`~transports.errors.BrowserNotFound`,
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
        self._display_name = redact_url(cdp_url) if cdp_url else name or "Chromium"
        #: The context that all sessions share; ``None`` if each session gets its own.
        self.context: BrowserContext | None = None
        #: The temporary folder of this process, while the browser runs.
        self.folder = Path()
        #: More than two large downloads at once only slow each other down (measured).
        self.download_slots = asyncio.Semaphore(2)

    @property
    def attached(self) -> bool:
        """Whether the browser is somebody else's, and keeps running after :meth:`aclose`."""
        return self._cdp_url is not None

    @property
    def shares_context(self) -> bool:
        """Whether all sessions share one context, and so their cookies and storage."""
        return bool(self._cdp_url or self._profile or self._extensions)

    async def __aenter__(self) -> Self:
        choice = None if self.attached else self._find()
        try:
            self.folder = self._stack.enter_context(RunFolder())
            if self._profile is not None:
                self._stack.enter_context(lock_profile(self._profile))
            async with asyncio.timeout(self._timeout):
                await self._start_driver()
                await (self._attach() if choice is None else self._launch(choice))
                for folder in self._extensions:
                    await self.load_extension(folder)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise self._start_error(f"within {self._timeout:g} s") from error
            if isinstance(error, _playwright_error()):
                raise self._start_error(f"({first_line(error)})") from error
            raise
        return self

    def _find(self) -> BrowserChoice:
        """Return the executable to start. Raises :class:`~transports.errors.BrowserNotFound`."""
        choice = find_browser(self._executable, self._name)
        if choice is None:
            raise not_found(self._name)
        if sys.platform == "linux" and not self._headless and not any(map(os.environ.get, _DISPLAY_VARIABLES)):
            raise BrowserNotFound(
                "there is no display for a browser window; unset ABP_HEADLESS, or leave headless=True"
            )
        self._display_name = choice.path
        return choice

    def _start_error(self, reason: str) -> Exception:
        if self._cdp_url is not None:
            return attach_error(self._cdp_url, reason)
        return start_error(self.engine, self._display_name, self._profile, reason)

    async def _start_driver(self) -> None:
        with as_tmpdir(self.folder):
            starting = asyncio.ensure_future(start_driver())
            try:
                self._playwright, self._pids = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # A driver that has only half started cannot be stopped: let it start, so that aclose() can stop it.
                await asyncio.wait((starting,), timeout=_GRACE)
                if starting.done() and not starting.exception():
                    self._playwright, self._pids = starting.result()
                raise

    async def _attach(self) -> None:
        assert self._playwright is not None and self._cdp_url is not None
        # Without Playwright's defaults: its download, media and focus settings stay as its user has them.
        self._browser = await self._playwright.chromium.connect_over_cdp(
            self._cdp_url, no_defaults=True, timeout=playwright_timeout(self._timeout)
        )
        self.context = self._browser.contexts[0]
        self._cdp = await self._browser.new_browser_cdp_session()

    async def _launch(self, choice: BrowserChoice) -> None:
        assert self._playwright is not None
        engine = getattr(self._playwright, self.engine)
        root = sys.platform == "linux" and os.geteuid() == 0
        options: dict[str, Any] = {
            "executable_path": choice.path,
            "headless": self._headless,
            # Chromium refuses to start as root with its sandbox; for every other user the sandbox stays on.
            "args": [*_CHROMIUM_ARGS, *(["--no-sandbox"] if root else [])] if self.engine == "chromium" else [],
            "handle_sigint": False,
            "handle_sigterm": False,
            "handle_sighup": False,
            "timeout": 0,  # the time for starting is limited around this
        }
        if self.engine == "firefox" and not choice.built_by_playwright:
            options["channel"] = "moz-firefox"  # a Firefox as Mozilla ships it is driven over WebDriver BiDi
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
            self._pids = [psutil.Process(browser).ppid(), browser]  # its parent is the driver
        else:
            self._pids = [process.pid for process in process_tree(self._pids)]

    async def load_extension(self, folder: Path) -> str:
        """Return the browser's id for the extension in ``folder``, loading it first if it is not there yet.

        Raises :class:`~transports.errors.UsageError` if this browser was started without extensions, and
        :class:`~transports.errors.ConnectFailed` if it refuses this one.
        """
        if not self._extensions or self._cdp is None:
            raise UsageError(f"this browser was started without extensions; give it extensions=[{str(folder)!r}]")
        folder = folder.absolute()
        if folder not in self._loaded:
            try:
                # Not --load-extension: Chrome and Edge ignore it from 137 on, and it does not return the id.
                reply = await self._cdp.send("Extensions.loadUnpacked", {"path": str(folder)})
            except _playwright_error() as error:
                reason = first_line(error).rpartition("Extensions.loadUnpacked): ")[2]
                raise ConnectFailed(
                    f"{self._display_name} did not load the extension in {folder}: {reason}; a Chrome or Edge may "
                    "refuse unpacked extensions (from 137 on --load-extension is ignored), use a Chromium"
                ) from error
            self._loaded[folder] = reply["id"]
        return self._loaded[folder]

    @property
    def playwright(self) -> PlaywrightBrowser:
        """The ``Browser`` object of ``playwright.async_api``."""
        return self._browser

    @property
    def cdp(self) -> CDPSession:
        """The browser's own CDP session.

        Raises :class:`~transports.errors.UsageError` for Firefox and WebKit, which have none.
        """
        if self._cdp is None:
            raise UsageError(f"{self._name} has no CDP; use a Chromium")
        return self._cdp

    @property
    def version(self) -> str:
        """The browser's version, as it says itself."""
        return self._browser.version

    async def responds(self) -> bool:
        """Whether the browser is alive and answers within three seconds."""
        if self._cdp is None:
            return self._browser.is_connected()
        try:
            async with asyncio.timeout(_GRACE):
                await self._cdp.send("Browser.getVersion")
        except Exception:  # noqa: BLE001 - whatever is wrong with it
            return False
        return True

    async def restart(self) -> None:
        """End the browser and start another one with the same options. Raises as opening does."""
        await self.aclose()
        self.context = None
        self._loaded.clear()
        await self.__aenter__()

    async def aclose(self) -> None:
        """End the browser, or let go of it if it was attached to.

        Idempotent. Takes a few seconds at most, and kills every process that does not end by itself.
        """
        playwright, self._playwright = self._playwright, None
        processes = process_tree(self._pids)
        try:
            if playwright is not None:
                if hasattr(self, "_browser"):
                    await _ignoring_errors(_GRACE, self._browser.close())
                    # Playwright's stop() waits for its driver, and the driver for the browser, which may hang.
                    await kill(process for process in processes if process.pid != self._pids[0])
                await _ignoring_errors(_GRACE, playwright.stop())
        finally:
            await kill(processes)
            self._pids = []
            self._stack.close()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error


async def _ignoring_errors(seconds: float, work: Coroutine[object, object, object]) -> None:
    """Give a step of closing ``seconds`` to succeed; whatever becomes of it, the next step is more forceful."""
    with contextlib.suppress(TimeoutError, Exception):
        async with asyncio.timeout(seconds):
            await work
