"""The proxy over HTTP, and before a server behind an address: both eras, clients apart."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx2 as httpx
import psutil
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.support.eventually import eventually
from tests.support.mcp_clients import ERAS, links_of
from tests.support.mcp_http import ANN, BOB, USERS, client_of
from tests.support.mcp_servers import FOLDER
from tests.support.relayed import HELLO, LARGE
from tests.surfaces.proxy.test_stdio import alive
from transports.artifacts import open_store
from transports.mcp._servers import HttpServer, Server
from transports.surfaces.mcp.proxy._exchange import ProxyContext
from transports.surfaces.mcp.proxy._rewriting import ProxyOptions
from transports.surfaces.mcp.proxy._serving import serve_proxy
from transports.surfaces.mcp.proxy._stats import Stats
from transports.surfaces.mcp.proxy._upstream import server_of

pytestmark = pytest.mark.load

HELLO_LINE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
PLAIN = server_of([sys.executable, str(LARGE)])
SDK = server_of([sys.executable, str(FOLDER / "tableau.py")])
TALKATIVE = server_of([sys.executable, str(FOLDER / "talkative.py")])
MODERN = max(MODERN_PROTOCOL_VERSIONS)


@asynccontextmanager
async def served(folder: Path, server: Server, *, roots: Sequence[Path] = (), **options: Any) -> AsyncIterator[str]:
    """The address of a proxy for Ann and Bob."""
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with open_store(folder) as store:
        shared = ProxyContext(store, ProxyOptions(**options), Stats("test"), roots)
        running = asyncio.ensure_future(serve_proxy(server, shared, ("127.0.0.1", 0), USERS, started.set_result))
        try:
            yield await started
        finally:
            running.cancel()
            await asyncio.wait((running,), timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_both_protocol_eras_work_through_two_proxies(tmp_path: Path, era: str) -> None:
    """A proxy before a started server, and another one before the first one's address."""
    async with served(tmp_path / "1", SDK, max_inline=1 << 30) as inner:
        outer = HttpServer(inner, {"Authorization": f"Bearer {BOB}"})
        async with (
            served(tmp_path / "2", outer) as url,
            client_of(inner, ANN, era) as bare,
            client_of(url, ANN, era) as client,
        ):
            assert client.protocol_version == bare.protocol_version
            assert client.server_info == bare.server_info
            assert await client.list_tools() == await bare.list_tools()
            assert (await client.call_tool("upload", {"file": "é"})).structured_content == {"file": "é"}
            seen: list[float] = []

            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                seen.append(progress)

            assert not (await client.call_tool("work", {"steps": 2}, progress_callback=progressed)).is_error
            assert seen == [1.0, 2.0]
            result = await client.call_tool("large", {"bytes": 300_000})
            (link,) = links_of(result)
            (content,) = (await client.read_resource(link.uri)).contents
            assert base64.b64decode(content.model_dump()["blob"]) == bytes(300_000)
            with pytest.raises(MCPError):
                await client.read_resource("artifact://none_000000000000")


async def test_http_proxy_isolates_clients(tmp_path: Path) -> None:
    without_resources = server_of([sys.executable, str(LARGE), "--bare"])
    async with (
        served(tmp_path, without_resources) as url,
        client_of(url, ANN, "legacy") as ann,
        client_of(url, BOB, "legacy") as bob,
    ):
        picture = {"type": "image", "data": "@base64:300000", "mimeType": "image/png"}
        (link,) = links_of(await ann.call_tool("give", {"result": {"content": [picture]}}))
        await ann.read_resource(link.uri)
        with pytest.raises(MCPError):
            await bob.read_resource(link.uri)
        text = 'é\n\r\n😀 \\ " '  # each text arrives unchanged, both ways
        expected = [{"number": number, "name": name + text * 500} for number in range(10) for name in ("ann", "bob")]
        calls = [
            client.call_tool("give", {"result": {"content": [], "structuredContent": answer}})
            for answer, client in zip(expected, (ann, bob) * 10, strict=True)
        ]
        assert [answer.structured_content for answer in await asyncio.gather(*calls)] == expected
        assert sum(map(is_server, psutil.Process().children(recursive=True))) == 2  # each has a server


