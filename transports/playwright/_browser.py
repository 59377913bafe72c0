"""A browser for sessions: start or attach, restart, close; with locks of profiles and errors of the start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, runtime_checkable

import psutil

from .._internal.arguments import short_traceback, validate_arguments
from .._internal.files import expand_home
from .._internal.tasks import OpenedHere, Owner, wait_despite_cancel
from .._internal.telemetry import BROWSER_RESTARTS, record, span
from ..errors import BrowserCrashed, BrowserNotFound, ProfileInUse, UsageError, first_line, format_seconds, spelled
from ..protocol._times import checked_timeout
from ._find import ENGINES, HOW_TO_INSTALL, BrowserChoice, find_browser
from ._process import BrowserProcess, Remote, RunFolder, next_process, remove_abandoned_folders

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser, BrowserContext, CDPSession

logger = logging.getLogger("transports.playwright")


@runtime_checkable
class BrowserLender(Protocol):
    """Protocol for a source of running browsers, such as a :class:`transports.batch.Pool`."""

    @property
    def closed(self) -> bool:
        """True once no browser is lent any more: then a session whose browser ends is over."""

    def lend(self) -> AbstractAsyncContextManager[Browser]:
        """Lend a running browser for the length of a block. If it dies meanwhile, it is not started again: the borrower
        leaves the block and borrows another one. Raises :class:`~transports.errors.TransportError`."""


_locked_profiles: set[Path] = set()


@contextlib.contextmanager
def lock_profile(folder: Path) -> Iterator[None]:
    """Lock a profile for the block. A missing folder is created with mode 0700.

    Raises :class:`~transports.errors.ProfileInUse`, also if a browser that is not ours has the profile open: a second
    browser on it would not only fail, but also open a window in the first.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{spelled('profile=')} must be a folder, and {folder} is not") from None
    except OSError as error:
        raise UsageError(f"{spelled('profile=')} {folder} cannot be created: {error.strerror}") from None
    # Chromium would wrongly report that the profile is in use.
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{spelled('profile=')} {folder} cannot be written to; give a copy of it")

    profile = folder.resolve()
    if profile in _locked_profiles or _is_locked_by_browser(profile):
        raise ProfileInUse.at(folder)

    _locked_profiles.add(profile)
    try:
        yield
    finally:
        _locked_profiles.discard(profile)


def _is_locked_by_browser(profile: Path) -> bool:
    if any(_names_living_process(profile / name) for name in ("SingletonLock", "lock")):
        return True
    return any(_is_held_open(profile / name) for name in ("lockfile", "parent.lock"))


def _names_living_process(lock: Path) -> bool:
    """Return whether the process that a lock names is alive. The lock is a link to ``host-pid`` (Chromium) or
    ``address:+pid`` (Firefox). A lock of another machine counts as free."""
    try:
        owner = str(lock.readlink())
    except OSError:
        return False

    separator = "+" if "+" in owner else "-"
    host, _, pid = owner.rpartition(separator)
    # Firefox writes a numeric address of this machine.
    is_here = owner[:1].isdigit() or host == socket.gethostname()
    try:
        return is_here and psutil.pid_exists(int(pid))
    except (OverflowError, ValueError):  # no process has such an id
        return False


