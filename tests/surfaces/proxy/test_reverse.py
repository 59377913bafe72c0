"""``abp proxy --url``: a server behind an address, over HTTP as a reverse proxy and over stdio, and its odd answers."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from mcp_types.version import LATEST_MODERN_VERSION as NEW

from tests.support.eventually import eventually
from tests.support.mcp_http import ANN, BOB
from tests.support.relayed import HELLO, relayed_to
from tests.surfaces.proxy.test_http import served
from transports.mcp._servers import HttpServer

LARGE_IMAGE = {"type": "image", "data": base64.b64encode(bytes(100_000)).decode(), "mimeType": "image/png"}
FILE_TOOL = {"name": "up", "inputSchema": {"properties": {"file": {"type": "string", "x-mcp-file": {}}}}}
Call = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def answer(message: dict[str, Any], result: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@asynccontextmanager
async def upstream(
    call: Call, tools: object = (), session: Callable[[], str] = lambda: "of-the-server"
) -> AsyncIterator[HttpServer]:
    """A server with sessions whose calls ``call`` answers. ``tools`` are its tools, or give them for each request."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return await call(request, {})
        message = await request.json()
        match message.get("method"):
            case "initialize":
                described = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "u"}}
                return web.json_response(answer(message, described), headers={"Mcp-Session-Id": session()})
            case "tools/list":
                return web.json_response(answer(message, {"tools": tools() if callable(tools) else tools}))
            case "tools/call" | "notifications/cancelled":
                return await call(request, message)
        return web.Response(status=202)

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield HttpServer(f"http://127.0.0.1:{runner.addresses[0][1]}/mcp", {"X-Api-Key": "of-the-operator"})
    finally:
        await runner.cleanup()


class Http:
    """A client over HTTP."""

    def __init__(self, http: httpx2.AsyncClient, url: str, session: str) -> None:
        self.http, self.url = http, url
        self.headers = {"Authorization": f"Bearer {ANN}", "Mcp-Session-Id": session}

    async def post(self, method: str, identity: object = 1, **params: object) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        return await self.http.post(self.url, json=message, headers=self.headers)

    async def call(self, tool: str = "t", identity: object = 1, **arguments: object) -> list[dict[str, Any]]:
        """The messages of the response to a call."""
        return messages_of(await self.post("tools/call", identity, name=tool, arguments=arguments))


def messages_of(response: httpx2.Response) -> list[dict[str, Any]]:
    if not response.headers["content-type"].startswith("text/event-stream"):
        return [response.json()]
    lines = response.text.splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]


@asynccontextmanager
async def over_http(server: HttpServer, folder: Path, **options: Any) -> AsyncIterator[Http]:
    async with served(folder, server, **options) as url, httpx2.AsyncClient(timeout=60) as http:
        client = Http(http, url, "")
        opened = await client.post("initialize", **HELLO)
        client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        await client.post("tools/list")
        yield client