async def test_requests_not_for_this_server_are_rejected(tmp_path: Path) -> None:
    own = {"Authorization": f"Bearer {ANN}", "Accept": "application/json, text/event-stream"}
    async with served(tmp_path, PLAIN) as url, httpx.AsyncClient() as http:
        for headers, status in (
            ({"Authorization": ""}, 401),
            ({"Authorization": "Bearer no"}, 401),
            ({"Host": "evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({}, 400),  # without a handshake
            ({"mcp-session-id": "x"}, 404),
        ):
            assert (await http.post(url, json=PING, headers={**own, **headers})).status_code == status, headers
        json_headers = {**own, "Content-Type": "application/json"}
        bad = await http.post(url, content=b"{", headers=json_headers)
        assert bad.status_code == 400 and bad.json()["error"]["code"] == -32700
        deep = await http.post(url, content=b"[" * 601 + b"]" * 601, headers=json_headers)
        assert deep.status_code == 413 and deep.json()["error"]["data"]["code"] == "TOO_LARGE"
        assert (await http.get(url, headers=own)).status_code == 400  # without a handshake
        assert (await http.get(url, headers={**own, "MCP-Protocol-Version": "2026-07-28"})).status_code == 405


async def test_stdio_session_rejects_other_users_and_ends_on_delete(tmp_path: Path) -> None:
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in (ANN, BOB))
    async with served(tmp_path, PLAIN) as url, httpx.AsyncClient(timeout=60) as http:
        opened = await http.post(url, json=HELLO_LINE, headers=ann)
        assert opened.status_code == 200 and '"serverInfo"' in opened.text
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert '"result"' in (await http.post(url, json=PING, headers=ann | session)).text
        assert (await http.post(url, json=PING, headers=bob | session)).status_code == 404
        assert (await http.delete(url, headers=bob | session)).status_code == 404
        assert (await http.delete(url, headers=ann | session)).status_code == 200
        assert (await http.post(url, json=PING, headers=ann | session)).status_code == 404


async def test_server_that_cannot_start_or_be_reached_is_a_bad_gateway(tmp_path: Path) -> None:
    nobody = HttpServer("http://127.0.0.1:9/mcp", {"Authorization": "Bearer secret-of-mine"})
    for server, words in ((server_of(["/no/such/server"]), "cannot be started"), (nobody, "cannot be reached")):
        async with served(tmp_path, server) as url, httpx.AsyncClient(timeout=60) as http:
            refused = await http.post(url, json=HELLO_LINE, headers={"Authorization": f"Bearer {ANN}"})
        assert refused.status_code == 502 and words in refused.json()["error"]["message"]
        assert "secret-of-mine" not in refused.text


# --- the messages of a session ----------------------------------------------------------------------------------------


def raw_call(identity: object, *lines: str) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": identity,
        "method": "tools/call",
        "params": {"name": "raw", "arguments": {"lines": lines}},
    }


