"""A client of a proxy in this process: messages as bytes, and their answers."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from transports.artifacts import ArtifactStore, open_store
from transports.mcp._servers import Server
from transports.surfaces.mcp.proxy._duplex import relay
from transports.surfaces.mcp.proxy._exchange import ProxyContext
from transports.surfaces.mcp.proxy._rewriting import ProxyOptions
from transports.surfaces.mcp.proxy._stats import Stats
from transports.surfaces.mcp.proxy._upstream import open_upstream, server_of

LARGE = Path(__file__).parent / "mcp_servers" / "large.py"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "t", "version": "1"}}


class Client:
    """A client with a handshake. ``raw`` are the answers by id as they came, ``other`` all other messages."""

    def __init__(self, store: ArtifactStore, stats: Stats) -> None:
        self.store = store
        self.stats = stats
        self.raw: dict[object, bytes] = {}
        self.other: list[dict[str, Any]] = []
        self.batches: list[list[Any]] = []
        self.roots: list[str] = []
        #: Questions about the roots, which are answered unless ``answers_roots`` is false.
        self.questions: list[object] = []
        self.answers_roots = True
        self.is_gone = False
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.hello: Any = None
        self.running: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._arrived = asyncio.Condition()
        self._last = 0

    async def write(self, message: Any) -> None:
        if not message.raw:
            return
        if self.is_gone:
            raise BrokenPipeError
        decoded = json.loads(message.raw)
        if isinstance(decoded, list):
            self.batches.append(decoded)
            return
        assert message.is_answer is ("method" not in decoded and "id" in decoded), decoded
        if message.is_answer:
            assert decoded["id"] not in self.raw or decoded["id"] is None, "a second answer"
            self.raw[decoded["id"]] = message.raw
        elif decoded["method"] == "roots/list":
            self.questions.append(decoded["id"])
            if self.answers_roots:
                self.send({"id": decoded["id"], "result": {"roots": [{"uri": uri} for uri in self.roots]}})
        else:
            self.other.append(decoded)
        async with self._arrived:
            self._arrived.notify_all()

    def send(self, message: dict[str, Any]) -> None:
        self.chunks.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(60), self._arrived:
            await self._arrived.wait_for(holds)

    def ask(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._last += 1
        self.send({"id": self._last, "method": method, "params": params})
        return self._last

    async def answer(self, identity: object) -> dict[str, Any]:
        await self.until(lambda: identity in self.raw)
        answer: dict[str, Any] = json.loads(self.raw.pop(identity))
        return answer

    async def request(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        answer = await self.answer(self.ask(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.request("tools/call", name=tool, arguments=arguments)

    async def give(self, result: object, tool: str = "give") -> Any:
        """A result of the server, as the client gets it."""
        return await self.call(tool, result=result)

    async def content(self, uri: str) -> bytes:
        """The whole of an artifact, read as a resource."""
        (item,) = (await self.request("resources/read", uri=uri))["contents"]
        return base64.b64decode(item["blob"]) if "blob" in item else item["text"].encode()


@asynccontextmanager
async def relayed_to(server: Server, folder: Path, log: Path | None = None, **options: Any) -> AsyncIterator[Client]:
    """A client of a server behind the proxy, after the handshake."""
    async with open_store(folder / "store") as store, aclosing(await open_upstream(server)) as upstream:
        stats = Stats("large", log)
        client = Client(store, stats)
        shared = ProxyContext(store, ProxyOptions(**options), stats, roots=None)

        async def chunks() -> AsyncIterator[bytes]:
            while chunk := await client.chunks.get():
                yield chunk

        client.running = asyncio.ensure_future(relay(upstream, shared, chunks(), client.write))
        try:
            client.hello = await client.request("initialize", **HELLO)
            client.send({"method": "notifications/initialized"})
            await client.request("tools/list")
            yield client
        finally:
            client.chunks.put_nowait(b"")
            async with asyncio.timeout(30):
                await client.running


@asynccontextmanager
async def relayed(folder: Path, *arguments: str, **options: Any) -> AsyncIterator[Client]:
    """A client of the server ``large.py`` behind the proxy, after the handshake."""
    async with relayed_to(server_of([sys.executable, str(LARGE), *arguments]), folder, **options) as client:
        yield client
