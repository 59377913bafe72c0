"""A library or a handler raises what nobody expects in the background of a transport: the requests under way fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from websockets.asyncio.connection import Connection as LibraryConnection
from websockets.asyncio.server import ServerConnection, serve

from tests.support.mcp_servers import target
from tests.support.mcp_servers.tableau import VIEW
from transports import Disconnected, MemoryTransport, Message, TransportError, WebSocketTransport, connect
from transports.testing import Call


async def test_handler_raising_base_exception_ends_its_request() -> None:
    async def failing(params: Mapping[str, object], call: Call) -> object:
        pytest.fail("the handler fails")  # no Exception

    async with MemoryTransport({"app.fail": failing}) as transport:
        payload = {"capability": "app.fail", "params": {}, "options": {"callId": "1"}}
        with pytest.raises(pytest.fail.Exception, match="the handler fails"):
            async with asyncio.timeout(20):
                await transport.request(Message("capabilities/call", payload, id="1"), timeout=60)


@asynccontextmanager
async def sending(data: bytes) -> AsyncIterator[WebSocketTransport]:
    """A transport to a server that answers each message with a text frame of ``data``."""

    async def answer(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send(data, text=True)

    async with serve(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with WebSocketTransport(f"ws://127.0.0.1:{port}/", reconnect=False) as transport:
            yield transport


async def test_failing_close_fails_requests_and_ends_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(connection: LibraryConnection, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        raise ValueError("cannot be closed")

    async with sending(b"\xff") as transport, asyncio.timeout(20):
        monkeypatch.setattr(LibraryConnection, "close", failing)
        with pytest.raises(Disconnected, match=r"failed \(ValueError\); connect again"):
            await transport.request(Message("initialize", {}), timeout=60)
        assert [message.type async for message in transport.events()] == []
        assert transport.state == "closed"
        with pytest.raises(Disconnected):
            await transport.request(Message("initialize", {}), timeout=60)


async def test_unwritable_server_request_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(writer: asyncio.StreamWriter) -> None:
        monkeypatch.undo()
        raise ValueError("cannot be written")

    async with connect(target("plain"), store="none:", timeout=60) as app:
        name = next(iter(app.capabilities))
        monkeypatch.setattr(asyncio.StreamWriter, "drain", failing)
        with pytest.raises(Disconnected, match="cannot be written"):
            async with asyncio.timeout(20):
                await app.call(name, timeout=60)
        await app.call("text", {"size": 1}, timeout=60)  # of the next server, whose start a close would interrupt


@pytest.mark.slow
@pytest.mark.load
async def test_subscription_fails_if_its_stream_cannot_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(client: Client, **options: object) -> object:
        raise KeyError("no stream")

    async with connect(target("tableau"), store="none:", timeout=60) as app:
        monkeypatch.setattr(Client, "listen", failing)
        with pytest.raises(TransportError, match="changes are not reported: 'no stream'"):
            async with asyncio.timeout(20):
                await app.resources.subscribe(VIEW)
