"""Clients that share a server over HTTP do not hear of each other; sessions that a server forgets."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.support.mcp_http import ANN
from tests.support.mcp_servers import FOLDER
from tests.support.relayed import HELLO, relayed_to
from tests.surfaces.proxy.test_http import served
from transports.mcp._servers import HttpServer
from transports.surfaces.mcp.proxy._upstream import server_of

TALKATIVE = server_of([sys.executable, str(FOLDER / "talkative.py")])
MODERN = max(MODERN_PROTOCOL_VERSIONS)


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(name: str, **arguments: object) -> dict[str, object]:
    return request("tools/call", name=name, arguments=arguments, _meta={"progressToken": "p"})


@asynccontextmanager
async def newest(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client without a session. All of them use the same ids and tokens."""
    headers = {"Authorization": f"Bearer {ANN}", "MCP-Protocol-Version": MODERN}
    async with aiohttp.ClientSession(url.removesuffix("/mcp"), headers=headers) as http:
        yield http


@pytest.mark.load
async def test_http_proxy_isolates_clients_sharing_a_server(tmp_path: Path) -> None:
    async with served(tmp_path, TALKATIVE) as url, newest(url) as ann, newest(url) as eve, asyncio.timeout(60):
        async with eve.post("/mcp", json=call("hold")) as listening:
            begun = await listening.content.readuntil(b"\n\n")  # its progress: the server has the call
            assert b'"p"' in begun
            async with ann.post("/mcp", json=call("spill", secret="of-ann")) as spilled:
                heard = await spilled.text()
            assert '"text": "spill"' in heard or '"text":"spill"' in heard
            async with ann.post("/mcp", json=call("release")) as released:
                await released.text()
            overheard = begun.decode() + (await listening.content.read()).decode()
        assert "hold" in overheard and "of-ann" not in overheard


@pytest.mark.load
async def test_client_cannot_end_or_answer_call_of_another_client(tmp_path: Path) -> None:
    async with served(tmp_path, TALKATIVE) as url, newest(url) as ann, newest(url) as eve, asyncio.timeout(60):
        async with ann.post("/mcp", json=call("hold")) as held:
            await held.content.readuntil(b"\n\n")
            for forged in (
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
                {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "forged"}]}},
            ):
                async with eve.post("/mcp", json=forged) as ignored:
                    assert ignored.status == 202
            async with eve.post("/mcp", json=call("release")) as released:
                assert "hold" not in await released.text()
            answered = (await held.content.read()).decode()
        assert "hold" in answered and "forged" not in answered and '"id":1' in answered.replace(" ", "")


@pytest.mark.load
async def test_field_that_looks_like_an_id_does_not_fail_answer(tmp_path: Path) -> None:
    async with (
        served(tmp_path, TALKATIVE) as url,
        newest(url) as ann,
        asyncio.timeout(60),
        ann.post("/mcp", json=call("odd")) as answered,
    ):
        text = (await answered.text()).replace(" ", "")
    assert '"requestId":1e400' in text and '"text":"odd"' in text and '"id":1,' in text


# --- a server that forgets its sessions -------------------------------------------------------------------------------


class Forgetful:
    """A server with sessions, which notes the calls that it runs."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.opened = 0
        self.ran: list[str] = []
        self.knows_none = False
        self.refusal: dict[str, Any] = {"status": 404}

    async def post(self, asked: web.Request) -> web.StreamResponse:
        message = await asked.json()
        if message["method"] == "initialize":
            self.opened += 1
            session = f"s{self.opened}"
            self.sessions.add(session)
            able = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "f"}}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": able}
            return web.json_response(answer, headers={"mcp-session-id": session})
        if self.knows_none or asked.headers.get("mcp-session-id") not in self.sessions:
            return web.Response(**self.refusal)
        if "id" not in message:
            return web.Response(status=202)
        name = message["params"].get("name", message["method"])
        self.ran.append(name)
        result: dict[str, Any] = {"content": [{"type": "text", "text": name}]}
        if message["method"] == "tools/list":
            result = {"tools": []}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[HttpServer]:
        app = web.Application()
        app.router.add_post("/mcp", self.post)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield HttpServer(f"http://127.0.0.1:{runner.addresses[0][1]}/mcp")
        finally:
            await runner.cleanup()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client with a handshake."""
    async with aiohttp.ClientSession(url.removesuffix("/mcp"), headers={"Authorization": f"Bearer {ANN}"}) as http:
        async with http.post("/mcp", json=request("initialize", **HELLO) | {"id": "hello"}) as answer:
            await answer.read()
            http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with http.post("/mcp", json=done) as answer:
            assert answer.status == 202
        yield http


async def answer_to(http: aiohttp.ClientSession, message: object) -> Any:
    async with http.post("/mcp", json=message) as answer:
        text = await answer.text()
        return json.loads(text.partition("data: ")[2] or text)


@pytest.mark.load
async def test_proxy_leaves_reopening_of_lost_session_to_client(tmp_path: Path) -> None:
    server = Forgetful()
    async with server.serving() as behind, served(tmp_path, behind) as url, asyncio.timeout(60):
        async with opened(url) as http:
            assert (await answer_to(http, request("tools/list")))["result"] == {"tools": []}
            server.sessions.clear()
            async with http.post("/mcp", json=request("tools/list")) as refused:
                assert refused.status == 404
        async with opened(url) as http:
            assert (await answer_to(http, call("pay")))["result"]["content"][0]["text"] == "pay"
        assert server.opened == 2 and server.ran == ["tools/list", "pay"]


async def test_stdio_proxy_goes_on_after_refusal_of_one_request(tmp_path: Path) -> None:
    server = Forgetful()
    async with server.serving() as behind, relayed_to(behind, tmp_path) as client:
        for refusal in (
            {"status": 404, "text": '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "unknown"}}'},
            {"status": 400, "text": '{"error": {"code": -32000, "message": "unknown city"}}'},
        ):
            server.refusal = refusal
            server.knows_none = True
            client.send({**request("tools/list"), "id": "session-1"})
            answer = await client.answer("session-1")
            assert "unknown" in answer["error"]["message"]
            server.knows_none = False
            assert await client.request("tools/list") == {"tools": []}


@pytest.mark.parametrize("refusal", [{"status": 404}, {"status": 400, "text": "No valid session ID provided"}], ids=str)
async def test_stdio_proxy_ends_when_server_loses_session(tmp_path: Path, refusal: dict[str, Any]) -> None:
    server = Forgetful()
    server.refusal = refusal
    async with server.serving() as behind, relayed_to(behind, tmp_path) as client:
        assert await client.request("tools/list") == {"tools": []}
        server.sessions.clear()
        answer = await client.answer(client.ask("tools/list"))
        assert "has forgotten the session" in answer["error"]["message"]
        async with asyncio.timeout(30):
            assert await client.running == 1
