"""What a failed test leaves behind, and the reference app for tests that want it."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..base import Transport
from ..browser.transport import PageTransport
from ..sync.loop import SHARED
from .assertions import copied
from .messagelog import MessageLog

if TYPE_CHECKING:
    from webapp_fixture import Fixture

__all__ = ["Keeper", "served", "serving"]


class Keeper:
    """For one test: its message log, the files of its store and, where there is a page of ours, a Playwright trace.
    ``folder`` is made when the test has failed."""

    def __init__(self, folder: Path, artifacts: Path) -> None:
        self.log = MessageLog()
        self._folder = folder
        self._artifacts = artifacts
        self._traced: PageTransport | None = None

    def keep(self) -> str:
        """Write everything there is, and say where."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = []
        if len(self.log):
            self.log.write(self._folder / "messages.jsonl")
            kept.append("messages.jsonl")
        if self._traced is not None:
            traced, self._traced = self._traced, None
            SHARED.run(_stop(traced, self._folder / "trace.zip"))
        if (self._folder / "trace.zip").is_file():
            kept.append("trace.zip (see it with: playwright show-trace)")
        copied(self._artifacts, self._folder / "artifacts")
        if any((self._folder / "artifacts").iterdir()):
            kept.append("artifacts")
        return f"kept in {self._folder}: {', '.join(kept) or 'nothing, as nothing was there'}"

    def trace(self, transport: Transport) -> None:
        """Record a trace of a blocking session's page, until :meth:`keep` or :meth:`end`."""
        if isinstance(transport, PageTransport):
            SHARED.run(_start(transport))
            self._traced = transport

    def end(self) -> None:
        """Forget the trace, unless it was kept."""
        if self._traced is not None:
            traced, self._traced = self._traced, None
            SHARED.run(_stop(traced, None))

    @contextlib.asynccontextmanager
    async def traced(self, transport: Transport, *, wanted: bool, unless: type[BaseException]) -> AsyncIterator[None]:
        """The same in the test's own event loop: kept if an exception passes, but for ``unless``."""
        if not (wanted and isinstance(transport, PageTransport)):
            yield
            return
        await _start(transport)
        path: Path | None = None
        try:
            yield
        except BaseException as error:
            path = None if isinstance(error, unless) else self._folder / "trace.zip"
            raise
        finally:
            await _stop(transport, path)


async def _start(transport: PageTransport) -> None:
    from playwright.async_api import Error

    if transport.page is not None:
        with contextlib.suppress(Error):  # a context that several share may be traced already
            await transport.page.context.tracing.start(screenshots=True, snapshots=True)


async def _stop(transport: PageTransport, path: Path | None) -> None:
    from playwright.async_api import Error

    if transport.page is not None:
        with contextlib.suppress(Error):  # the browser may be what has died
            await transport.page.context.tracing.stop(path=path)


@contextlib.contextmanager
def served() -> Iterator[Fixture]:
    """The reference app, served by the loop of the blocking API."""
    from webapp_fixture import serve

    user = _User()
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
def serving() -> Iterator[Callable[[Path], str]]:
    """Gives a function from an HTML file to its address; its folder is served on 127.0.0.1 until the end."""
    servers: dict[Path, ThreadingHTTPServer] = {}

    def address_of(page: Path) -> str:
        folder = page.resolve().parent
        if folder not in servers:
            server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
            threading.Thread(target=server.serve_forever, name="abp-pages", daemon=True).start()
            servers[folder] = server
        return f"http://127.0.0.1:{servers[folder].server_port}/{quote(page.name)}"

    try:
        yield address_of
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class _User:
    """Who keeps the loop alive."""

    def finish(self) -> None:
        pass