async def image_of(_: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(answer(message, {"content": [LARGE_IMAGE]}))


# --- a reverse proxy --------------------------------------------------------------------------------------------------


async def test_reverse_proxy_forwards_headers_but_not_credentials(tmp_path: Path) -> None:
    seen: list[web.Request] = []

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        seen.append(request)
        headers = {"X-Of-Server": "yes", "Set-Cookie": "a=b"}
        return web.json_response(answer(message, {"content": []}), status=201, headers=headers)

    async with upstream(call) as server, over_http(server, tmp_path) as client:
        client.headers |= {"X-Of-Client": "yes", "Cookie": "c=d", "Mcp-Name": "t", "X-Api-Key": "of-the-client"}
        await client.post("tools/call", name="t")  # its answer sets a cookie
        seen.clear()
        response = await client.post("tools/call", name="t")
        assert response.status_code == 201 and response.headers["x-of-server"] == "yes"
        assert "set-cookie" not in response.headers
        (request,) = seen
        assert request.headers["X-Of-Client"] == "yes" and request.headers["Mcp-Name"] == "t"
        assert request.headers["Mcp-Session-Id"] == "of-the-server"
        assert request.headers["X-Api-Key"] == "of-the-operator"
        assert "Authorization" not in request.headers and "Cookie" not in request.headers


async def test_large_images_in_bodies_and_events_become_links(tmp_path: Path) -> None:
    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message["params"]["name"] == "body":
            return await image_of(request, message)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
        await response.write(f"id: 1\nretry: 7\ndata: {json.dumps(note)}\n\n".encode())
        final = json.dumps(answer(message, {"content": [LARGE_IMAGE]}), indent=1).replace("\n", "\ndata: ")
        await response.write(f"id: 2\ndata: {final}\n\n".encode())
        return response

    async with upstream(call) as server, over_http(server, tmp_path) as client:
        (body,) = await client.call("body")
        response = await client.post("tools/call", name="events", arguments={})
        assert response.headers["x-accel-buffering"] == "no"  # nginx would hold the events back
        note, event = messages_of(response)
        assert note["params"]["data"] == 1 and "id: 1\nretry: 7\n" in response.text and "id: 2\n" in response.text
        for message in (body, event):
            (link,) = message["result"]["content"]
            (read,) = messages_of(await client.post("resources/read", uri=link["uri"]))
            assert base64.b64decode(read["result"]["contents"][0]["blob"]) == bytes(100_000)


async def test_http_error_of_server_becomes_request_error(tmp_path: Path) -> None:
    answers = [
        (503, "down for a rest", 503),
        (304, "", 502),
        (600, "beyond", 502),
        (401, "who?", 502),
        (307, "", 502),
        (307, "whereto?", 502),
        (400, '{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"bad"}}', 400),
        (404, '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"bad"}}', 404),
        (400, '{"error":{"code":-32000,"message":"bad"}}', 400),
        (404, "", 404),  # the session is lost
    ]
    opened: list[str] = []
    calls: list[int] = []

    def session() -> str:
        opened.append(str(len(opened)))
        return opened[-1]

    async def call(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
        calls.append(status)
        headers = {"Location": "http://elsewhere.example/"} if status == 307 and body == "" else {}
        return web.Response(status=status, text=body, headers=headers)

    async with (
        upstream(call, session=session) as server,
        over_http(server, tmp_path / "http") as client,
        relayed_to(server, tmp_path / "stdio") as stdio,
    ):
        for status, body, seen in answers:
            response = await client.post("tools/call", "seven", name="t")
            error = response.json()["error"]
            assert response.status_code == seen and response.json()["id"] == "seven"
            assert (body in error["message"] and str(status) in error["message"]) or error["message"] == "bad"
            assert status != 307 or body or "elsewhere.example" in error["message"]
            error = (await stdio.answer(stdio.ask("tools/call", name="t")))["error"]
            words = "has forgotten the session" if seen == 404 and not body else "bad" if "bad" in body else str(status)
            assert words in error["message"]
        # Nothing is sent twice, and each client opens its next session itself.
        assert len(calls) == 2 * len(answers) and len(opened) == 2


@pytest.mark.parametrize("refusal", [{"status": 404}, {"status": 400, "text": "No valid session ID provided"}], ids=str)
async def test_stdio_proxy_ends_when_server_loses_session(tmp_path: Path, refusal: dict[str, Any]) -> None:
    async def call(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
        return web.Response(**refusal)

    async with upstream(call) as server, relayed_to(server, tmp_path) as client:
        answer = await client.answer(client.ask("tools/call", name="t"))
        assert "has forgotten the session" in answer["error"]["message"]
        async with asyncio.timeout(30):
            assert await client.running == 1


async def test_http_session_rejects_other_users(tmp_path: Path) -> None:
    seen: list[web.Request] = []

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        seen.append(request)
        return web.json_response(answer(message, {"content": []})) if message else web.Response()

    async with upstream(call) as server, over_http(server, tmp_path) as client:
        of_bob = [("Authorization", f"Bearer {BOB}"), ("Mcp-Session-Id", "other")]
        of_ann = ("Mcp-Session-Id", client.headers["Mcp-Session-Id"])
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
        for headers in ([*of_bob[:1], of_ann], [*of_bob, of_ann], [*of_bob[:1], of_ann, ("MCP-Protocol-Version", NEW)]):
            assert (await client.http.post(client.url, json=message, headers=headers)).status_code == 404
            assert (await client.http.delete(client.url, headers=headers)).status_code == 404
        assert seen == []
        assert (await client.call())[0]["result"] == {"content": []}


async def test_least_recently_used_session_over_limit_is_ended(tmp_path: Path) -> None:
    ended: list[str] = []
    ids = map(str, range(100))

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        assert request.method == "DELETE"
        ended.append(request.headers["Mcp-Session-Id"])
        return web.Response()

    async with upstream(call, session=lambda: next(ids)) as server, over_http(server, tmp_path) as client:
        client.headers.pop("Mcp-Session-Id")
        async with asyncio.timeout(20):
            for _ in range(21):
                assert (await client.post("initialize", **HELLO)).status_code == 200
        await eventually(lambda: ended)
        assert ended == ["1"]  # "0" began with an empty session id, and does not count


async def test_disconnected_client_ends_its_server_request(tmp_path: Path) -> None:
    called, gone = asyncio.Event(), asyncio.Event()

    async def call(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        called.set()
        while request.transport is not None and not request.transport.is_closing():
            await asyncio.sleep(0.05)
        gone.set()
        return web.Response()

    async with upstream(call) as server, over_http(server, tmp_path) as client, asyncio.timeout(30):
        calling = asyncio.ensure_future(client.post("tools/call", name="t"))
        await called.wait()
        calling.cancel()
        await gone.wait()


# --- files of the client ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "shared", "is_sent"),
    [([], "", False), (["operator"], "", True), (["operator"], "elsewhere", False)],
)
async def test_http_proxy_sends_only_files_in_operator_and_client_roots(
    tmp_path: Path, allowed: list[str], shared: str, is_sent: bool
) -> None:
    inner = tmp_path / "operator" / "inner"
    for folder in (inner, tmp_path / "operator" / "other", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    (inner / "secret.txt").write_text("SECRET")

    async def call(_: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(answer(message, {"content": [], "got": message["params"]["arguments"]["file"]}))

    roots = [tmp_path / name for name in allowed]
    async with upstream(call, [FILE_TOOL]) as server, over_http(server, tmp_path / "s", roots=roots) as client:
        path = str(inner / "secret.txt")
        params = {"name": "up", "arguments": {"file": path}}
        message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
        async with client.http.stream("POST", client.url, json=message, headers=client.headers) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                received = json.loads(line[5:])
                if received.get("method") == "roots/list":
                    result = {"roots": [{"uri": (tmp_path / shared).as_uri()}]}
                    reply = {"jsonrpc": "2.0", "id": received["id"], "result": result}
                    assert (await client.http.post(client.url, json=reply, headers=client.headers)).status_code == 202
        assert received["id"] == 5
        assert received["result"]["got"].endswith(base64.b64encode(b"SECRET").decode()) is is_sent
        assert is_sent or received["result"]["got"] == path


async def test_clients_without_handshake_share_the_tools_of_their_user(tmp_path: Path) -> None:
    async def call(_: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message["params"]["arguments"].get("file", "").startswith("data:"):
            text = f"data: {json.dumps(answer(message, {'content': ['sent']}))}\n\n"
            return web.Response(text=text, content_type="text/event-stream")
        return web.json_response(answer(message, {"content": [LARGE_IMAGE]}))

    meta = {"io.modelcontextprotocol/protocolVersion": NEW}
    async with upstream(call, [FILE_TOOL]) as server, over_http(server, tmp_path) as client:
        del client.headers["Mcp-Session-Id"]
        client.headers["MCP-Protocol-Version"] = NEW
        await client.post("tools/list", _meta=meta)
        (message,) = await client.call()
        uri = message["result"]["content"][0]["uri"]
        (read,) = messages_of(await client.post("resources/read", uri=uri, _meta=meta))
        assert read["result"]["resultType"] == "complete" and read["result"]["contents"][0]["uri"] == uri
        assert [message["result"] for message in await client.call("up", file=uri)] == [{"content": ["sent"]}]
        (refused,) = await client.call("up", 7, file=f"{uri}-gone")
        assert refused["id"] == 7 and refused["error"]["data"]["code"] == "ARTIFACT_NOT_FOUND"


# --- odd answers ------------------------------------------------------------------------------------------------------


async def broken_stream(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    if request.method != "POST":
        return web.Response(status=405)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write('id: é\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n'.encode())
    assert request.transport is not None
    request.transport.close()
    return response


ODD = {
    "deep": '{"jsonrpc":"2.0","id":@id,"result":{"a":' + "[" * 20_000 + "]" * 20_000 + "}}",
    "wide": '{"jsonrpc":"2.0","id":@id,"result":{"a":[' + "1," * 1_000_000 + "1]}}",
    "no message": "<html>a page of a proxy</html>",
    "page": "<html>\n<title>Sign in</title>",
    "nothing": "",
    "another request's": '{"jsonrpc":"2.0","id":"another","result":{}}',
}


async def test_stdio_call_gets_one_answer_for_odd_upstream_reply(tmp_path: Path) -> None:
    async def call(_: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        name = message["params"]["name"]
        text = ODD[name].replace("@id", json.dumps(message["id"]))
        return web.Response(text=text, content_type="text/html" if name == "page" else "application/json")

    async with upstream(call) as server, relayed_to(server, tmp_path) as client, asyncio.timeout(60):
        for case in ODD:
            error = (await client.answer(client.ask("tools/call", name=case)))["error"]
            assert case != "page" or error["message"].endswith(
                "/mcp sent no answer, but: <html> <title>Sign in</title>"
            )


async def test_broken_stream_becomes_request_error_over_stdio_and_ends_http_response(tmp_path: Path) -> None:
    async with (
        upstream(broken_stream) as server,
        relayed_to(server, tmp_path / "stdio") as client,
        over_http(server, tmp_path / "http") as http,
        asyncio.timeout(60),
    ):
        assert "error" in await client.answer(client.ask("tools/call", name="t"))
        assert client.other[0]["method"] == "notifications/message"
        (note,) = await http.call()
        assert note["method"] == "notifications/message"


async def test_malformed_tool_list_is_passed_through(tmp_path: Path) -> None:
    lists: list[object] = [None, 5, [None], [{"name": 5}], [{"name": "t", "inputSchema": []}]]
    listed = iter([[], *lists])
    async with (
        upstream(image_of, lambda: next(listed)) as server,
        relayed_to(server, tmp_path) as client,
        asyncio.timeout(60),
    ):
        for tools in lists:
            assert await client.request("tools/list") == {"tools": tools}
            assert (await client.call("t"))["content"][0]["type"] == "resource_link"


async def test_stream_resumes_from_last_event_id(tmp_path: Path) -> None:
    waiting: list[dict[str, Any]] = []
    faults = iter([503])  # of a gateway

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if request.method == "POST":
            waiting.append(message)
            return await broken_stream(request, message)
        if request.headers.get("Last-Event-ID") is None:
            return web.Response(status=405)
        fault = next(faults, None)
        if fault is not None:
            return web.Response(status=fault)
        last_id = request.headers["Last-Event-ID"].encode("utf-8", "surrogateescape").decode()
        text = f"id: 2\ndata: {json.dumps(answer(waiting[0], {'last': last_id}))}\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    async with upstream(call) as server, relayed_to(server, tmp_path) as client, asyncio.timeout(60):
        assert await client.request("tools/call", name="t") == {"last": "é"}


async def test_gateway_fault_does_not_end_listening_and_session_ends_with_the_proxy(tmp_path: Path) -> None:
    numbers = iter([1, None, 2])
    told = asyncio.Event()
    ended: list[str] = []

    async def call(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        if request.method == "DELETE":
            ended.append(request.headers["Mcp-Session-Id"])
            return web.Response(status=405)
        number = next(numbers, None)
        if number is None:
            return web.Response(status=502, text="<html>")
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"retry: 100\ndata: {json.dumps(note)}\n\n".encode())
        if number == 2:
            await told.wait()
        return response

    async with upstream(call) as server, relayed_to(server, tmp_path) as client, asyncio.timeout(60):
        await client.until(lambda: len(client.other) == 2)
        told.set()
        assert ended == []
    assert [message["params"]["data"] for message in client.other] == [1, 2] and ended == ["of-the-server"]


async def test_event_stream_with_odd_prefix_is_parsed(tmp_path: Path) -> None:
    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        head = message["params"]["name"]
        text = f"{head}data: {json.dumps(answer(message, {'text': 'é'}), ensure_ascii=False)}\n\n"
        return web.Response(body=text.encode(), headers={"Content-Type": "text/event-stream; charset=iso-8859-1"})

    async with upstream(call) as server, relayed_to(server, tmp_path) as client:
        for head in ("\ufeff", "retry: 0\n", f"retry: {'9' * 4000}\n", "retry: -1\n"):
            assert await client.request("tools/call", name=head) == {"text": "é"}


async def test_zero_retry_delay_does_not_cause_busy_polling(tmp_path: Path) -> None:
    waiting: list[dict[str, Any]] = []
    times: list[float] = []

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        text = "id: 1\nretry: 0\ndata:\n\n"
        if request.method == "POST":
            waiting.append(message)
        elif request.headers.get("Last-Event-ID") is None:
            return web.Response(status=405)
        elif len(times) == 3:
            text += f"data: {json.dumps(answer(waiting[0], {}))}\n\n"
        times.append(time.monotonic())
        return web.Response(text=text, content_type="text/event-stream")

    async with upstream(call) as server, relayed_to(server, tmp_path) as client, asyncio.timeout(60):
        assert await client.request("tools/call", name="t") == {}
    assert len(times) == 4 and min(later - earlier for earlier, later in pairwise(times)) >= 0.09


async def test_non_ascii_session_id_fails_handshake(tmp_path: Path) -> None:
    async with upstream(image_of, session=lambda: "é") as server:
        with pytest.raises(AssertionError, match="not ASCII"):
            async with relayed_to(server, tmp_path):
                pass


async def test_stdio_call_cancellation_reaches_server(tmp_path: Path) -> None:
    called, cancelled = asyncio.Event(), asyncio.Event()

    async def call(_: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message["method"] == "notifications/cancelled":
            assert message["params"]["requestId"] == identity
            cancelled.set()
            return web.Response(status=202)
        called.set()
        await cancelled.wait()
        return web.json_response(answer(message, {"content": []}))

    async with upstream(call) as server, relayed_to(server, tmp_path) as client, asyncio.timeout(60):
        identity = client.ask("tools/call", name="t")
        await called.wait()
        client.send({"method": "notifications/cancelled", "params": {"requestId": identity}})
        assert (await client.answer(identity))["result"] == {"content": []}


async def test_many_sessions_of_one_user_do_not_affect_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports.surfaces.mcp.proxy._reverse._MAX_SESSIONS", 3)
    sent: list[str] = []

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        sent.append(message["params"]["arguments"].get("file", ""))
        return await image_of(request, message)

    async with upstream(call, [FILE_TOOL]) as server, over_http(server, tmp_path) as client:
        (message,) = await client.call()
        uri = message["result"]["content"][0]["uri"]
        for number in range(4):
            headers = {"Authorization": f"Bearer {BOB}", "Mcp-Session-Id": str(number)}
            note = {"jsonrpc": "2.0", "method": "notifications/odd"}
            await client.http.post(client.url, json=note, headers=headers)
        await client.call("up", file=uri)
        assert sent[-1].startswith("data:image/png")


async def test_proxy_users_share_no_artifacts(tmp_path: Path) -> None:
    async with upstream(image_of) as server, over_http(server, tmp_path) as client:
        (message,) = await client.call()
        client.headers = {"Authorization": f"Bearer {BOB}"}
        read = await client.post("resources/read", uri=message["result"]["content"][0]["uri"])
        assert (read.status_code, read.content) == (202, b"")  # from the server, which may have artifacts as well
