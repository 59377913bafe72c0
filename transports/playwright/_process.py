"""One run of a browser and of its driver (:class:`BrowserProcess`): start or attach, health, end.

This module loads without Playwright.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import math
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakSet

import psutil

from .._internal.files import temp_folder, user_folder
from .._internal.tasks import mark_retrieved, no_processes_error
from .._internal.telemetry import OPEN_BROWSERS
from ..artifacts._files import belongs_to_us, map_os_errors, try_lock
from ..errors import BrowserNotFound, ConnectFailed, ProtocolError, UsageError, first_line, spelled
from ..protocol._http_headers import check_headers, without_values
from ..protocol._plain_text import origin_of, redact_url
from ..protocol._strict_json import decode_json
from ._find import BrowserChoice
from ._scripts import load_unpacked

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser, BrowserContext, CDPSession, Playwright

logger = logging.getLogger("transports.playwright")

P = ParamSpec("P")

#: Contexts of one session that no caller has seen. Nothing is recorded in them, so they need not be closed before the
#: browser ends.
SESSION_CONTEXTS: WeakSet[BrowserContext] = WeakSet()
#: Seconds for the browser and its driver to end by themselves before their processes are killed.
_GRACE = 3.0
#: Seconds until the driver's process runs. It gets them before imports begin, which hold the interpreter's lock.
_LEAD = 0.03
#: Features of Chromium. Our switches replace Playwright's, so they repeat its features. WebMCP is an origin trial.
_ENABLED_FEATURES = ("WebMCP", "CDPScreenshotNewSurface", "SkipListAccountsWithoutGaiaCookies")
#: The three features of the omnibox start a renderer for each window, which takes half of a session's processor time.
_DISABLED_FEATURES = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
    "msForceBrowserSignIn",
    "msEdgeUpdateLaunchServicesPreferredVersion",
)
#: The process that was started ahead and is not used yet. It is in a list, so that every task that shares the context
#: sees when it is taken.
_ahead: ContextVar[list[BrowserProcess]] = ContextVar("driver_ahead")


def playwright_timeout(seconds: float) -> float:
    """Return a timeout in milliseconds for Playwright, where 0 means no limit."""
    if math.isinf(seconds):
        return 0
    return seconds * 1000


def listener(handle: Callable[P, object]) -> Callable[P, None]:
    """Return a listener that logs the exceptions of ``handle``: a bug may cost the event, but nothing else. Playwright
    would raise them in its *next* command, which belongs to another call."""

    @functools.wraps(handle)
    def listening(*args: P.args, **options: P.kwargs) -> None:
        try:
            handle(*args, **options)
        except Exception:
            logger.exception("an event of the page could not be handled; it is ignored")

    return listening


def listen(source: Any, event: str, handle: Callable[[Any], object]) -> None:
    source.on(event, listener(handle))


async def start_driver() -> tuple[Playwright, list[int]]:
    """Start Playwright's driver. Return it and a list with its process id.

    The list is empty if this version of Playwright keeps the id elsewhere. Then a driver that hangs while it is
    attached to a browser ends only with this process. Raises
    :class:`~transports.errors.BrowserNotFound`, and :class:`~transports.errors.UsageError` in an event loop that starts
    no processes."""
    from playwright.async_api import async_playwright

    manager = async_playwright()
    started_at = time.time()
    try:
        playwright = await manager.start()
    except NotImplementedError:
        raise no_processes_error("a browser") from None
    except Exception as error:  # Playwright raises bare exceptions if the driver (Node.js) is missing or ends at once
        await _wait_for_new_children(started_at)
        raise BrowserNotFound(
            f"Playwright's driver did not start ({first_line(error)}); `playwright --version` shows why: a slim image "
            "of Debian, for one, lacks one of its libraries (apt-get install libatomic1)"
        ) from error

    client = getattr(manager, "_client", None) or getattr(manager, "_connection", None)
    transport = getattr(client, "_transport", None)
    driver_ended = getattr(transport, "on_error_future", None)
    if isinstance(driver_ended, asyncio.Future):
        # Playwright never awaits this future, so asyncio would log the end of a killed driver.
        driver_ended.add_done_callback(mark_retrieved)

    process = getattr(transport, "_proc", None)
    if process is None:
        return playwright, []
    return playwright, [process.pid]


async def _wait_for_new_children(started_at: float) -> None:
    """Wait until asyncio has noticed the end of processes that were started since ``started_at``. If the event loop is
    closed before, asyncio warns of a process that still runs."""
    with contextlib.suppress(psutil.Error):
        # The times of processes are rounded.
        children = [child for child in psutil.Process().children() if child.create_time() > started_at - 1]
        deadline = time.monotonic() + _GRACE
        while any(child.is_running() for child in children) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
    # A thread of asyncio informs the loop just after the process is gone.
    await asyncio.sleep(0.01)


_environment_lock = threading.Lock()
_environment_users = 0
_saved_variables: dict[str, str | None] = {}


@contextlib.contextmanager
def child_environment(folder: Path) -> Iterator[None]:
    """Set variables for child processes in the block: the temp folder, a locale with UTF-8, and others that the driver
    needs. Blocks may overlap if all use the same folder."""
    global _environment_users
    with _environment_lock:
        if _environment_users == 0:
            _set_variables(folder)
        _environment_users += 1
    try:
        yield
    finally:
        with _environment_lock:
            _environment_users -= 1
            if _environment_users == 0:
                _restore_variables()


def _set_variables(folder: Path) -> None:
    # Which of the three is read depends on the system.
    variables = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    try:
        user_folder(Path.home)
    except OSError:
        # The driver does not start without a home folder.
        variables["HOME"] = str(folder)
    if os.environ.get("PWDEBUG") != "console":
        # Playwright's Inspector would pause each page before it loads, past every deadline.
        variables["PWDEBUG"] = ""

    locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "C"
    if "utf" not in locale.lower():
        # Without UTF-8, Chromium names each download "download" whose name the locale cannot spell. Other variables set
        # the language of pages.
        name = "LC_ALL" if os.environ.get("LC_ALL") else "LC_CTYPE"
        variables[name] = "C.UTF-8"

    _saved_variables.update({name: os.environ.get(name) for name in variables})
    os.environ.update(variables)


def _restore_variables() -> None:
    for name, value in _saved_variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _saved_variables.clear()


def _forget_child_environment() -> None:
    """Restore the variables in a forked process: a driver that was starting belongs to the parent."""
    global _environment_lock, _environment_users
    _environment_lock, _environment_users = threading.Lock(), 0
    _restore_variables()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_child_environment)


@dataclass(frozen=True, slots=True)
class Remote:
    """A running browser. Its address and headers may hold secrets and are shown only redacted. ``is_server`` is false
    for DevTools."""

    url: str
    headers: Mapping[str, str]
    is_server: bool

    @classmethod
    def from_options(
        cls, cdp_url: str | None, browser_server: str | None, headers: Mapping[str, str] | None
    ) -> Self | None:
        """Return the browser at one of the addresses, or ``None`` without an address.

        Raises :class:`~transports.errors.UsageError` for two addresses, and for headers without an address."""
        if cdp_url is not None and browser_server is not None:
            raise UsageError(f"{spelled('cdp_url=')} and {spelled('browser_server=')} are mutually exclusive")

        url = browser_server if cdp_url is None else cdp_url
        if url is None:
            if headers is not None:
                raise UsageError(
                    f"{spelled('headers=')} go to a browser that runs elsewhere; give {spelled('cdp_url=')} or "
                    f"{spelled('browser_server=')}"
                )
            return None
        remote = cls(url, dict(headers or {}), is_server=browser_server is not None)
        check_headers(remote.headers, remote.display_name)
        return remote

    @property
    def display_name(self) -> str:
        return redact_url(self.url)

    async def connect(self, playwright: Playwright, engine: str, *, timeout: float) -> PlaywrightBrowser:
        milliseconds = playwright_timeout(timeout)
        if self.is_server:
            browser_type = getattr(playwright, engine)
            headers = dict(self.headers)
            browser: PlaywrightBrowser = await browser_type.connect(self.url, headers=headers, timeout=milliseconds)
            return browser

        url = self.url
        # Before version 1.65, Playwright refuses headers that are empty.
        used_headers: dict[str, str] | None = None
        if self.headers:
            url, endpoint_headers = await self._websocket_endpoint(playwright, milliseconds)
            used_headers = endpoint_headers or None
        # Playwright's defaults would replace the user's settings for downloads, media and focus.
        return await playwright.chromium.connect_over_cdp(
            url, headers=used_headers, no_defaults=True, timeout=milliseconds
        )

    async def _websocket_endpoint(self, playwright: Playwright, milliseconds: float) -> tuple[str, dict[str, str]]:
        """Return the address of the browser's WebSocket, and the headers for it.

        The headers are sent only to the origin of the address. Playwright can ask for the URL, too, but it would send
        the headers wherever a redirect or the answer leads. Raises :class:`~transports.errors.ConnectFailed`."""
        headers = dict(self.headers)
        if self.url.lower().startswith(("ws:", "wss:")):
            return self.url, headers

        parts = urlsplit(self.url)
        version_url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/json/version/"))
        client = await playwright.request.new_context(extra_http_headers=headers)
        try:
            response = await client.get(version_url, max_redirects=0, timeout=milliseconds)
            text = await response.text()
        finally:
            await client.dispose()

        url = _debugger_url(text) if response.ok else None
        if url is None:
            raise self.error(f"(it answered HTTP {response.status} to /json/version without a WebSocket URL)")
        if origin_of(url) != origin_of(self.url):
            return url, {}
        return url, headers

    def error(self, reason: str) -> ConnectFailed:
        """Return the error for a failed connection, with advice that fits the reason."""
        # The query of the address may hold a key.
        reason = without_values(reason, self.url, self.headers)
        advice = "start one with --remote-debugging-port=9222 and its own --user-data-dir"
        if self.is_server:
            advice = "start one of the same version of Playwright with `playwright run-server`"
        elif reason.startswith("within"):
            # The browser's user may have to agree, and Playwright waits for every tab to respond.
            advice = (
                "if one runs there, allow the connection if it asks, and wake or close its tabs that sleep or hang; "
                f"otherwise {advice}"
            )
        elif any(status in reason for status in ("status 500", "HTTP 500")):
            # Chromium refuses all names but localhost, such as those of containers.
            advice = f"if one runs there under another name than localhost, give its IP address; otherwise {advice}"
        elif any(status in reason for status in ("status 404", "HTTP 404")):
            # Debugging that is allowed at chrome://inspect has no HTTP.
            advice = (
                "if one allows debugging at chrome://inspect, give ws:// with the port and the path in "
                f"DevToolsActivePort, a file in its profile's folder; otherwise {advice}"
            )
        return ConnectFailed(f"no browser to attach to at {self.display_name} {reason}; {advice}, and give its address")


def _debugger_url(version: str) -> str | None:
    with contextlib.suppress(ProtocolError):
        match decode_json(version):
            case {"webSocketDebuggerUrl": str(url)}:
                return url
    return None


class BrowserProcess:
    """A browser and Playwright's driver. Call :meth:`start_driver`, then :meth:`launch` or :meth:`attach`, and always
    :meth:`end`, even after failures. Only :meth:`end` limits its time; the caller limits the time of the others."""

    browser: PlaywrightBrowser

    def __init__(self) -> None:
        #: The context that all sessions share, if any.
        self.context: BrowserContext | None = None
        #: The browser's own CDP session; ``None`` for Firefox and WebKit.
        self.cdp: CDPSession | None = None
        #: Process ids of the driver and, if it was started here, of the browser.
        self.pids: list[int] = []
        self._playwright: Playwright | None = None
        self._starting: asyncio.Future[None] | None = None
        self._extensions: dict[Path, str] = {}
        self._may_have_downloads = False
        #: The latest downloads: more than can begin in a second.
        self._downloads: deque[Path] = deque(maxlen=100)
        self._attached_to: BrowserContext | None = None

    def start_driver(self, folder: Path) -> asyncio.Future[None]:
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start_driver(folder))
        return self._starting

    async def _start_driver(self, folder: Path) -> None:
        """Start the driver. If this is cancelled, the driver ends with :meth:`end`, or as soon as it has started."""
        with child_environment(folder):
            starting = asyncio.ensure_future(start_driver())
            try:
                self._playwright, self.pids = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # A half-started driver cannot be stopped: let it start, so that end() can stop it.
                await asyncio.wait((starting,), timeout=_GRACE)
                if not starting.done():
                    # The machine is very busy.
                    starting.add_done_callback(_kill_driver)
                elif not starting.exception():
                    self._playwright, self.pids = starting.result()
                raise

    async def attach(self, remote: Remote, engine: str, *, timeout: float) -> None:
        assert self._playwright is not None
        self.browser = await remote.connect(self._playwright, engine, timeout=timeout)
        OPEN_BROWSERS.add(self)
        if not remote.is_server:
            self._attached_to = self.browser.contexts[0]
            self.context = self._attached_to
        if engine == "chromium":
            self.cdp = await self.browser.new_browser_cdp_session()

    async def launch(
        self,
        choice: BrowserChoice,
        engine: str,
        *,
        headless: bool,
        slow_mo: float,
        profile: Path | None,
        extensions: bool,
        switches: Sequence[str] = (),
    ) -> None:
        """Start a browser. All sessions share a ``profile``, which ``extensions`` need; ``slow_mo`` is in
        milliseconds."""
        assert self._playwright is not None
        browser_type = getattr(self._playwright, engine)
        options = {"headless": headless, "slow_mo": slow_mo, **_launch_options(choice, engine, switches)}
        if extensions:
            options["ignore_default_args"] = ["--disable-extensions"]

        if profile is None:
            self.browser = await browser_type.launch(**options)
        else:
            # Chromium's downloads go to our own folder, which is set over CDP.
            options["accept_downloads"] = engine != "chromium"
            self.context = await browser_type.launch_persistent_context(profile, **options)
            assert self.context is not None and self.context.browser is not None
            self.browser = self.context.browser
        OPEN_BROWSERS.add(self)

        if engine == "chromium":
            self.cdp = await self.browser.new_browser_cdp_session()
            # Events of targets assign downloads to windows and frames. Targets of these types have no downloads.
            without_downloads = [{"type": kind, "exclude": True} for kind in ("browser", "browser_ui", "tab")]
            all_others: dict[str, object] = {}
            options = {"discover": True, "filter": [*without_downloads, all_others]}
            discovering = self.cdp.send("Target.setDiscoverTargets", options)
            self.pids, _ = await asyncio.gather(self._read_pids(self.cdp), discovering)
        else:
            self.pids = [process.pid for process in process_tree(self.pids)]

    async def _read_pids(self, cdp: CDPSession) -> list[int]:
        """Return the process ids of the driver and of the browser."""
        processes = (await cdp.send("SystemInfo.getProcessInfo"))["processInfo"]
        browser_pid = next(process["id"] for process in processes if process["type"] == "browser")
        if self.pids:
            driver_pid = self.pids[0]
        else:
            # The driver is the browser's parent, unless a wrapper script that waits, such as Debian's, is between them.
            driver_pid = psutil.Process(browser_pid).ppid()
        return [driver_pid, browser_pid]

    async def load_extension(self, folder: Path, browser_name: str) -> str:
        assert self.cdp is not None
        if folder not in self._extensions:
            self._extensions[folder] = await load_unpacked(self.cdp, folder, browser_name)
        return self._extensions[folder]

    def note_download(self, path: Path | None) -> None:
        """Let :meth:`end` give the browser time to remove the files of downloads that it cuts off, and remove what it
        leaves of the one at ``path``."""
        self._may_have_downloads = True
        if path is not None:
            self._downloads.append(path)

    async def responds(self, timeout: float) -> bool:
        """Return whether the browser answers within ``timeout`` seconds. Never raises."""
        try:
            if self.cdp is None:
                # Check the driver's process, too: after its end, is_connected() may still be true.
                driver_pids = self.pids[:1]
                return self.browser.is_connected() and all(is_running(psutil.Process(pid)) for pid in driver_pids)
            async with asyncio.timeout(timeout):
                await self.cdp.send("Browser.getVersion")
        except Exception:  # noqa: BLE001 - whatever is wrong with the browser
            return False
        return True

    def resident_bytes(self) -> int:
        """Return the sum over all processes. Memory that several processes share counts in each."""
        total = 0
        for process in process_tree(self.pids):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    async def end(self) -> None:
        """End the browser and the driver. Idempotent. This takes a few seconds at most, and kills every process that
        does not end by itself."""
        OPEN_BROWSERS.discard(self)
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))

        playwright = self._playwright
        self._playwright = None
        processes = process_tree(self.pids)
        try:
            if playwright is not None:
                if hasattr(self, "browser"):
                    await self._close_browser()
                    # Playwright's stop() waits for its driver, and the driver for the browser, which may hang.
                    driver_pids = self.pids[:1]
                    await kill(process for process in processes if process.pid not in driver_pids)
                await _try_step(_GRACE, playwright.stop())
        finally:
            await kill(processes)
            self.pids = []
            # A browser that is ended by a signal may write this file even after it reported the end of the download.
            for path in self._downloads:
                with contextlib.suppress(OSError):
                    path.with_name(f"{path.name}.crdownload").unlink()

    async def _close_browser(self) -> None:
        """Close contexts that a caller has seen, since a HAR that is recorded there is written only then. Close the
        browser if it must save its profile or remove downloads that were cut off."""
        contexts_of_callers = {*self.browser.contexts} - {*SESSION_CONTEXTS, self._attached_to}
        await asyncio.gather(*(_try_step(_GRACE, context.close()) for context in contexts_of_callers))
        may_have_files = self.context is not None or self._may_have_downloads
        if self.cdp is None or may_have_files:
            await _try_step(_GRACE, self.browser.close())


def _launch_options(choice: BrowserChoice, engine: str, switches: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "executable_path": choice.path,
        "handle_sigint": False,
        "handle_sigterm": False,
        "handle_sighup": False,
        "timeout": 0,  # no limit: the caller limits the whole start
    }
    if engine == "chromium":
        enabled, disabled = ",".join(_ENABLED_FEATURES), ",".join(_DISABLED_FEATURES)
        # Pages may play sound only after a click of the user, and a call replaces that click.
        sound = "--autoplay-policy=no-user-gesture-required"
        options["args"] = [f"--enable-features={enabled}", f"--disable-features={disabled}", sound, *switches]
        # Chromium refuses to start as root with its sandbox. For other users it must be requested from Playwright.
        is_root = sys.platform == "linux" and os.geteuid() == 0
        options["chromium_sandbox"] = not is_root
    if engine == "firefox" and not choice.built_by_playwright:
        # A Firefox as Mozilla ships it is driven over WebDriver BiDi.
        options["channel"] = "moz-firefox"
    return options


def _kill_driver(started: asyncio.Future[tuple[Playwright, list[int]]]) -> None:
    if started.cancelled() or started.exception():
        return
    _, pids = started.result()
    for process in process_tree(pids):
        with contextlib.suppress(psutil.Error):
            process.kill()


async def _try_step(seconds: float, work: Coroutine[object, object, object]) -> None:
    """Do a step of ending within some seconds. A failure is ignored, because the next step is more forceful."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(seconds):
            await work


