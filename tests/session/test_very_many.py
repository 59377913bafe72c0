"""Very many values, names, tools: they are refused with a typed error or cut with a warning before they are parsed, and
no other session of the process waits for them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support import answers_of_many
from tests.support.answers_of_many import AS_MANY, VERY_MANY
from tests.support.mcp_servers import target
from tests.support.mcp_servers.crowd import answer
from tests.support.processor import BOUND, longest_turn, peak_memory
from tests.support.slow import slow_but
from transports import Notification, ProtocolError, Session, connect

MB = 1 << 20


@asynccontextmanager
async def app_that_answers(size: str, kind: str, store: Path) -> AsyncIterator[Session]:
    """A session with an app behind a WebSocket that answers each call of ``many`` with so much."""
    pipe = asyncio.subprocess.PIPE
    app = await asyncio.create_subprocess_exec(
        sys.executable, answers_of_many.__file__, size, kind, stdin=pipe, stdout=pipe
    )
    assert app.stdin is not None and app.stdout is not None
    try:
        port = int(await app.stdout.readline())
        async with connect(f"ws://127.0.0.1:{port}", store=store) as session:
            await session.call("few")
            yield session
    finally:
        app.stdin.close()
        await app.wait()


@pytest.mark.load
@pytest.mark.parametrize("kind", slow_but(VERY_MANY, "one beyond"))
async def test_answer_with_too_many_values_is_rejected_before_parsing(kind: str, tmp_path: Path) -> None:
    async with app_that_answers("VERY_MANY", kind, tmp_path) as app:
        with peak_memory() as grown, longest_turn() as turn:
            with pytest.raises(ProtocolError, match="more than 1,000,000 values and names") as caught:
                await app.call("many", timeout=60)
            assert grown() < 200 * MB
        assert caught.value.code == "TOO_LARGE" and caught.value.details["limit"] == 1_000_000
        assert turn.seconds < BOUND
        assert (await app.call("few")).data == {}


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.parametrize("kind", slow_but(AS_MANY, "beside a file"))
async def test_answer_with_maximum_values_does_not_block_event_loop(kind: str, tmp_path: Path) -> None:
    async with app_that_answers("AS_MANY", kind, tmp_path) as app:
        with longest_turn() as turn:
            result = await app.call("many", timeout=60)
            assert result.artifacts
        assert turn.seconds < BOUND


@asynccontextmanager
async def server_of(tools: int, carrier: str) -> AsyncIterator[str]:
    """The target of an MCP server with so many tools, over stdio or over HTTP as JSON or as events."""
    if carrier == "stdio":
        yield target("crowd", str(tools))
        return

    async def serve_request(request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        text = answer(await request.json(), tools)
        if text is None:
            return web.Response(status=202)
        if carrier == "json":
            return web.Response(text=text, content_type="application/json")
        return web.Response(text=f"event: message\ndata: {text}\n\n", content_type="text/event-stream")

    application = web.Application()
    application.router.add_route("*", "/mcp", serve_request)
    async with TestServer(application) as server:
        yield f"mcp+{server.make_url('/mcp')}"


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.parametrize("carrier", slow_but(["stdio", "json", "events"], "stdio"))
async def test_many_tools_and_values_do_not_block_and_too_many_are_rejected_within_limits(
    carrier: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_of(3, carrier) as few, connect(few, store=tmp_path) as app:
        await app.call("t0", {"kind": "fine"})  # what is loaded at the first use
    async with server_of(300_000, carrier) as many:
        with peak_memory() as grown, caplog.at_level(logging.WARNING), longest_turn() as turn:
            async with connect(many, store=tmp_path, timeout=60) as app:
                assert "t0" not in app.capabilities and "resources.list" in app.capabilities
        if carrier == "stdio":  # a server over HTTP is in this process, too
            assert grown() < 150 * MB
            assert turn.seconds < BOUND
    assert "could not list its tools" in caplog.text and "1,000,000 values and names" in caplog.text

    kinds = {"lists": 490_000, "names": 490_000, "blocks": 190_000, "text": 400_000}
    async with server_of(100_000, carrier) as many:
        with longest_turn() as turn:
            async with connect(many, store=tmp_path, timeout=60) as app:
                assert len(app.capabilities) > 100_000
                for kind, count in kinds.items():
                    assert (await app.call("t0", {"kind": kind, "count": count}, timeout=60)).artifacts
                with pytest.raises(ProtocolError) as caught:
                    await app.call("t0", {"kind": "lists", "count": 510_000}, timeout=60)
                assert caught.value.code == "TOO_LARGE" and caught.value.details["limit"] == 1_000_000
                assert (await app.call("t0", {"kind": "fine"})).data == {"fine": True}
        if carrier == "stdio":  # as above
            assert turn.seconds < BOUND


@pytest.mark.load
async def test_notification_with_too_many_values_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Notification] = []
    async with connect(target("crowd", "1"), store=tmp_path, on_notification=told.append) as app:
        await app.call("t0", {"kind": "fine", "tells": 1})
        with longest_turn() as turn:
            for count in (19_990, 20_000, 400_000):
                await app.call("t0", {"kind": "fine", "tells": count})
        assert turn.seconds < BOUND
    assert [len(one.data["data"]) for one in told if isinstance(one.data, dict)] == [1, 19_990]
    assert caplog.text.count("left out 'notifications/message' of the server: it has very many values") == 2
