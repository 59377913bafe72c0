"""A server behind an address, as others write them: each request gets one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from mcp.shared.inbound import encode_header_value
from mcp_types.version import LATEST_MODERN_VERSION

from tests.support.rows import each_row
from transports.mcp._servers import HttpServer
from transports.surfaces.mcp.proxy._address import AddressServer

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}
ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {}}
OTHER_ANSWER = {"jsonrpc": "2.0", "id": "other", "result": {}}


@asynccontextmanager
async def connected(
    answer: Callable[[web.Request], Awaitable[web.Response]], deliver: Callable[[Any], object]
) -> AsyncIterator[Callable[[object], Awaitable[None]]]:
    """What sends messages to a server; ``deliver`` gets its messages."""

    async def deliver_decoded(message: object) -> None:
        assert isinstance(message, bytes)
        deliver(json.loads(message))

    app = web.Application()
    app.add_routes([web.post("/mcp", answer)])
    async with TestServer(app) as server:
        relay = AddressServer(HttpServer(str(server.make_url("/mcp"))))
        running = asyncio.ensure_future(relay.run(deliver_decoded))
        try:
            async with asyncio.timeout(20):
                yield lambda message: relay.send(json.dumps(message).encode())
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await relay.aclose()


async def messages_for(
    body: str, status: int = 200, kind: str = "application/json", *, sent: object = PING, answers: int = 1
) -> Sequence[Any]:
    """The messages that a client gets for what it ``sent``, which the server answers with ``body``, up to so many
    ``answers``."""

    async def answer(request: web.Request) -> web.Response:
        if status == 0:
            assert request.transport is not None
            request.transport.close()
        return web.Response(body=body.encode(), status=status or 200, content_type=kind)

    delivered: list[Any] = []
    arrived = asyncio.Event()

    def deliver(message: Any) -> None:
        delivered.append(message)
        answered = [one for one in delivered if isinstance(one, list) or "id" in one]
        if len(answered) == answers:
            arrived.set()

    async with connected(answer, deliver) as send:
        await send(sent)
        await arrived.wait()
        # A second answer would follow in the same turn.
        await asyncio.sleep(0.05)
    return delivered


EVENTS = f"data: {json.dumps(NOTE)}\n\nid: 2\ndata: {json.dumps(ANSWER)}"


@each_row(
    ("body", "kind", "messages"),
    [
        ("\ufeff" + json.dumps(ANSWER), "application/json", [ANSWER]),
        (json.dumps(ANSWER, indent=1), "application/json", [ANSWER]),
        (json.dumps([NOTE, ANSWER]), "application/json", [NOTE, ANSWER]),
        *((EVENTS + end, "text/event-stream", [NOTE, ANSWER]) for end in ("", "\r\n", "\n\n")),
    ],
)
async def test_answer_is_delivered_once(body: str, kind: str, messages: Sequence[object]) -> None:
    assert await messages_for(body, kind=kind) == messages


@each_row(
    ("body", "status", "kind", "words"),
    [
        ("", 502, "application/json", "/mcp answered with status 502"),
        ("busy", 503, "application/json", "answered with status 503: busy"),
        ("", 200, "application/json", "no answer"),
        (f"data: {json.dumps(ANSWER)[:-1]}", 200, "text/event-stream", "the server sent no answer"),  # cut off
    ],
)
async def test_failure_is_one_error_with_the_reason(body: str, status: int, kind: str, words: str) -> None:
    (message,) = await messages_for(body, status, kind)
    assert message["id"] == 7
    error = message["error"]
    assert isinstance(error, dict)
    assert error["message"].endswith(words)


#: A connection that breaks, and a server that refuses batches.
@each_row(("body", "status"), [("", 0), (json.dumps({"jsonrpc": "2.0", "id": None, "error": {"message": "no"}}), 400)])
async def test_each_request_of_a_batch_that_fails_gets_an_error(body: str, status: int) -> None:
    batch = [PING, NOTE, {**PING, "id": "other"}]
    messages = await messages_for(body, status, sent=batch, answers=2)
    assert [message["id"] for message in messages] == [7, "other"]
    assert all("error" in message for message in messages)


@each_row("kind", ["application/json", "text/event-stream"])
async def test_answers_of_a_batch_stay_together_and_missing_ones_are_errors(kind: str) -> None:
    batch = [PING, {**PING, "id": "other"}]
    head = "data: " if kind == "text/event-stream" else ""
    whole, part = (head + json.dumps(answers) for answers in ([ANSWER, OTHER_ANSWER], [OTHER_ANSWER]))
    assert await messages_for(whole, kind=kind, sent=batch) == [[ANSWER, OTHER_ANSWER]]
    beside_no_message = [5, ANSWER, OTHER_ANSWER]
    assert await messages_for(head + json.dumps(beside_no_message), kind=kind, sent=batch) == [beside_no_message]
    answers, missing = await messages_for(part, kind=kind, sent=batch, answers=2)
    assert answers == [OTHER_ANSWER] and missing["id"] == 7 and "no answer" in missing["error"]["message"]


# --- clients without a handshake (protocol 2026-07-28) ----------------------------------------------------------------


def request(method: str, identity: object, **params: object) -> dict[str, object]:
    meta = {"io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION}
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": {**params, "_meta": meta}}


async def test_client_without_handshake_has_headers_of_its_protocol() -> None:
    seen: list[dict[str, str]] = []
    delivered: asyncio.Queue[object] = asyncio.Queue()
    region = {"type": "string", "x-mcp-header": "Region"}
    tools = [{"name": "t", "inputSchema": {"properties": {"region": region}}}, {"name": "plain"}]

    async def answer(request: web.Request) -> web.Response:
        names = ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region")
        seen.append({name: request.headers[name] for name in names if name in request.headers})
        message = await request.json()
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})

    version = {"mcp-protocol-version": LATEST_MODERN_VERSION}
    asked = [
        (request("tools/list", 1), {"mcp-method": "tools/list"}),
        (request("tools/call", 2, name="t", arguments={"region": "eu"}), {"mcp-name": "t", "mcp-param-region": "eu"}),
        (request("tools/call", 3, name="t", arguments=[]), {"mcp-name": "t"}),
        (request("tools/call", 4, name="plain", arguments={"region": "eu"}), {"mcp-name": "plain"}),
        (request("resources/read", 5, uri="file:///r\u00e9"), {"mcp-name": encode_header_value("file:///r\u00e9")}),
        (request("tasks/get", 6, taskId="of-the-task"), {"mcp-name": "of-the-task"}),
    ]
    async with connected(answer, delivered.put_nowait) as send:
        for message, headers in asked:
            await send(message)
            await delivered.get()
            assert seen.pop() == {"mcp-method": message["method"], **version, **headers}


async def test_client_without_handshake_cancels_by_the_end_of_its_request() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        assert (await request.json())["method"] == "tools/call", "the server gets no notification"
        begun.set()
        try:
            await asyncio.sleep(20)
        finally:
            gone.set()  # aiohttp's test server cancels the handler of a request that ends
        return web.Response()

    delivered: list[Any] = []
    async with connected(answer, delivered.append) as send:
        await send(request("tools/call", 7, name="t"))
        await begun.wait()
        identities: list[object] = [{}, "unknown", 7]
        for identity in identities:
            await send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": identity}})
        await gone.wait()
    assert delivered == []