@asynccontextmanager
async def session_of(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of protocol 2025-11-25 after its handshake."""
    headers = {"Authorization": f"Bearer {ANN}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        opened = await http.post(url, json=HELLO_LINE)
        http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        yield http


def events_of(body: str) -> list[Any]:
    """The data of a stream of events, whose lines may end in CR, LF or both."""
    events = re.split(r"(?:\r\n|\r|\n){2}", body)
    data = ["\n".join(line[5:] for line in re.split(r"\r\n|\r|\n", event) if line[:5] == "data:") for event in events]
    return [json.loads(text) for text in data if text]


async def test_http_proxy_answers_each_request_once(tmp_path: Path) -> None:
    lines = {
        "carriage returns": ['{"jsonrpc":"2.0",\r"id":@id,\r"result":{"content":[]}}'],
        "noise": ["ready", "{ not json", "[INFO]", '{"jsonrpc":"2.0","id":@id,"result":{}}', "done"],
        "too deep": ['{"jsonrpc":"2.0","id":@id,"result":@deep}'],
        "too many values": ['{"result":@wide,"jsonrpc":"2.0","id":@id}'],
    }
    async with served(tmp_path, PLAIN) as url, session_of(url) as http, asyncio.timeout(120):
        for identity, (name, texts) in zip((5, "five", 5.5, 6.5), lines.items(), strict=True):
            (message,) = events_of((await http.post(url, json=raw_call(identity, *texts))).text)
            assert message["id"] == identity, name
            assert ("error" in message) == name.startswith("too"), name


async def test_sessionless_request_gets_one_answer_with_client_id(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {ANN}", "MCP-Protocol-Version": "2026-07-28"}
    async with served(tmp_path, PLAIN) as url, httpx.AsyncClient(headers=headers, timeout=60) as http:

        async def answer_to(value: str, **more: str) -> Any:
            call = {**raw_call("mine", f'{{"result":{value},"jsonrpc":"2.0","id":@id}}'), **more}
            response = await http.post(url, content=json.dumps(call), headers={"Content-Type": "application/json"})
            (message,) = events_of(response.text)
            assert message["id"] == "mine"
            return message

        plain, *over = await asyncio.gather(*(answer_to(value) for value in ("{}", "@wide", "@deep")))
        assert plain["result"] == {} and all("error" in message for message in over)
        assert (await answer_to('{"half":"\\udc00"}'))["result"]["half"] == "\ufffd"
        assert "not valid JSON" in (await answer_to('{"number":NaN}'))["error"]["message"]
        assert (await answer_to("{}", half="\ud800"))["result"] == {}


async def test_exited_server_fails_its_requests_and_ends_session(tmp_path: Path) -> None:
    dying = server_of([sys.executable, str(LARGE), "--once", str(tmp_path / "died")])
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "risky"}}
    async with served(tmp_path, dying) as url:
        async with session_of(url) as http:
            (message,) = events_of((await http.post(url, json=call)).text)
            assert message["id"] == 7 and "ended with status 3" in message["error"]["message"]
            assert (await http.post(url, json=call)).status_code == 404
        async with session_of(url) as http:
            (message,) = events_of((await http.post(url, json=call)).text)
            assert message["result"]["content"][0]["text"] == "alive"


async def test_request_in_progress_keeps_its_id_until_cancelled(tmp_path: Path) -> None:
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    async with served(tmp_path, PLAIN) as url, session_of(url) as http, asyncio.timeout(30):
        async with http.stream("POST", url, json=raw_call(7)) as response:
            (message,) = events_of((await http.post(url, json=raw_call(7.0))).text)
            assert "use another id" in message["error"]["message"]
            assert (await http.post(url, json=cancelled)).status_code == 202
            assert await response.aread() == b""
        assert "result" in (await http.post(url, json=PING)).text


async def test_messages_of_no_request_wait_for_a_listener(tmp_path: Path) -> None:
    note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%d}}'
    answer = '{"jsonrpc":"2.0","id":@id,"result":{}}'
    async with served(tmp_path, PLAIN) as url, session_of(url) as http, asyncio.timeout(10):
        await http.post(url, json=raw_call(1, answer, note % 1))
        async with http.stream("GET", url) as first:
            lines = first.aiter_lines()
            begun = [await anext(lines) for _ in range(4)]
            assert begun == [": listening", "", "event: message", f"data: {note % 1}"]
            await http.post(url, json=raw_call(2, note % 2, answer))
            async with http.stream("GET", url):
                # The second listener has replaced the first.
                assert [line async for line in lines] == ["", "event: message", f"data: {note % 2}", ""]


async def test_disconnected_client_of_a_shared_server_cancels_its_request(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {ANN}", "MCP-Protocol-Version": "2026-07-28"}
    seen = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "seen"}}
    async with served(tmp_path, PLAIN) as url, httpx.AsyncClient(headers=headers, timeout=60) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post(url, json=raw_call(1), timeout=0.3)

        async def is_cancelled() -> bool:
            (message,) = events_of((await http.post(url, json=seen)).text)
            return "notifications/cancelled" in message["result"]

        await eventually(is_cancelled)


def is_server(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has just ended
        return str(LARGE) in " ".join(process.cmdline())
    return False


@pytest.mark.slow
async def test_sessions_per_user_are_limited(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {ANN}"}
    async with served(tmp_path, PLAIN) as url, httpx.AsyncClient(headers=headers, timeout=60) as http:
        opened = [(await http.post(url, json=HELLO_LINE)).headers["mcp-session-id"] for _ in range(23)]

        def servers() -> int:
            return len(alive([child for child in psutil.Process().children(recursive=True) if is_server(child)]))

        await eventually(lambda: servers() <= 20, within=30, what="the end of the oldest sessions")
        statuses = [
            (await http.post(url, json=PING, headers={"Mcp-Session-Id": session})).status_code
            for session in (opened[0], opened[-1])
        ]
        assert statuses == [404, 200]


# --- clients without a session that share a server -------------------------------------------------------------------


def call(name: str, **arguments: object) -> dict[str, object]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@asynccontextmanager
async def newest(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client without a session. All of them use the same ids and tokens."""
    headers = {"Authorization": f"Bearer {ANN}", "MCP-Protocol-Version": MODERN}
    async with aiohttp.ClientSession(url.removesuffix("/mcp"), headers=headers) as http:
        yield http


async def test_http_proxy_isolates_clients_sharing_a_server(tmp_path: Path) -> None:
    async with served(tmp_path, TALKATIVE) as url, newest(url) as ann, newest(url) as eve, asyncio.timeout(60):
        async with eve.post("/mcp", json=call("hold")) as listening, ann.post("/mcp", json=call("hold")) as beside:
            begun = await listening.content.readuntil(b"\n\n")  # its progress: the server has the call
            assert b'"p"' in begun and b'"p"' in await beside.content.readuntil(b"\n\n")
            async with ann.post("/mcp", json=call("spill", secret="of-ann")) as spilled:
                heard = await spilled.text()
            assert '"text": "spill"' in heard or '"text":"spill"' in heard
            async with ann.post("/mcp", json=call("release")) as released:
                await released.text()
            overheard = begun.decode() + (await listening.content.read()).decode()
        assert "hold" in overheard and "of-ann" not in overheard and overheard.count('"p"') == 1


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


async def test_field_that_looks_like_an_id_does_not_fail_answer(tmp_path: Path) -> None:
    async with (
        served(tmp_path, TALKATIVE) as url,
        newest(url) as ann,
        asyncio.timeout(60),
        ann.post("/mcp", json=call("odd")) as answered,
    ):
        text = (await answered.text()).replace(" ", "")
    assert '"requestId":1e400' in text and '"text":"odd"' in text and '"id":1,' in text
