"""Finds the browsers of this user that run with remote debugging, to attach to one of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunningBrowser", "find_running"]

#: Where browsers keep the profiles of a user, below the folder of each system.
_BRAVE = "BraveSoftware/Brave-Browser"
_LINUX = ("google-chrome", "google-chrome-beta", "google-chrome-unstable", "chromium", "microsoft-edge", _BRAVE)
_MAC = ("Google/Chrome", "Google/Chrome Beta", "Google/Chrome Canary", "Chromium", "Microsoft Edge", _BRAVE)
_WINDOWS = ("Google/Chrome", "Google/Chrome Beta", "Google/Chrome SxS", "Chromium", "Microsoft/Edge", _BRAVE)
#: The file in a profile's folder that says the port and the path of the browser's own target.
_FILE = "DevToolsActivePort"
#: The port that all instructions name.
_USUAL_PORT = 9222
#: Seconds for a browser to answer, and bytes of its answer.
_TIMEOUT, _MAX_BYTES = 1.0, 64 * 1024


@dataclass(frozen=True, slots=True)
class RunningBrowser:
    """A browser that listens: its address for ``cdp_url``, and where it was found."""

    url: str
    where: str


async def find_running() -> list[RunningBrowser]:
    """Return the browsers that listen: those whose profile's folder says their port, then one at port 9222. A folder
    that a browser left behind names a port at which nothing, or something else, listens."""
    named = await asyncio.to_thread(lambda: list(_in_profiles()))
    found: dict[int, RunningBrowser] = {}
    for port, path, folder in named:
        if port not in found and await _listens(port):
            found[port] = RunningBrowser(f"ws://127.0.0.1:{port}{path}", str(folder))
    if _USUAL_PORT not in found and (name := await _version(_USUAL_PORT)):
        found[_USUAL_PORT] = RunningBrowser(f"http://127.0.0.1:{_USUAL_PORT}", f"{name} at port {_USUAL_PORT}")
    return list(found.values())


def _in_profiles() -> Iterator[tuple[int, str, Path]]:
    for folder in _folders():
        with contextlib.suppress(OSError, ValueError):
            port, _, path = (folder / _FILE).read_text(encoding="ascii")[:1000].partition("\n")
            path = path.strip()
            if 0 < int(port) < 1 << 16 and path.startswith("/devtools/browser/"):
                yield int(port), path, folder


def _folders() -> Iterator[Path]:
    home = Path.home()
    if sys.platform == "darwin":
        yield from (home / "Library/Application Support" / name for name in _MAC)
    elif sys.platform == "win32":
        local = Path(os.environ.get("LOCALAPPDATA") or home / "AppData/Local")
        yield from (local / name / "User Data" for name in _WINDOWS)
    else:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        yield from (config / name for name in _LINUX)


async def _listens(port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
    return False


async def _version(port: int) -> str | None:
    """The name of the browser that answers at a port, ``None`` if none does."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(
                    f"GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
                )
                answer = await reader.read(_MAX_BYTES)
            finally:
                writer.close()
        about = json.loads(answer.partition(b"\r\n\r\n")[2])
        if isinstance(about, dict) and "webSocketDebuggerUrl" in about:
            return str(about.get("Browser", "a browser"))[:100]
    return None
