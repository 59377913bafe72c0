"""A client of a proxy in this process: messages as bytes, and their answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from transports.artifacts import ArtifactStore, open_store
from transports.surfaces.mcp import ProxyOptions, Stats, relay_of, server_of

__all__ = ["LARGE", "Client", "relayed"]

LARGE = Path(__file__).parent / "mcp_servers" / "large.py"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "t", "version": "1"}}


class Client:
    """A client with a handshake. ``raw`` are the answers by id as they came, ``other`` all other messages."""

    def __init__(self, store: ArtifactStore, stats: Stats) -> None:
        self.store = store
        self.stats = stats
        self.raw: dict[object, bytes] = {}
        self.other: list[dict[str, Any]] = []
        self.roots: list[str] = []
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._arrived = asyncio.Condition()
        self._last = 0

    async def write(self, pieces: Iterable[bytes], key: bytes, answers: bool) -> None:
        line = b"".join(pieces)
        message = json.loads(line)
        assert answers is ("method" not in message and "id" in message), message
        if answers:
            self.raw[message["id"]] = line
        elif message["method"] == "roots/list":
            self.send({"id": message["id"], "result": {"roots": [{"uri": uri} for uri in self.roots]}})
        else:
            self.other.append(message)
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

    async def answer(self, identity: int) -> dict[str, Any]:
        await self.until(lambda: identity in self.raw)
        found: dict[str, Any] = json.loads(self.raw[identity])
        return found

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
        import base64

        (item,) = (await self.request("resources/read", uri=uri))["contents"]
        return base64.b64decode(item["blob"]) if "blob" in item else item["text"].encode()


@asynccontextmanager
async def relayed(folder: Path, *arguments: str, log: Path | None = None, **options: Any) -> AsyncIterator[Client]:
    """A client of the server ``large.py`` behind a relay, after the handshake."""
    async with open_store(folder / "store") as store:
        stats = Stats("large", log)
        client = Client(store, stats)
        server = server_of([sys.executable, str(LARGE), *arguments])
        relay = relay_of(server, store, ProxyOptions(**options), stats, client.write)

        async def chunks() -> AsyncIterator[bytes]:
            while chunk := await client.chunks.get():
                yield chunk

        running = asyncio.ensure_future(relay.run(chunks()))
        try:
            await client.request("initialize", **HELLO)
            client.send({"method": "notifications/initialized"})
            await client.request("tools/list")
            yield client
        finally:
            client.chunks.put_nowait(b"")
            async with asyncio.timeout(30):
                await running
