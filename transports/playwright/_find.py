"""Searches before a browser starts: browsers, running ones, ffmpeg, and a listener at the address of the app."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from .._internal.files import read_regular, user_folder
from ..errors import NOTHING_LISTENS, BrowserNotFound, ConnectFailed, ProtocolError, UsageError, is_refused
from ..protocol._plain_text import is_loopback, redact_url
from ..protocol._strict_json import decode_json

HOW_TO_INSTALL = "run `abp doctor --install`, or set ABP_BROWSER to the executable of a Chromium or Chrome"
#: Accepted values of ``browser=``, and Playwright's engine for each.
ENGINES = {
    "chromium": "chromium",
    "chrome": "chromium",
    "msedge": "chromium",
    "firefox": "firefox",
    "webkit": "webkit",
}
#: Folders of programs on Windows.
_PROGRAMS = r"C:\Program Files", r"C:\Program Files (x86)"
#: Commands and paths of installed browsers.
_COMMANDS = {
    "chrome": (
        "google-chrome-stable",
        "google-chrome",
        "chrome",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        *(rf"{programs}\Google\Chrome\Application\chrome.exe" for programs in _PROGRAMS),
    ),
    "chromium": ("chromium", "chromium-browser", "/Applications/Chromium.app/Contents/MacOS/Chromium"),
    "msedge": (
        "microsoft-edge-stable",
        "microsoft-edge",
        "msedge",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
        *(rf"{programs}\Microsoft\Edge\Application\msedge.exe" for programs in _PROGRAMS),
    ),
    "firefox": ("firefox", "firefox-esr", "/Applications/Firefox.app/Contents/MacOS/firefox"),
    "webkit": (),
}
#: Builds of ``playwright install``: a pattern of paths, and the file names of the executables.
_PLAYWRIGHT_BUILDS = {
    "chromium": ("chromium-*/chrome-*/*", ("chrome", "chrome.exe", "Chromium")),
    "firefox": ("firefox-*/firefox/*", ("firefox", "firefox.exe")),
    "webkit": ("webkit-*/*", ("pw_run.sh", "Playwright.exe")),
}
#: The port in all instructions.
_USUAL_PORT = 9222
#: Seconds for a browser to answer.
_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class BrowserChoice:
    """The browser to start. ``reason`` is for ``abp doctor``. ``built_by_playwright`` is true for Playwright's own
    patched builds."""

    path: str
    reason: str
    built_by_playwright: bool = False


def find_browser(executable: str | None = None, name: str | None = None) -> BrowserChoice | None:
    """Return the browser to start, or ``None`` if none is installed. The search has this order: ``executable``, the
    browser called ``name`` (a key of :data:`ENGINES`), ``ABP_BROWSER``, an installed Chrome, Chromium or Edge, the
    build of ``playwright install chromium``.

    Raises :class:`~transports.errors.BrowserNotFound` if the named executable does not exist, and
    :class:`~transports.errors.UsageError` for an unknown name."""
    if name is not None and name not in ENGINES:
        raise UsageError(f"unknown browser {name!r}; use one of {', '.join(ENGINES)}")

    reason = "named by the caller"
    if name is None and not executable:
        executable = os.environ.get("ABP_BROWSER")
        reason = "named by ABP_BROWSER"
    if executable:
        path = shutil.which(executable)
        if path is None:
            raise BrowserNotFound(f"no executable browser at {executable}; correct ABP_BROWSER or unset it")
        return BrowserChoice(path, reason)

    # Playwright fully supports only its own builds of these two browsers.
    if name in ("firefox", "webkit"):
        build = _installed_by_playwright(name)
        if build is not None:
            return build

    names = ("chrome", "chromium", "msedge") if name is None else (name,)
    choice = _installed_on_system(names)
    if choice is None and name in (None, "chromium"):
        choice = _installed_by_playwright("chromium")
    return choice


def _installed_on_system(names: Iterable[str]) -> BrowserChoice | None:
    for name in names:
        for command in _COMMANDS[name]:
            path = shutil.which(command)
            if path is not None:
                return BrowserChoice(path, "installed on this system")
    return None


def _installed_by_playwright(name: str) -> BrowserChoice | None:
    pattern, programs = _PLAYWRIGHT_BUILDS[name]
    for path in sorted(_playwright_folder().glob(pattern), reverse=True):
        if path.name in programs and os.access(path, os.X_OK):
            return BrowserChoice(str(path), "installed by Playwright", built_by_playwright=True)
    return None


def find_ffmpeg() -> tuple[Path, bool]:
    """Return the path of ffmpeg, which a video needs, and whether there is an executable."""
    browsers = json.loads((_driver_package() / "browsers.json").read_text(encoding="utf-8"))["browsers"]
    revision = next(browser["revision"] for browser in browsers if browser["name"] == "ffmpeg")
    name = {"darwin": "ffmpeg-mac", "win32": "ffmpeg-win64.exe"}.get(sys.platform, "ffmpeg-linux")
    path = _playwright_folder() / f"ffmpeg-{revision}" / name
    return path, os.access(path, os.X_OK)


def no_ffmpeg() -> str:
    path, _ = find_ffmpeg()
    return (
        "a video needs Playwright's ffmpeg, which is not here: run `playwright install ffmpeg`, "
        f"or link an ffmpeg with VP9 to {path}"
    )


def _playwright_folder() -> Path:
    """Return the folder of the browsers that Playwright has installed."""
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    # Playwright reads this value as a folder in its package.
    if folder == "0":
        return _driver_package() / ".local-browsers"
    if folder:
        return Path(folder)
    import platformdirs  # late: a browser of the system is found before

    with contextlib.suppress(OSError):
        return user_folder(platformdirs.user_cache_path) / "ms-playwright"
    return _driver_package() / ".local-browsers"


def _driver_package() -> Path:
    import playwright  # late: few need it, and this module is loaded before the command line knows its target

    return Path(playwright.__file__).parent / "driver" / "package"


@dataclass(frozen=True, slots=True)
class RunningBrowser:
    """A browser to attach to at ``url``. ``where`` describes it for people."""

    url: str
    where: str


async def find_running() -> list[RunningBrowser]:
    """Return the browsers that can be attached to: those in port files of profiles, then the one at port 9222. An old
    port file may name the port of another program."""
    running: dict[int, RunningBrowser] = {}
    for port, browser in await asyncio.to_thread(lambda: list(_read_port_files())):
        if port not in running and await _has_listener(port):
            running[port] = browser

    if _USUAL_PORT not in running:
        name = await _browser_name(_USUAL_PORT)
        if name:
            running[_USUAL_PORT] = RunningBrowser(f"http://127.0.0.1:{_USUAL_PORT}", f"{name} at port {_USUAL_PORT}")
    return list(running.values())


def _read_port_files() -> Iterator[tuple[int, RunningBrowser]]:
    for folder in _profile_folders():
        # The file may be missing, or may not be a port file.
        with contextlib.suppress(OSError, ValueError):
            content = read_regular(folder / "DevToolsActivePort", 1000).decode("ascii")
            port_line, _, path_line = content.partition("\n")
            port = int(port_line)
            path = path_line.strip()
            if 0 < port < 1 << 16 and path.startswith("/devtools/browser/"):
                yield port, RunningBrowser(f"ws://127.0.0.1:{port}{path}", str(folder))


def _profile_folders() -> Iterator[Path]:
    try:
        home = user_folder(Path.home)
    except OSError:
        return
    brave = "BraveSoftware/Brave-Browser"
    if sys.platform == "darwin":
        names = ["Google/Chrome", "Google/Chrome Beta", "Google/Chrome Canary", "Chromium", "Microsoft Edge", brave]
        yield from (home / "Library/Application Support" / name for name in names)
    elif sys.platform == "win32":
        local = Path(os.environ.get("LOCALAPPDATA") or home / "AppData/Local")
        names = ["Google/Chrome", "Google/Chrome Beta", "Google/Chrome SxS", "Chromium", "Microsoft/Edge", brave]
        yield from (local / name / "User Data" for name in names)
    else:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        names = ["google-chrome", "google-chrome-beta", "google-chrome-unstable", "chromium", "microsoft-edge", brave]
        yield from (config / name for name in names)


async def _has_listener(port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
    return False


async def _browser_name(port: int) -> str | None:
    """Return the name of the browser that answers at a port of this machine, or ``None``."""
    with contextlib.suppress(OSError, TimeoutError, ProtocolError):
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                request = f"GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                answer = await reader.read(64 * 1024)
            finally:
                writer.close()

        _, _, body = answer.partition(b"\r\n\r\n")
        version = decode_json(body)
        if isinstance(version, dict) and "webSocketDebuggerUrl" in version:
            return str(version.get("Browser", "a browser"))[:100]
    return None


async def require_listener(url: str) -> None:
    """Raises :class:`~transports.errors.ConnectFailed` for an unknown host, and if this machine refuses connections.

    Addresses of other machines are not tried, and names are not looked up where there may be a proxy that knows them:
    the browser may use one that this process does not."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        return
    if not is_loopback(host):
        await _require_host(url, host)
        return

    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    try:
        async with asyncio.timeout(2.0):
            connection, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except OSError as error:
        if is_refused(error):
            message = f"cannot open {redact_url(url)}: {NOTHING_LISTENS}; start the app or correct the address"
            raise ConnectFailed(message) from error
        # For other faults, such as a timeout, the browser has the better message.
        return
    connection.abort()


async def _require_host(url: str, host: str) -> None:
    # A browser knows names below .localhost by itself, and a proxy may know any.
    if host.endswith(".localhost") or _may_use_proxy():
        return
    try:
        # A slower look-up would delay the browser's start, so it is left to the browser.
        max_delay = 0.1
        async with asyncio.timeout(max_delay):
            await asyncio.get_running_loop().getaddrinfo(host, None)
    except socket.gaierror as error:
        # For other faults the browser has the better message.
        if error.errno == socket.EAI_NONAME:
            message = f"cannot open {redact_url(url)}: unknown host name; correct the address"
            raise ConnectFailed(message) from error
    except (OSError, UnicodeError):
        return


def _may_use_proxy() -> bool:
    """Return whether the browser may use a proxy, which can be set in a desktop or its system, unseen by us."""
    return bool(getproxies()) or sys.platform != "linux" or "XDG_CURRENT_DESKTOP" in os.environ