def _is_held_open(lock: Path) -> bool:
    """Return whether a browser on Windows has the lock open, so that nobody else can open it."""
    try:
        with lock.open("rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False


_SANDBOX_FAILED = "Chromium sandboxing failed!"


def start_reason(error: BaseException) -> str:
    """Return in one line why a browser did not start: how it ended and what it printed, or Playwright's message."""
    text = str(error)
    # The message of Chromium, or of its helper, which may be below other lines.
    if _SANDBOX_FAILED in text or "Failed to move to new namespace" in text:
        return _SANDBOX_FAILED

    reason = re.sub(r"^BrowserType\.\w+: ", "", first_line(error))
    exit_line = re.search(r"<process did exit: exitCode=(?P<status>\w+), signal=(?P<signal>\w+)>", text)
    if exit_line is None or "has been closed" not in reason:
        return reason

    end = f"it ended with status {exit_line['status']}"
    if exit_line["signal"] != "null":
        end = f"it was ended by {exit_line['signal']}"
    # The reason need not be in the first line: Debian's script prints warnings before it.
    stderr = " / ".join(re.findall(r"^ *- \[pid=\d+\]\[err\] (.*\S)", text, re.MULTILINE))
    if not stderr:
        return end
    return f"{end} and printed: {stderr[:400]}"


def not_found(name: str | None) -> BrowserNotFound:
    advice = HOW_TO_INSTALL
    if name in ("chrome", "msedge"):
        advice = f"install it, or leave {spelled('browser=')} out to take any Chromium"
    elif name == "firefox":
        advice = "run `playwright install firefox`, or install the system's"
    elif name == "webkit":
        advice = "run `playwright install webkit`"
    return BrowserNotFound(f"no {name or 'Chromium or Chrome'} was found on this system; {advice}")


def start_error(engine: str, program: str, profile: Path | None, reason: str) -> BrowserNotFound | ProfileInUse:
    """Return the error for a browser that did not start. ``reason`` is ``within N s``, or a message in parentheses."""
    if _SANDBOX_FAILED in reason:
        return BrowserNotFound(
            f"{program} did not start: it has no sandbox here; allow user namespaces (Docker: --cap-add SYS_ADMIN, or "
            "a seccomp profile with clone and unshare; Ubuntu: sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0), or set ABP_BROWSER to a Chrome that was installed as a "
            "package"
        )
    already_open = ("ProcessSingleton", "profile is already in use", "existing browser session", "already running")
    # With a temporary profile, which nobody else uses, the browser could not write its lock.
    if profile is not None and any(text in reason for text in already_open):
        return ProfileInUse.at(profile)
    if engine != "chromium":
        reason += f"; `playwright install {engine}` brings the build that Playwright is made for"
        return BrowserNotFound(f"{program} did not start {reason}")
    return BrowserNotFound(f"{program} did not start {reason}; {HOW_TO_INSTALL}")


class Browser(OpenedHere):
    """A browser for any number of sessions at once. ``async with Browser() as browser`` starts it::

        async with Browser() as browser:
            async with connect(url, browser=browser) as app: ...

    ``name`` is ``chromium``, ``chrome``, ``msedge``, ``firefox`` or ``webkit``; by default any Chromium or Chrome is
    used. ``executable`` is a path instead. Each session gets a context of its own, so that cookies and storage of two
    sessions never mix, except with:

    - ``profile``, a folder that keeps the user's sign-ins; one process at a time can have it open.
    - ``extensions``, folders with a ``manifest.json``, loaded by Chromium. Extensions live in the profile.
    - ``cdp_url``, such as ``http://127.0.0.1:9222`` or ``wss://…``: a running Chromium to attach to, with its own
      profile. It is left running, with all tabs but ours.

    ``browser_server``, such as ``ws://127.0.0.1:3000``, is a Playwright server of the same version, which starts a
    browser. ``headers`` are sent to it, or to ``cdp_url``, and are never shown. No folder is shared with either.

    ``timeout`` in seconds covers the start; ``slow_mo`` in milliseconds slows each step of Playwright down. Closing
    ends every process and removes every temporary file, even if the browser hangs. A browser that dies is started again
    as soon as a session needs it (:meth:`restart`). Opening raises :class:`~transports.errors.BrowserNotFound`,
    :class:`~transports.errors.ProfileInUse` and :class:`~transports.errors.ConnectFailed` (nothing to attach to).
    """

    #: Further command-line switches for a Chromium.
    _switches: ClassVar[Sequence[str]] = ()

    @validate_arguments
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
        browser_server: str | None = None,
        headers: Mapping[str, str] | None = None,
        slow_mo: float = 0.0,
    ) -> None:
        is_remote = cdp_url or browser_server
        is_described = executable or profile or extensions
        if (cdp_url and name) or (is_remote and is_described):
            raise UsageError(
                f"{spelled('cdp_url=')} and {spelled('browser_server=')} use a browser as it is; leave executable=, "
                f"{spelled('profile=')} and extensions= out (with {spelled('cdp_url=')} also name=)"
            )

        self.engine = ENGINES.get(name or "chromium", "")
        if extensions and self.engine != "chromium":
            raise UsageError(f"{name} loads no Chrome extensions; use {spelled('browser=')}chromium")

        self._headless = headless
        self._slow_mo = slow_mo
        self._executable = executable
        self._timeout = checked_timeout(timeout)
        self._name = name
        self._profile = None if profile is None else expand_home(profile).absolute()
        self._extensions = tuple(expand_home(folder).absolute() for folder in extensions)
        self._remote = Remote.from_options(cdp_url, browser_server, headers)

        self._stack = ExitStack()
        self._process = BrowserProcess()
        self._closed = True
        self._owner = Owner("browser")
        self._restarting: asyncio.Task[None] | None = None
        self._end_callbacks: set[Callable[[object], None]] = set()
        self._display_name = name or "Chromium"
        if self._remote is not None:
            self._display_name = self._remote.display_name
        #: The temporary folder of this process, while the browser runs.
        self.folder = Path()
        #: More than two large downloads at once only slow each other down (measured).
        self.download_slots = asyncio.Semaphore(2)
        #: Held while a page of an attached browser is in front for its picture.
        self.picture_lock = asyncio.Lock()

    @property
    def attached(self) -> bool:
        """True if the browser was not started here, and so keeps running after :meth:`aclose`."""
        return self._remote is not None

    @property
    def shares_context(self) -> bool:
        """True if all sessions share one context, and so cookies and storage."""
        return bool((self._remote and not self._remote.is_server) or self._profile or self._extensions)

    @property
    def after_restart(self) -> str:
        """Consequence of the end of the browser, for error messages: restart with or without cookies and storage."""
        if self.attached:
            return "it is attached to again as soon as it can be reached"
        if self._profile is not None:
            return "it is started again with its profile"
        return "it is started again without the cookies and storage that it held"

    @short_traceback
    async def __aenter__(self) -> Self:
        self._owner.claim()
        with span("abp.browser.start", {}):
            await self._start_process()
        self._closed = False
        return self

    async def _start_process(self) -> None:
        choice = None if self.attached else self._find_executable()
        self._process = process = next_process()
        try:
            self.folder = self._stack.enter_context(RunFolder())
            # Do this at every start, as a process may run for weeks. The folder of a running process is kept.
            remove_abandoned_folders()
            if self._profile is not None:
                self._stack.enter_context(lock_profile(self._profile))

            async with asyncio.timeout(self._timeout):
                await process.start_driver(self.folder)
                await self._launch_or_attach(process, choice)
                for folder in self._extensions:
                    await self.load_extension(folder)
        except BaseException as error:
            await self._end_process()
            if isinstance(error, TimeoutError):
                raise self._start_error(f"within {format_seconds(self._timeout)}") from None
            from playwright.async_api import Error  # late: this module loads without Playwright

            if isinstance(error, Error):
                raise self._start_error(f"({start_reason(error)})") from None
            raise

    async def _launch_or_attach(self, process: BrowserProcess, choice: BrowserChoice | None) -> None:
        if self._remote is not None:
            await process.attach(self._remote, self.engine, timeout=self._timeout)
        elif choice is not None:
            await process.launch(
                choice,
                self.engine,
                headless=self._headless,
                slow_mo=self._slow_mo,
                profile=self._profile_folder(),
                extensions=bool(self._extensions),
                switches=self._switches,
            )

    def _profile_folder(self) -> Path | None:
        """Return the profile, or a temporary one for extensions, which need one."""
        if self._profile is not None or not self._extensions:
            return self._profile
        return Path(self._stack.enter_context(TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True)))

    def _find_executable(self) -> BrowserChoice:
        choice = find_browser(self._executable, self._name)
        if choice is None:
            raise not_found(self._name)
        has_display = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if not self._headless and not has_display:
            headless = spelled("leave headless=True")
            raise BrowserNotFound(f"no display for a browser window; unset ABP_HEADLESS, or {headless}")
        self._display_name = choice.path
        return choice

    def _start_error(self, reason: str) -> Exception:
        if self._remote is not None:
            return self._remote.error(reason)
        return start_error(self.engine, self._display_name, self._profile, reason)

    @short_traceback
    async def load_extension(self, folder: Path) -> str:
        """Return the browser's id for the extension in ``folder``, loading it first if it is not there yet.

        Raises :class:`~transports.errors.UsageError` if this browser was started without extensions, and
        :class:`~transports.errors.ConnectFailed` if it refuses this one.
        """
        self._owner.require_same_loop()
        if not self._extensions or self._process.cdp is None:
            raise UsageError(f"this browser was started without extensions; give it extensions=[{str(folder)!r}]")
        return await self._process.load_extension(folder.absolute(), self._display_name)

    @property
    def playwright(self) -> PlaywrightBrowser:
        """The ``Browser`` object of ``playwright.async_api``; a new one after each restart."""
        return self._process.browser

    @property
    def context(self) -> BrowserContext | None:
        """The context that all sessions share; ``None`` if each session gets its own."""
        return self._process.context

    @property
    def cdp(self) -> CDPSession:
        """The browser's own CDP session.

        Raises :class:`~transports.errors.UsageError` for Firefox and WebKit, which have none.
        """
        if self._process.cdp is None:
            raise UsageError(f"{self._name} has no CDP; use a Chromium")
        return self._process.cdp

    @property
    def version(self) -> str:
        """Version of the browser, as reported by it."""
        return self.playwright.version

    @property
    def closed(self) -> bool:
        """True before opening and after closing. A browser that died is still open, as it is started again."""
        return self._closed

    async def responds(self, timeout: float = 3.0) -> bool:
        """Return whether the browser is alive and answers within ``timeout`` seconds."""
        self._owner.require_same_loop()
        return await self._process.responds(timeout)

    async def resident_bytes(self) -> int:
        """Return the resident memory of browser and driver in bytes; of the driver only if the browser is remote."""
        return await asyncio.to_thread(self._process.resident_bytes)

    @short_traceback
    async def restart(self) -> None:
        """End the browser and start another one with the same options. Raises the errors of opening.

        Its sessions open their apps again by themselves. Without a ``profile``, cookies and storage are lost. So are
        pages that were opened without a session.
        """
        self._owner.require_same_loop()
        # Do not share a restart that is under way: it may find the browser alive, and then does nothing.
        while self._restarting is not None and not self._restarting.done():
            await asyncio.wait((self._restarting,))
        await self._restart_once(self._restart)

    @short_traceback
    async def ensure_running(self, *, patience: float) -> None:
        """Start the browser again, as :meth:`restart` does, if it has died or does not answer for ``patience`` seconds.

        Any number of sessions may wait for this: the browser is started once for all, and cancelling one wait does not
        cancel the others. Raises the errors of opening, and :class:`~transports.errors.UsageError` if the browser is
        :attr:`closed`.
        """
        await self._restart_once(partial(self._restart_if_dead, patience))

    async def _restart_once(self, restart: Callable[[], Coroutine[object, object, None]]) -> None:
        """Restart the browser, or wait for a restart that is under way."""
        self._owner.require_same_loop()
        if self._closed:
            raise UsageError("the browser is not open; connect inside `async with Browser() as browser`")

        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.ensure_future(restart())
        restarting = self._restarting
        await asyncio.wait((restarting,))
        if restarting.cancelled():
            raise BrowserCrashed("the browser was closed while it was started again; connect again")
        restarting.result()

    async def _restart_if_dead(self, patience: float) -> None:
        if not await self._process.responds(patience):
            logger.info("%s has died and is started again", self._display_name)
            await self._restart()

    async def _restart(self) -> None:
        await self._end_process()
        await self._start_process()
        record(BROWSER_RESTARTS, 1, {"reason": "restart"})

    def on_end(self, callback: Callable[[object], None]) -> Callable[[], None]:
        """Call ``callback(browser)`` once, when the browser is ended here or a session finds that it has ended.

        Returns a function that removes the callback."""
        self._end_callbacks.add(callback)
        return partial(self._end_callbacks.discard, callback)

    def mark_ended(self) -> None:
        """Notify all sessions that the browser has ended. No event does this after the end of the driver."""
        while self._end_callbacks:
            self._end_callbacks.pop()(self)

    def note_download(self, path: Path | None) -> None:
        """Note that a download to the disk may begin, or that it has begun at ``path``. Closing then gives the browser
        time to end, and removes what it leaves there."""
        self._process.note_download(path)

    async def _end_process(self) -> None:
        self.mark_ended()
        try:
            await wait_despite_cancel(asyncio.ensure_future(self._process.end()))
        finally:
            self._stack.close()

    async def aclose(self) -> None:
        """End the browser, or detach from a remote one. Idempotent. Takes a few seconds at most, and kills every
        process that does not end by itself. Raises :class:`~transports.errors.UsageError` in another event loop than
        the browser's."""
        if not self._closed:
            self._owner.require_same_loop()
        self._closed = True
        try:
            if self._restarting is not None:
                self._restarting.cancel()
                await asyncio.wait((self._restarting,))
        finally:
            await self._end_process()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