@asynccontextmanager
async def driver_ahead() -> AsyncIterator[None]:
    """Start a driver ahead for the next browser in the block. An unused driver ends with the block. If the driver
    cannot run, only the start of the browser raises an error."""
    process = BrowserProcess()
    # next_process() takes it out of this list.
    unused = [process]
    with RunFolder() as folder:
        _ahead.set(unused)
        try:
            await asyncio.wait((process.start_driver(folder),), timeout=_LEAD)
            yield
        finally:
            if unused:
                unused.clear()
                await process.end()


def next_process() -> BrowserProcess:
    """Return the process that was started ahead, or a new one."""
    unused = _ahead.get([])
    return unused.pop() if unused else BrowserProcess()


def process_tree(pids: list[int]) -> list[psutil.Process]:
    members: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for member in (process, *process.children(recursive=True)):
                members[member.pid] = member
    return list(members.values())


async def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes, and wait three seconds at most until they are gone."""
    alive = [process for process in processes if is_running(process)]
    # Windows has no SIGKILL.
    kill_signal = getattr(signal, "SIGKILL", signal.SIGTERM)
    for process in alive:
        # psutil raises if the process id was reused.
        with contextlib.suppress(psutil.Error):
            process.send_signal(kill_signal)

    deadline = time.monotonic() + 3.0
    while any(map(is_running, alive)) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


def is_running(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie, which its parent has not reaped yet, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


# --- one temporary folder per process ---------------------------------------------------------------------------------
#
# The folder holds all files of a browser: profiles, scratch files of the driver, uploads. The driver does not always
# clean up after itself (a killed driver never does), so its TMPDIR is this folder, which is removed as a whole. Folders
# of processes that died are removed when any process starts a browser or makes its folder. A living process holds a
# lock in its folder: containers that share a temp folder do not see each other's processes.

#: Base folder with a short path.
_SHORT_BASE = Path("/tmp")
_folder_lock = threading.Lock()
_folder_users = 0
_folder_path: Path | None = None
#: Run folder of this process → descriptor of its locked file.
_run_folders: dict[Path, int] = {}
_LOCK_NAME = "in-use"


def _remove_all_folders() -> None:
    for folder in tuple(_run_folders):
        _remove_folder(folder)


def _forget_folders() -> None:
    """Forget the folders in a forked process: the parent removes them itself."""
    global _folder_lock, _folder_users, _folder_path
    _folder_lock, _folder_users, _folder_path = threading.Lock(), 0, None
    for lock in _run_folders.values():
        os.close(lock)
    _run_folders.clear()


atexit.register(_remove_all_folders)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_folders)


class RunFolder:
    """The temporary folder of this process, for a block. The first user creates the folder. The last user removes it,
    and kills every process that names it. Thread-safe."""

    def __enter__(self) -> Path:
        global _folder_users, _folder_path
        with _folder_lock:
            if _folder_path is None:
                # Chromium creates a Unix socket below its TMPDIR, whose path is limited to 104 bytes (macOS) or 108
                # (Linux).
                _folder_path = _make_folder(longest_base=28)
            _folder_users += 1
            return _folder_path

    def __exit__(self, *_: object) -> None:
        global _folder_users, _folder_path
        with _folder_lock:
            _folder_users -= 1
            if _folder_users == 0 and _folder_path is not None:
                _remove_folder(_folder_path)
                _folder_path = None


@contextlib.contextmanager
def short_folder(longest: int) -> Iterator[Path]:
    """Make a temporary folder for the block, whose path has at most ``longest`` bytes if the system allows that."""
    name_length = len("/abp-run-4194304-12345678")
    folder = _make_folder(longest - name_length)
    try:
        yield folder
    finally:
        _remove_folder(folder)


def _make_folder(longest_base: int) -> Path:
    """Make a locked folder. The path of the folder around it has at most ``longest_base`` bytes if the system allows
    that."""
    remove_abandoned_folders()
    base = _base_folder(longest_base)
    while True:
        with map_os_errors("make a temporary folder", base, other="name another one with TMPDIR"):
            folder = Path(tempfile.mkdtemp(prefix=f"abp-run-{os.getpid()}-", dir=base))
            lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        if _try_lock(lock):
            _run_folders[folder] = lock
            return folder

        # Another process came upon the folder before it was locked, and removes it.
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        return try_lock(lock)
    except OSError:  # the file system has no locks: the folder stays if this process is killed
        return True


def _remove_folder(folder: Path) -> None:
    lock = _run_folders.pop(folder, None)
    if lock is None:  # it belongs to the process that this one was forked from
        return

    # First kill browsers that were starting when their driver was killed: they would write the profile again.
    killed_processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                process.kill()
                killed_processes.append(process)
    psutil.wait_procs(killed_processes, timeout=2)
    # Windows does not remove an open file.
    os.close(lock)
    shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned_folders() -> None:
    for base in {temp_folder(), _SHORT_BASE}:
        for folder in base.glob("abp-run-*"):
            with contextlib.suppress(OSError):
                _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not belongs_to_us(status):
        return
    try:
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        # A living process that makes or removes a folder needs less than a minute.
        if time.time() - status.st_mtime > 60:
            shutil.rmtree(folder, ignore_errors=True)
        return

    try:
        if not try_lock(lock):
            return
        # Remove the folder under the lock, so that a process that is still making this folder makes another one.
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
    # On Windows, the open file has kept the folder from being removed.
    shutil.rmtree(folder, ignore_errors=True)


def _base_folder(longest: int) -> Path:
    """Return the temp folder, or ``/tmp`` if its path is longer than ``longest`` bytes."""
    base = temp_folder()
    if len(os.fsencode(base)) > longest and os.access(_SHORT_BASE, os.W_OK):
        return _SHORT_BASE
    return base
