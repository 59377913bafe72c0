"""Apps that count how often each job ran: one over a WebSocket, and the reference app, whose server is told."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from transports import MemoryTransport
from transports.memory import Call
from transports.websocket.envelope import decode_envelope, encode_envelope
from webapp_fixture import pages
from webapp_fixture.server import build_app
from webapp_fixture.state import State


class Counting(ABC):
    """An app, and how often each job ran in it."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self._ran = asyncio.Event()

    @abstractmethod
    def served(self) -> contextlib.AbstractAsyncContextManager[str]:
        """Serve it, at the address that this yields."""

    @abstractmethod
    def call(self, n: int) -> Mapping[str, object]:
        """The capability and the parameters of job ``n``."""

    def count(self, n: int) -> None:
        self.runs[n] += 1
        self._ran.set()

    async def until(self, total: int) -> None:
        while self.runs.total() < total:
            self._ran.clear()
            await self._ran.wait()


class SocketApp(Counting):
    """An app of one capability over a WebSocket."""

    def call(self, n: int) -> Mapping[str, object]:
        return {"capability": "count", "params": {"n": n}}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        async with MemoryTransport({"count": self._count}) as app:

            async def connected(socket: ServerConnection) -> None:
                async def answer(text: str | bytes) -> None:
                    message = decode_envelope(text.encode() if isinstance(text, str) else text)
                    if message.id is not None:
                        reply = await app.request(message, timeout=60)
                        with contextlib.suppress(ConnectionClosed):
                            await socket.send(encode_envelope(reply).decode())

                async with asyncio.TaskGroup() as tasks:
                    with contextlib.suppress(ConnectionClosed):
                        async for text in socket:
                            tasks.create_task(answer(text))

            async with serve(connected, "127.0.0.1", 0) as server:
                yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"

    async def _count(self, params: Mapping[str, object], _: Call) -> object:
        number = params["n"]
        assert isinstance(number, int)
        self.count(number)
        await asyncio.sleep(0.002)
        return {"n": number}


#: The page tells its server of each call before the call begins.
_TELL = """<script>
let app;
Object.defineProperty(window, 'abp', {configurable: true, get: () => app, set(value) {
  const call = value.call;
  value.call = async (capability, params, options) => {
    await fetch(`/ran/${params.title}`, {method: 'POST'});
    return call.call(value, capability, params, options);
  };
  app = value;
}});
</script>"""


class PageApp(Counting):
    """The reference app in a page."""

    def call(self, n: int) -> Mapping[str, object]:
        """A document, or for every fifth job an image."""
        if n % 5:
            return {"capability": "export.html", "params": {"title": str(n), "html": f"<p>Job {n}</p>"}}
        params = {"title": str(n), "csv": f"Job,Number\nthis,{n}\n", "width": 320, "height": 200}
        return {"capability": "chart.render", "params": params}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = build_app(State())
        app.router.add_get("/counted", self._page)
        app.router.add_post("/ran/{n:[0-9]+}", self._told)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/counted"
        finally:
            await runner.cleanup()

    async def _page(self, request: web.Request) -> web.Response:
        page = await pages.index(request)
        assert isinstance(page, web.Response) and page.text is not None
        page.text = page.text.replace("<head>", f"<head>{_TELL}", 1)
        return page

    async def counted(self, n: int) -> None:
        """Called for each call, before it begins."""
        self.count(n)

    async def _told(self, request: web.Request) -> web.Response:
        await self.counted(int(request.match_info["n"]))
        return web.Response()
