"""A server behind an address, as others write them: each request gets one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from transports.mcp._servers import HttpServer
from transports.surfaces.mcp.proxy._address import AddressServer

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}
ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {}}


async def messages_for(body: str, status: int = 200, kind: str = "application/json") -> Sequence[dict[str, object]]:
    """The messages that a client gets for a ping which the server answers with ``body``."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body.encode(), status=status, content_type=kind)

    delivered: list[dict[str, object]] = []
    arrived = asyncio.Event()

    async def deliver(message: object) -> None:
        assert isinstance(message, bytes)
        delivered.append(json.loads(message))
        if "id" in delivered[-1]:
            arrived.set()

    app = web.Application()
    app.add_routes([web.post("/mcp", answer)])
    async with TestServer(app) as server:
        relay = AddressServer(HttpServer(str(server.make_url("/mcp"))))
        running = asyncio.ensure_future(relay.run(deliver))
        try:
            await relay.send(json.dumps(PING).encode())
            async with asyncio.timeout(20):
                await arrived.wait()
            # A second answer would follow in the same turn.
            await asyncio.sleep(0.05)
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await relay.aclose()
    return delivered


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (json.dumps(ANSWER), [ANSWER]),
        ("\ufeff" + json.dumps(ANSWER), [ANSWER]),
        (json.dumps(ANSWER, indent=1), [ANSWER]),
        (json.dumps([ANSWER]), [ANSWER]),
        (json.dumps([NOTE, ANSWER]), [NOTE, ANSWER]),
    ],
    ids=["plain", "byte order mark", "lines", "list", "list with notification"],
)
async def test_answer_is_delivered_once(body: str, messages: Sequence[object]) -> None:
    assert await messages_for(body) == messages


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r", "\n\n"], ids=repr)
async def test_last_event_may_have_no_empty_line(end: str) -> None:
    body = f"data: {json.dumps(NOTE)}\n\nid: 2\ndata: {json.dumps(ANSWER)}{end}"
    assert await messages_for(body, kind="text/event-stream") == [NOTE, ANSWER]


async def test_event_that_was_cut_is_no_answer() -> None:
    (message,) = await messages_for(f"data: {json.dumps(ANSWER)[:-1]}", kind="text/event-stream")
    assert "the server sent no answer" in str(message["error"])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("", 502, "/mcp answered with status 502"),
        ("busy", 503, "answered with status 503: busy"),
        ("", 200, "no answer"),
    ],
)
async def test_failure_is_one_error_with_the_reason(body: str, status: int, words: str) -> None:
    (message,) = await messages_for(body, status)
    assert message["id"] == 7
    error = message["error"]
    assert isinstance(error, dict)
    assert error["message"].endswith(words)
