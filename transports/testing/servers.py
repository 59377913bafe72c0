"""Servers for the pytest plugin: the reference app, and HTML files beside a test."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..sync.loop import SHARED

if TYPE_CHECKING:
    from webapp_fixture import Fixture

__all__ = ["serve_fixture_app", "serve_pages"]


@contextlib.contextmanager
def serve_fixture_app() -> Iterator[Fixture]:
    """Serve the reference app on 127.0.0.1, in the event loop of the blocking API."""
    from webapp_fixture import serve

    user = _LoopUser()
    SHARED.acquire(user)
    try:
        context = serve()
        fixture = SHARED.run(context.__aenter__())
        try:
            yield fixture
        finally:
            SHARED.run(context.__aexit__(None, None, None))
    finally:
        SHARED.release(user)


@contextlib.contextmanager
def serve_pages() -> Iterator[Callable[[Path], str]]:
    """Give a function that takes an HTML file and returns its address. The file's folder is served on 127.0.0.1, by a
    thread, until the end."""
    servers: dict[Path, ThreadingHTTPServer] = {}

    def address_of(page: Path) -> str:
        folder = page.resolve().parent
        if folder not in servers:
            server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=str(folder)))
            threading.Thread(target=server.serve_forever, name="abp-pages", daemon=True).start()
            servers[folder] = server
        return f"http://127.0.0.1:{servers[folder].server_port}/{quote(page.name)}"

    try:
        yield address_of
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class _LoopUser:
    """Keeps the loop of the blocking API alive; there is nothing to close when the program ends."""

    def finish(self) -> None:
        pass
