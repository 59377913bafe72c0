"""MCP servers as others write them: PHP, .NET, FastMCP, older drafts. What is meant arrives; what is bad is named."""

from __future__ import annotations

import asyncio
import base64
import gzip
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.eventually import eventually
from tests.support.mcp_servers import FOLDER, configured
from tests.support.raw_server import hang, listening
from transports import CapabilityError, Disconnected, ElicitationRequest, Notification, Session, UsageError, connect
from transports.errors import ABPError, ConnectFailed, ProtocolError
from transports.mcp._transport import OfferedResources
from transports.routing import Result

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "canned", "version": "1"},
}
#: What each result of protocol 2026-07-28 has.
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MODERN = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "m", "version": "1"},
    **COMPLETE,
}


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(90)
PICTURE = base64.b64encode(PNG).decode()
WORDS = {"type": "text", "text": "wörds"}
#: Results of a server with one tool, by the method of the request.
RESULTS: dict[str, Any] = {
    "initialize": INITIALIZE,
    "tools/list": {"tools": [{"name": "go", "inputSchema": {}}]},
    "tools/call": {"content": [WORDS]},
}


def canned(folder: Path, **said: Any) -> str:
    """The target of a server that answers so."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in said.get("results", {})]
    file = folder / "said.json"
    file.write_text(json.dumps({"initialize": INITIALIZE, "tools": tools, **said}))
    return f"mcp+stdio:{sys.executable} {FOLDER / 'canned.py'} {file}"


def serving(answer: Callable[[web.Request], Any], **options: Any) -> TestServer:
    """A server over HTTP that answers so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return TestServer(app, **options)


@asynccontextmanager
async def served(answer: Callable[[web.Request], Any], **options: Any) -> AsyncIterator[Session]:
    """A session with such a server."""
    options = {"store": "memory:", "timeout": 10, **options}
    async with serving(answer) as server, connect(f"mcp+{server.make_url('/mcp')}", **options) as session:
        yield session


async def content(app: Session, result: Result) -> list[bytes]:
    return [await app.store.get(ref) for place, ref in result.artifacts.items() if place]


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_tools_with_bad_schemas_can_be_called_and_omitted_ones_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schemas: list[object] = [
        {"type": "object", "properties": []},
        {"type": "object", "properties": None},
        {"type": "object", "properties": {"x": True, "y": []}},
        {"type": "object", "required": "x"},
        {"type": "object", "required": [1, "x"]},
        {"type": "object", "$schema": None},
        {"type": "string"},
        [],
        None,
    ]
    named = {json.dumps(schema): schema for schema in (*schemas, {})}
    tools = [{"name": name, "inputSchema": schema, "outputSchema": schema} for name, schema in named.items()]
    invalid = ["words", {"name": "bad", "inputSchema": {}, "annotations": 5}]
    results = {name: {"content": [WORDS]} for name in named}
    async with connect(canned(tmp_path, tools=[*invalid, *tools], results=results), store=tmp_path / "out") as app:
        assert {*app.capabilities} == named.keys()
        for name in named:
            assert (await app.call(name)).data == {"content": [WORDS]}, name
    assert "left out a tool that is not an object: 'words'" in caplog.messages
    assert any(
        said.startswith("left out the tool 'bad', which is not valid MCP: annotations:") for said in caplog.messages
    )


@pytest.mark.parametrize(
    ("cursors", "more"),
    [
        ([1, 2], {}),
        (["1", "2", ""], {}),
        (["1", "2", "2"], {}),
        (["", "2"], {"server/discover": MODERN, "always": COMPLETE}),
    ],
    ids=json.dumps,
)
async def test_list_cursors_of_all_kinds_lead_to_its_end(
    tmp_path: Path, cursors: list[object], more: Mapping[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    pages = [[{"name": name, "inputSchema": {"type": "object"}}] for name in "abc"]
    async with connect(canned(tmp_path, pages=pages, cursors=cursors, **more), store="memory:") as app:
        assert [*app.capabilities] == ["a", "b", "c"]
    assert caplog.messages == []  # no list without an end


async def test_list_of_resources_ends_at_a_repeated_cursor_and_has_what_is_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    initialize = {**INITIALIZE, "capabilities": {"resources": {}}}
    resources = [{"uri": 5}, {"name": "no address"}, {"uri": "x://a", "name": "A", "size": "big"}, {"uri": "x://b"}]
    target = canned(tmp_path, initialize=initialize, resources=resources, cursor="again")
    async with connect(target, store="memory:") as app:
        assert {resource.uri for resource in await app.resources.list()} >= {"x://b"}
    assert all("it is left out" in message for message in caplog.messages), caplog.messages


async def test_views_may_read_what_any_page_or_template_of_the_server_offers() -> None:
    pages: dict[tuple[str, str | None], Mapping[str, object]] = {
        ("resources/list", None): {"resources": ["words", {"uri": "x://a"}, {"uri": 5}], "nextCursor": "2"},
        ("resources/list", "2"): {"resources": [{"uri": "x://b", "name": "b"}]},
        ("resources/templates/list", None): {
            "resourceTemplates": [{"uriTemplate": "x://{"}, {"uriTemplate": "t://{name}"}]
        },
    }

    async def list_page(method: str, cursor: str | None) -> Mapping[str, object]:
        return pages[method, cursor]

    offered = OfferedResources(list_page)
    for uri in ("x://a", "x://b", "t://anything"):
        await offered.require(uri)
    assert await offered.entry("x://b") == {"uri": "x://b", "name": "b"} and await offered.entry("x://z") is None
    for bad in ("x://z", "x://{", 5, "x://" + "b" * 100_000):
        with pytest.raises(CapabilityError, match="does not offer"):
            await offered.require(bad)


async def test_view_uri_must_use_ui_scheme(tmp_path: Path) -> None:
    uris = ("https://evil.example/view.html", "file:///etc/passwd", 7, "ui://" + "x" * 3000)
    tools = [
        {"name": f"tool {number}", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": uri}}}
        for number, uri in enumerate(uris)
    ]
    async with connect(canned(tmp_path, tools=tools), store="memory:") as app:
        assert [capability.view for capability in app.capabilities.values()] == [None] * 4
        for name in app.capabilities:
            with pytest.raises(UsageError, match="has no view"):
                app.open_view(name)


async def test_resource_is_kept_for_the_time_that_the_server_says(tmp_path: Path) -> None:
    modern = {**MODERN, "capabilities": {"resources": {}}}
    first, second = PNG + b"1", PNG + b"2"
    versions = [
        {"uri": "x://picture", "mimeType": "image/png", "blob": base64.b64encode(version).decode()}
        for version in (first, second)
    ]
    for milliseconds, expected in ((60_000, first), (50, second)):
        always = {**COMPLETE, "ttlMs": milliseconds}
        target = canned(tmp_path, **{"server/discover": modern}, documents={"x://picture": versions}, always=always)
        async with connect(target, store=tmp_path / "out") as app:
            await app.resources.read("x://picture")
            await asyncio.sleep(0.1)
            result = await app.resources.read("x://picture")
            assert await content(app, result) == [expected]


# --- handshakes and lines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "tools"),
    [
        ({"initialize": {**INITIALIZE, "capabilities": {"tools": [], "logging": True, "prompts": None}}}, ["go"]),
        ({"initialize": {**INITIALIZE, "capabilities": []}}, []),
        ({"prefix": "\ufeff"}, ["go"]),
        ({"prefix": "\x1b]0;npx server\x07"}, ["go"]),
        ({"strict": True}, ["go"]),
        ({"eager": True}, ["go"]),
        ({"loose": True}, ["go"]),
    ],
    ids=ascii,
)
async def test_odd_handshake_is_understood(tmp_path: Path, said: Mapping[str, Any], tools: list[str]) -> None:
    """Types other than objects, text before an answer on its line, ``initialize`` wanted as the first message, ids that
    are floats with a last answer that has no line end."""
    target = canned(tmp_path, results={"go": {"content": [WORDS]}}, **said)
    async with connect(target, store="memory:", timeout=20) as app:
        assert [*app.capabilities] == tools
        assert (await app.call("go")).data == {"content": [WORDS]}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"serverInfo": {"name": "s"}}, "serverInfo.version is missing"),
        ({"capabilities": {"tools": 5}}, "capabilities.tools"),
    ],
)
async def test_invalid_handshake_error_names_field(tmp_path: Path, change: dict[str, object], place: str) -> None:
    target = canned(tmp_path, initialize={**INITIALIZE, **change}, results={})
    with pytest.raises(ConnectFailed, match=place):
        await connect(target, store="memory:", timeout=20)


#: What a server does with a request: it gets the request, the message in it, and the usual answer to that.
Answer = Callable[[web.Request, dict[str, Any], dict[str, Any]], Any]


def answering(on: Mapping[str, Answer], results: Mapping[str, Any] = RESULTS) -> Callable[[web.Request], Any]:
    """A server over HTTP that gives its session an id. ``on`` has its answers by method, those of MCP and ``GET``;
    the usual ones are the ``results``."""

    async def serve(request: web.Request) -> web.StreamResponse:
        asked = json.loads(await request.read() or b"{}")
        method = asked.get("method", request.method)
        said = {"jsonrpc": "2.0", "id": asked.get("id"), "result": results.get(method)}
        if method in on:
            answer: Any = on[method](request, asked, said)
            if inspect.isawaitable(answer):
                answer = await answer
            assert isinstance(answer, web.StreamResponse)
            return answer
        if method in results:
            return web.json_response(said, headers={"Mcp-Session-Id": "s"})
        if request.method != "POST":
            return web.Response(status=405)
        return web.Response(status=404 if "id" in asked else 202)

    return serve


def calls(answer: Answer, *, headers: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Session]:
    """A session with a server that answers calls so."""
    return served(answering({"tools/call": answer}), headers=headers)


async def stream(request: web.Request, *pieces: str, **headers: str) -> web.StreamResponse:
    """Begin a stream of events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece.encode())
        await asyncio.sleep(0.02)
    return response


def cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


async def test_legacy_sse_server_is_named_in_error() -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return web.Response(status=405)
        return await stream(request, "event: endpoint\ndata: /messages?session=1\n\n")

    with pytest.raises(ConnectFailed, match=r"HTTP\+SSE transport of MCP 2024-11-05.*streamable HTTP"):
        async with served(serve):
            pass


async def test_silent_server_is_not_asked_again_after_the_timeout() -> None:
    async with listening(hang) as server:
        with pytest.raises(ConnectFailed, match="did not answer within 1 s"):
            await connect(f"mcp+{server.url}/mcp", store="memory:", timeout=1)
        assert server.connects == 1


REFUSAL = '{"jsonrpc": "2.0", "id": null, "error": {"code": %d, "message": "%s"}}'
#: How servers say that they have forgotten a session.
FORGOTTEN = [
    (404, ""),
    (400, REFUSAL % (-32000, "No valid session ID provided")),
    (401, "Unauthorized: Session not found"),
    (404, REFUSAL % (-32001, "Session not found")),
    (400, REFUSAL % (-32000, "Bad Request: Server not initialized")),
    (410, "<html>"),
]


@pytest.mark.parametrize("answers", [FORGOTTEN[:2], pytest.param(FORGOTTEN[2:], marks=pytest.mark.slow)])
async def test_split_sse_events_and_forgotten_session_are_handled(answers: list[tuple[int, str]]) -> None:
    """Each event follows a byte order mark, ends in two pieces, and leaves its stream open."""
    ended = asyncio.Event()
    left: list[tuple[int, str]] = []

    async def answer(request: web.Request, asked: dict[str, Any], said: dict[str, Any]) -> web.StreamResponse:
        if asked["method"] == "tools/call" and left:
            status, text = left.pop()
            return web.Response(status=status, text=text, content_type="application/json")
        response = await stream(request, f"\ufeffdata: {json.dumps(said)}\n", "\n", **{"Mcp-Session-Id": "s"})
        await ended.wait()
        return response

    async with served(answering(dict.fromkeys(RESULTS, answer)), timeout=5) as session:
        assert [*session.capabilities] == ["go"]
        for forgets in answers:
            left.append(forgets)
            result = await session.call("go", timeout=20)  # again: the forgotten session did not run it
            assert result.data == {"content": [WORDS]} and not left, forgets
        ended.set()


async def test_stream_that_ends_at_once_is_not_reopened_without_pause() -> None:
    opened: Counter[str] = Counter()

    def reopened(retry: str) -> Answer:
        def answer(*_: object) -> web.Response:
            opened[retry] += 1
            return web.Response(text=f"retry: {retry}\nid: 1\ndata:\n\n", content_type="text/event-stream")

        return answer

    began = time.monotonic()
    async with AsyncExitStack() as sessions:
        for retry in ("0", "-1", "000"):
            await sessions.enter_async_context(served(answering({"GET": reopened(retry)})))
        await eventually(lambda: len(opened) == 3 and min(opened.values()) > 2)
    seconds = time.monotonic() - began
    assert max(opened.values()) <= 15 * seconds + 3, opened


async def test_streams_outlast_balancers_and_gateways() -> None:
    """Balancers cut idle streams, and a gateway answers 502 while its server is restarted."""
    await asyncio.gather(resume_cut_streams(), report_changes_again())


async def resume_cut_streams() -> None:
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "back"}}
    ended = asyncio.Event()
    opened: Counter[str] = Counter()
    called: dict[str, Any] = {}

    async def cut_stream(request: web.Request) -> web.StreamResponse:
        response = await stream(request, "id: 7\nretry: 100\ndata:\n\n")  # where it can be resumed, and when
        cut(request)
        return response

    async def call(request: web.Request, asked: dict[str, Any], said: dict[str, Any]) -> web.StreamResponse:
        called.update(said)
        return await cut_stream(request)

    async def listen(request: web.Request, *_: object) -> web.StreamResponse:
        kind = "resumed" if called else "listening"
        opened[kind] += 1
        if opened[kind] <= 3:
            return await cut_stream(request)
        if opened[kind] <= 5:
            return web.Response(status=502)
        if called:
            return events(json.dumps(called))
        response = await stream(request, f"data: {json.dumps(log)}\n\n")
        await ended.wait()
        return response

    serve = answering({"GET": listen, "tools/call": call})
    async with served(serve) as session, session.events() as seen, asyncio.timeout(30):
        while not isinstance(event := await anext(seen), Notification):
            pass
        assert event.data == log["params"]
        assert (await session.call("go", timeout=20)).data == {"content": [WORDS]}
        ended.set()


async def report_changes_again() -> None:
    opened = 0

    def listen(_: web.Request, asked: dict[str, Any], __: object) -> web.Response:
        nonlocal opened
        opened += 1
        if opened == 2:
            return web.Response(status=502)
        meta = {"io.modelcontextprotocol/subscriptionId": asked["id"]}
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        return events(
            json.dumps({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
        )

    results = {"server/discover": MODERN, "tools/list": {"tools": []}}
    async with served(answering({"subscriptions/listen": listen}, results)):
        await eventually(lambda: opened >= 3)


def form(**fields: object) -> dict[str, Any]:
    return {"message": "Really?", "requestedSchema": {"type": "object", "properties": fields}}


TEXT_FIELD = {"type": "string"}
LINK = {"mode": "url", "message": "Sign in", "url": "https://a.test/", "elicitationId": "1"}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
SAID = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
DECLINED = {"action": "decline"}
NO_MESSAGE = {"code": -32602, "message": "the client's answer is not a message"}
NOT_SAMPLED = {"code": -1, "message": "the client declined to sample"}
#: Parameters of a question, as what they arrive, what the program answers, and what the server learns.
QUESTIONS: list[tuple[dict[str, Any], str, object, object]] = [
    (form(), "confirm", {"confirmed": True}, {"action": "accept", "content": {}}),
    (form(), "confirm", {"confirmed": False}, DECLINED),
    (LINK, "confirm", {"confirmed": True}, {"action": "accept"}),
    (LINK, "confirm", None, DECLINED),
    (form(name=TEXT_FIELD), "input", {"value": "Ada"}, {"action": "accept", "content": {"name": "Ada"}}),
    (form(name=TEXT_FIELD), "input", {"value": {"name": {"first": "Ada"}}}, DECLINED),
    (form(name=TEXT_FIELD, age=TEXT_FIELD), "input", {"value": "Ada"}, DECLINED),
    (SAMPLING, "create", {"result": "hello"}, {**SAID, "model": "unknown"}),
    (SAMPLING, "create", {"result": SAID}, SAID),
    (SAMPLING, "create", {"result": {"role": "singer"}}, NO_MESSAGE),
    (SAMPLING, "create", {"result": 7}, NOT_SAMPLED),
]


async def test_questions_of_each_kind_and_their_answers_are_translated(tmp_path: Path) -> None:
    methods = {"create": "sampling/createMessage"}
    questions = [
        {"method": methods.get(kind, "elicitation/create"), "params": params} for params, kind, *_ in QUESTIONS
    ]
    asked: list[str] = []

    def answer(request: ElicitationRequest) -> Mapping[str, object]:
        asked.append(request.method.partition("/")[2])
        return {"success": True, "data": QUESTIONS[len(asked) - 1][2]}

    target = canned(tmp_path, results={"go": {}}, questions=questions)
    async with connect(target, store="memory:", timeout=20, on_elicitation=answer) as app:
        for params, _, answered, learned in QUESTIONS:
            assert (await app.call("go")).data == {"answered": learned}, (params, answered)
    assert asked == [kind for _, kind, *_ in QUESTIONS]


async def test_default_of_a_form_is_offered_unless_it_agrees_to_something(tmp_path: Path) -> None:
    forms = [form(name={**TEXT_FIELD, "default": "Bob"}), form(sure={"type": "boolean", "default": True})]
    questions = [{"method": "elicitation/create", "params": params} for params in forms]
    target = canned(tmp_path, results={"go": {}}, questions=questions)
    async with connect(target, store="memory:", timeout=20) as app:
        answers = [(await app.call("go")).data for _ in forms]
    assert answers == [{"answered": {"action": "accept", "content": {"name": "Bob"}}}, {"answered": DECLINED}]


EVENTS = "text/event-stream"


def body(
    text: str | bytes, *, status: int = 200, coding: str = "identity", kind: str = "application/json"
) -> web.Response:
    data = text.encode() if isinstance(text, str) else text
    return web.Response(body=data, status=status, headers={"Content-Type": kind, "Content-Encoding": coding})


def words(text: str | bytes, **options: Any) -> Answer:
    """This text, whatever is asked."""
    return lambda *_: body(text, **options)


def events(*data: str) -> web.Response:
    return web.Response(text="".join(f"data: {item}\n\n" for item in data), content_type="text/event-stream")


def said_as(content_type: str, text: str = "{}") -> Answer:
    """The usual answer, as text of a type."""
    return lambda request, asked, said: web.Response(text=text.format(json.dumps(said)), content_type=content_type)


READ: dict[str, Answer] = {
    "list": lambda request, asked, said: body(json.dumps([said])),
    "list with notification": lambda request, asked, said: body(json.dumps([{"jsonrpc": "2.0", "method": "x"}, said])),
    "float id": lambda request, asked, said: body(json.dumps({**said, "id": float(asked["id"])})),
    "byte order mark": lambda request, asked, said: body("\ufeff" + json.dumps(said)),
    "event with float id": lambda request, asked, said: web.Response(
        text=f"id: 1\ndata: {json.dumps({**said, 'id': float(asked['id'])})}\n\n", content_type="text/event-stream"
    ),
    "text": said_as("text/plain"),
    "other JSON type": said_as("application/vnd.mcp+json"),
    "encoding of characters": lambda request, asked, said: body(json.dumps(said), coding="UTF-8"),
    "events of other kinds": lambda request, asked, said: events(
        "ping", "[DONE]", '{"type": "ping"}', '"beat"', json.dumps(said)
    ),
    "other JSON-RPC": lambda request, asked, said: events(
        '{"jsonrpc": "2.0", "method": "x", "params": [1]}', json.dumps(said)
    ),
    "list in an event": lambda request, asked, said: events(json.dumps([said])),
    "another encoding": lambda request, asked, said: web.Response(
        body=f"data: {json.dumps(said, ensure_ascii=False)}\n\n".encode(),
        headers={"Content-Type": "text/event-stream; charset=iso-8859-1"},
    ),
    "no last line": said_as("text/event-stream", "data: {}"),
    "no last line, byte order mark": said_as("text/event-stream", "\ufeffdata: {}"),
}


async def test_odd_http_answer_is_read() -> None:
    """By a server that closes the connection of an unknown request."""
    answers = iter(READ.values())

    async def close(request: web.Request, *_: object) -> web.Response:
        cut(request)
        return web.Response()

    serve = answering({"tools/call": lambda *of_call: next(answers)(*of_call), "server/discover": close})
    async with served(serve) as session:
        for kind in READ:
            assert (await session.call("go", timeout=20)).data == {"content": [WORDS]}, kind


async def test_notifications_may_be_those_of_other_libraries(caplog: pytest.LogCaptureFixture) -> None:
    levels: list[object] = []

    def answer(_: web.Request, asked: dict[str, Any], said: object) -> web.Response:
        progress = {"progressToken": asked["params"]["_meta"]["progressToken"], "progress": "half"}
        sent: list[dict[str, Any]] = [
            {"method": "notifications/message", "params": {"level": level, member: level}}
            for level, member in (("warn", "data"), ("ERROR", "message"), ("loud", "data"))
        ]
        sent += [{"method": "notifications/progress", "params": progress}] * 2
        return events(*(json.dumps({"jsonrpc": "2.0", **message}) for message in sent), json.dumps(said))

    def note_level(notification: Notification) -> None:
        assert isinstance(notification.data, dict)
        levels.append((notification.data["level"], notification.data["data"]))

    async with served(answering({"tools/call": answer}), on_notification=note_level) as session:
        assert (await session.call("go", timeout=20)).data == {"content": [WORDS]}
        await eventually(lambda: len(levels) == 3)
    assert levels == [("warning", "warn"), ("error", "ERROR"), ("info", "loud")]
    (left_out,) = [message for message in caplog.messages if "progress" in message]
    assert left_out.startswith("left out notifications/progress of the server, and more such: params.progress: Input")


async def test_broken_connection_ends_one_call_only() -> None:
    """A balancer that closes idle connections breaks one of those to a server. The session and other calls go on."""
    handshakes: list[object] = []
    arrived, broken = asyncio.Event(), asyncio.Event()
    ways = iter(["at once", "in the stream", "in the body"])

    async def call(request: web.Request, asked: dict[str, Any], said: dict[str, Any]) -> web.StreamResponse:
        if asked["params"]["name"] == "go":
            arrived.set()
            await broken.wait()
            return web.json_response(said)
        await arrived.wait()
        way = next(ways)
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        if way == "in the stream":
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if way != "at once":
            await response.prepare(request)
            await response.write(b": ping")
        cut(request)
        return response

    def greet(_: web.Request, asked: dict[str, Any], said: dict[str, Any]) -> web.Response:
        handshakes.append(asked)
        return web.json_response(said, headers={"Mcp-Session-Id": "s"})

    tools: list[object] = [{"name": name, "inputSchema": {}} for name in ("break", "go")]
    serve = answering({"initialize": greet, "tools/call": call}, {**RESULTS, "tools/list": {"tools": tools}})
    async with served(serve) as session, asyncio.TaskGroup() as tasks:
        other_call = tasks.create_task(session.call("go", timeout=20))
        for _ in range(3):
            with pytest.raises(Disconnected, match="it may have run"):
                await session.call("break", timeout=20)
        broken.set()
        assert (await other_call).data == {"content": [WORDS]} and len(handshakes) == 1


@pytest.mark.parametrize("hints", [{}, {"ttlMs": 1.5, "cacheScope": "org"}], ids=json.dumps)
async def test_members_that_2026_07_28_requires_may_be_missing(hints: Mapping[str, object]) -> None:
    results: dict[str, Any] = {
        "server/discover": {**MODERN, "capabilities": {"tools": {}, "resources": {}}},
        "tools/list": {"tools": [{"name": "go", "inputSchema": {}}]},
        "tools/call": {"content": [WORDS]},
        "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
        "resources/read": {"contents": [{"uri": "x://a", "text": "A"}]},
    }
    serve = answering({}, {method: hints | result for method, result in results.items()})
    async with served(serve) as session:
        assert (await session.call("go")).data == {"content": [WORDS]}
        assert [resource.uri for resource in await session.resources.list()] == ["x://a"]
        assert (await session.resources.read("x://a")).data == {"contents": [{"uri": "x://a", "text": "A"}]}


async def test_server_of_a_later_version_is_named() -> None:
    fault = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2027-01-01"]}}

    async def serve(request: web.Request) -> web.Response:
        return body(error(json.loads(await request.read()), error=fault), status=400)

    with pytest.raises(ConnectFailed, match="Unsupported protocol version; it supports 2027-01-01 only"):
        async with served(serve):
            pass


async def test_call_waits_for_a_server_that_is_restarted() -> None:
    """The request was not sent, so it is sent again."""
    results = {
        "server/discover": MODERN,
        "tools/list": {**RESULTS["tools/list"], **MODERN},
        "tools/call": {"content": [WORDS], "resultType": "complete"},
    }

    serve = answering({}, results)
    async with AsyncExitStack() as stack:
        async with serving(serve) as first:
            target, port = f"mcp+{first.make_url('/mcp')}", first.port
            session = await stack.enter_async_context(connect(target, store="memory:", timeout=10))
        call = asyncio.create_task(session.call("go", timeout=20))
        await asyncio.sleep(0.2)
        await stack.enter_async_context(serving(serve, port=port))
        assert (await call).data == {"content": [WORDS]}


@asynccontextmanager
async def crowded(number: int) -> AsyncIterator[list[asyncio.Task[Result]]]:
    """``number`` calls of a session, which the server answers once all have arrived."""
    running: list[object] = []
    all_run = asyncio.Event()

    async def answer(_: web.Request, asked: dict[str, Any], said: dict[str, Any]) -> web.Response:
        running.append(asked)
        if len(running) == number:
            all_run.set()
        await all_run.wait()
        return web.json_response(said)

    async with asyncio.timeout(60), calls(answer) as session:
        yield [asyncio.create_task(session.call("go", timeout=40)) for _ in range(number)]


@pytest.mark.slow
async def test_more_calls_than_a_client_has_connections_run_at_once() -> None:
    async with crowded(110) as calls:  # of usual clients: 100
        assert [(await call).data for call in calls] == [{"content": [WORDS]}] * 110


async def test_session_closes_although_server_does_not_answer_its_end() -> None:
    never = asyncio.Event()

    async def wait(request: web.Request, *_: object) -> web.Response:
        await never.wait()
        return web.Response()

    async with serving(answering({"GET": wait, "DELETE": wait})) as server:
        async with asyncio.timeout(20), connect(f"mcp+{server.make_url('/mcp')}", store="memory:", timeout=10):
            pass
        never.set()


async def test_session_closes_while_answers_arrive() -> None:
    async with crowded(20) as calls:
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def test_server_that_sends_its_state_alone_is_asked_again(tmp_path: Path) -> None:
    """Servers of protocol 2026-07-28 answer so while they are still working."""
    complete = {"resultType": "complete", "content": [WORDS]}
    rounds = [*({"resultType": "input_required", "requestState": str(number)} for number in range(3)), complete]
    said = {"server/discover": MODERN, "results": {"go": rounds}, "always": COMPLETE}
    async with connect(canned(tmp_path, **said), store="memory:") as app:
        began = time.monotonic()
        assert (await app.call("go", timeout=20)).data == {"content": [WORDS]}
        assert time.monotonic() - began > 0.5  # 20 rounds must last long enough for the work


async def test_question_that_cannot_be_asked_fails_its_call_only(tmp_path: Path) -> None:
    large = form(**{f"f{n}": TEXT_FIELD for n in range(3000)})
    questions = [
        ({"method": "sampling/createMessage", "params": SAMPLING}, CapabilityError, "Sampling not supported"),
        ({"method": "elicitation/create", "params": large}, ProtocolError, "many"),
    ]
    rounds = [{"resultType": "input_required", "inputRequests": {"q": question}} for question, *_ in questions]
    results = {"go": [*rounds, {**COMPLETE, "content": [WORDS]}]}
    target = canned(tmp_path, results=results, always=COMPLETE, **{"server/discover": MODERN})
    async with connect(target, store="memory:") as app:
        for _, kind, says in questions:
            with pytest.raises(kind, match=says):
                await app.call("go", timeout=20)
        assert (await app.call("go", timeout=20)).data == {"content": [WORDS]}


@pytest.mark.parametrize("modern", [False, True])
async def test_server_without_reports_of_changes_refuses_a_subscription_each_time(tmp_path: Path, modern: bool) -> None:
    able: dict[str, Any] = {"capabilities": {"resources": {}}}
    said = {"server/discover": {**MODERN, **able}} if modern else {"initialize": {**INITIALIZE, **able}}
    async with connect(canned(tmp_path, **said, results={}), store="memory:") as app:
        for _ in range(2):
            with pytest.raises(ABPError) as refused:
                await app.resources.subscribe("x://a")
            assert refused.value.code == "NOT_SUPPORTED"


def error(asked: dict[str, Any], **fields: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **fields})


def answer_error(odd: object, _: web.Request, asked: dict[str, Any], said: object) -> web.Response:
    return body(error(asked, error=odd))


#: What servers put in the place of an error, and what is shown of it.
ERRORS: list[tuple[object, str]] = [
    ("just text", "just text"),
    ({"code": "E_DISK", "message": "disk is full"}, "E_DISK: disk is full"),
    ({"message": "no code"}, "no code"),
    ({"code": 5, "reason": "own member"}, "own member"),
    ({"code": 1.5, "message": "half"}, "half"),
    (["odd"], "odd"),
    ({"code": -32000, "message": "no city"}, "no city"),
    ({"code": -32603, "message": "Internal error", "data": "disk is full"}, "go: Internal error: disk is full"),
    ({"code": -32603, "message": "", "data": {"why": ["disk"]}}, r'go: the server failed: {"why":\["disk"\]}'),
    ({"code": -32603, "message": "disk is full", "data": "disk is full"}, r"go: disk is full \["),
]
FAULTS: list[tuple[Answer, type[ABPError], str]] = [
    *((partial(answer_error, odd), CapabilityError, words) for odd, words in ERRORS),
    (lambda request, asked, said: body(error(asked, id=None, error="who asks")), CapabilityError, "who asks"),
    (lambda request, asked, said: body(error(asked, error="teapot"), status=418), CapabilityError, "teapot"),
    (words("<html>", status=500), CapabilityError, r"HTTP 500 Internal Server Error \["),
    (words("<html>", status=504), Disconnected, "HTTP 504 Gateway Timeout; it may have run"),
    (words("Bad\nHost", status=421), CapabilityError, r"HTTP 421 Misdirected Request: Bad Host \["),
    (words('{"error": "old"}', status=401), CapabilityError, '401 .*: {"error": "old"}; give he'),
    (lambda request, asked, said: refused(asked, 404, -32601, "Method not found"), CapabilityError, "Method not found"),
    (lambda request, asked, said: refused(asked, 400, -32602, "invalid argument"), CapabilityError, "invalid argument"),
    (lambda request, asked, said: body(json.dumps(said)[:-5]), ProtocolError, "an answer that cannot be read: .*JSON"),
    (words(""), ProtocolError, "an answer that cannot be read"),
    (words(gzip.compress(b"{}"), coding="gzip"), ProtocolError, "compressed its answer"),
    (words(gzip.compress(b"data: {}\n\n"), coding="gzip", kind=EVENTS), ProtocolError, "compressed its answer"),
    (words('{"message": "no key"}'), ProtocolError, 'not a JSON-RPC message: {"message": "no key"} '),
    (said_as("text/plain", "no key"), ProtocolError, "JSON is malformed: .*: no key; its type is text/plain"),
    (said_as("text/html", "<html>Sign in"), ProtocolError, "an answer that cannot be read: .*its type is text/html"),
]


def refused(asked: dict[str, Any], status: int, code: int, text: str) -> web.Response:
    return body(error(asked, error={"code": code, "message": text}), status=status)


async def test_http_fault_is_named_and_no_end_of_the_session() -> None:
    ended = asyncio.Event()
    handshakes: list[object] = []
    unreadable = ('[{"jsonrpc": "2.0", "id": %s}]', '{"jsonrpc": "2.0", "id": %s}')

    def greet(_: web.Request, asked: dict[str, Any], said: dict[str, Any]) -> web.Response:
        handshakes.append(asked)
        return web.json_response(said, headers={"Mcp-Session-Id": "s"})

    def leaving_open(text: str) -> Answer:
        async def answer(request: web.Request, asked: dict[str, Any], said: object) -> web.StreamResponse:
            response = await stream(request, f"data: {text % asked['id']}\n\n")
            await ended.wait()
            return response

        return answer

    answers = iter([*(fault for fault, _, _ in FAULTS), *map(leaving_open, unreadable)])
    serve = answering({"initialize": greet, "tools/call": lambda *of_call: next(answers)(*of_call)})
    async with served(serve) as session:
        for _, raised, words in FAULTS:
            with pytest.raises(raised, match=words) as failed:
                await session.call("go", timeout=20)
            assert words != "invalid argument" or failed.value.details["code"] == -32602
        try:
            for text in unreadable:
                with pytest.raises(ABPError) as failed:
                    await session.call("go", timeout=5)
                assert failed.value.code != "TIMEOUT", text
        finally:
            ended.set()
    assert len(handshakes) == 1


async def test_text_of_a_refusal_is_shown_without_secrets() -> None:
    key = "k3y-" * 100  # longer than the text that is shown
    refusals: Iterator[Answer] = iter(
        [
            lambda request, asked, said: web.Response(status=503, reason="a key is over its quota", text=key),
            lambda request, asked, said: body(f"this key is not valid: {key}", status=401),
            lambda request, asked, said: body(error(asked, error={"code": 5, "message": key, "data": {"a": [key]}})),
        ]
    )
    # A header may have a tab.
    async with calls(lambda *of_call: next(refusals)(*of_call), headers={"X-Key": key, "X-Words": "a\tb"}) as session:
        for words in ("is over its quota", "this key is not valid: …", "…"):
            with pytest.raises(CapabilityError, match=words) as refused:
                await session.call("go", timeout=20)
            assert "k3y" not in json.dumps(refused.value.as_dict())


async def test_refusal_of_busy_server_says_when_to_call_again() -> None:
    in_ten_minutes = formatdate(time.time() + 600, usegmt=True)
    refusals = iter([(429, "1"), (200, ""), (503, "9" * 5000), (503, in_ten_minutes)])

    def answer(request: web.Request, asked: object, said: dict[str, Any]) -> web.Response:
        status, delay = next(refusals)
        if status == 200:
            return web.json_response(said)
        return web.Response(status=status, headers={"Retry-After": delay})

    async with calls(answer) as session:
        # Status 429 says that the call has not run, so it is sent again.
        assert (await session.call("go", timeout=20)).data == {"content": [WORDS]}
        with pytest.raises(CapabilityError, match="HTTP 503 Service Unavailable") as busy:
            await session.call("go", timeout=20)
        assert busy.value.retryable and busy.value.retry_after == 1e9
        with pytest.raises(CapabilityError) as busy:
            await session.call("go", timeout=20)
        assert busy.value.retry_after == pytest.approx(600, abs=30)


async def test_a_redirect_is_not_followed_with_headers_or_messages() -> None:
    seen: list[tuple[str, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("X-Key")))
        if request.path == "/there":
            return web.Response(status=400)
        return web.Response(status=307, headers={"Location": str(there.make_url("/there"))})

    async with serving(answer) as here, serving(answer) as there:
        with pytest.raises(ABPError):
            await connect(f"mcp+{here.make_url('/mcp')}", headers={"X-Key": "k3y-value"}, timeout=2)
    assert seen and {path for path, _ in seen} == {"/mcp"}


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"command": "python server.py"}, "its command has a space: move its arguments to args"),
        ({"cwd": "/nosuch/folder"}, "its folder /nosuch/folder does not exist: correct cwd"),
        ({"env": {"A": "x\0my-secret"}}, "embedded null byte.*; correct its command and its variables"),
        ({"env": {"A=B": "my-secret"}}, "illegal environment variable name.*; correct its command and its variables"),
    ],
    ids=["command with arguments", "cwd", "null", "name of variable"],
)
async def test_server_that_cannot_be_started_says_what_to_correct(
    tmp_path: Path, change: dict[str, object], advice: str
) -> None:
    target = configured(tmp_path, {"a": {"command": sys.executable, "args": [], **change}})
    with pytest.raises(ConnectFailed, match=rf"^a cannot be started \(.*{advice}") as unstarted:
        await connect(target, store="memory:")
    assert "my-secret" not in unstarted.value.message


async def test_refusal_is_shown_if_second_start_takes_too_long(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-S", "-I", str(FOLDER / "rude.py"), "refusing", str(tmp_path)]}
    with pytest.raises(ConnectFailed, match="a cannot be connected: set API_KEY"):
        await connect(configured(tmp_path, {"a": server}), store="memory:", timeout=2)


# --- results ----------------------------------------------------------------------------------------------------------


async def test_bad_block_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    blocks: list[tuple[object, str]] = [
        ({"type": "image", "data": PICTURE}, "content.1: an image without mimeType"),
        ({"type": "audio", "mimeType": "audio/wav"}, "content.1: an audio without data"),
        ({"type": "video", "data": PICTURE, "mimeType": "video/mp4"}, "content.1: a block of unknown type 'video'"),
        ({"type": "resource"}, "content.1: a resource without resource"),
        ({"text": "no type"}, "content.1: a block without a type"),
        ({"type": "text"}, "content.1: a text without text"),
        ("plain words", "content.1: not a block but str"),
        (None, "content.1: not a block but NoneType"),
    ]
    more = {"type": "text", "text": "more"}
    said = [{"content": [WORDS, block, more]} for block, _ in blocks]
    async with connect(canned(tmp_path, results={"go": said}), store=tmp_path / "out") as app:
        for _, warning in blocks:
            result = await app.call("go")
            assert warning in result.warnings
            data: Any = result.data
            assert data["content"][0] == WORDS and data["content"][2]["text"] == "more", warning


STRUCTURED: list[Any] = [[1, 2, {"a": 3}], "deleted 3", 42, 0, False, {"a": 1}, {"result": "x"}]


async def test_structured_content_of_any_type_is_data(tmp_path: Path) -> None:
    said = []
    for value in STRUCTURED:
        text = value if isinstance(value, str) else json.dumps(value)
        for blocks in ([], [{"type": "text", "text": text}]):
            said.append({"content": blocks, "structuredContent": value, "resultType": "complete"})
    tools = [{"name": "go", "inputSchema": {"type": "object"}}]
    target = canned(tmp_path, **{"server/discover": MODERN}, tools=tools, results={"go": said}, always=COMPLETE)
    async with connect(target, store="memory:") as app:
        for value in (value for value in STRUCTURED for _ in range(2)):
            result = await app.call("go")
            assert result.data == value and type(result.data) is type(value)


async def test_structured_content_of_older_protocol_stays_beside_content_unless_it_has_it(tmp_path: Path) -> None:
    lists: list[Any] = [{"content": [WORDS], "structuredContent": [value]} for value in STRUCTURED]
    whole = {"content": [WORDS], "n": 1}
    said = [*lists, {"content": [WORDS], "structuredContent": whole}]
    async with connect(canned(tmp_path, results={"go": said}), store="memory:") as app:
        for expected in (*lists, whole):
            assert (await app.call("go")).data == expected


async def test_json_in_wrapped_text_is_read_like_text_block(tmp_path: Path) -> None:
    text = json.dumps({"ok": True, "shot": base64.b64encode(PNG * 20).decode()})
    said = [{"content": blocks, "structuredContent": {"result": text}} for blocks in ([], [{**WORDS, "text": text}])]
    async with connect(canned(tmp_path, results={"go": said}), store="memory:") as app:
        for _ in said:
            result = await app.call("go")
            assert await content(app, result) == [PNG * 20]
            data: Any = result.data
            assert data["result"]["ok"] is True


SCHEMA = {
    "type": "object",
    "properties": {"content": {"type": "string"}},
    "required": ["content"],
    "additionalProperties": False,
}


async def test_structured_content_is_validated_unmodified(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, object], tuple[str, ...]]] = [
        ({"content": [WORDS], "structuredContent": {"content": "words"}}, ()),
        ({"content": [WORDS, {**WORDS, "text": "other"}], "structuredContent": {"content": "words"}}, ()),
        ({"content": [], "structuredContent": {"content": 5}}, ('data.content: 5 is not of type "string"',)),
        ({"content": [WORDS]}, ("the answer has no structuredContent",)),
    ]
    tools = [{"name": "go", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}]
    results = {"go": [said for said, _ in cases]}
    async with connect(canned(tmp_path, tools=tools, results=results), store=tmp_path / "out") as app:
        for said, warnings in cases:
            assert (await app.call("go")).warnings == tuple(f"outputSchema: {text}" for text in warnings), said


async def test_lone_surrogate_is_replaced_with_warning(tmp_path: Path) -> None:
    said = (
        r'{"content": [{"type": "text", "text": "first"}, {"type": "text", "text": "cut \ud83d, whole \ud83d\ude00"}]}'
    )
    async with connect(canned(tmp_path, results={"go": said}), store="memory:") as app:
        result = await app.call("go")
    data: Any = result.data
    assert [block["text"] for block in data["content"]] == ["first", "cut \ufffd, whole \U0001f600"]
    assert result.warnings == ("half of a surrogate pair became U+FFFD",)


async def test_long_url_safe_base64_is_decoded(tmp_path: Path) -> None:
    files = [bytes(300_000) + b"\xfb\xff\xfe" * 50, b"\xfb\xff\xfe" * 100_000, bytes(300_000)]
    said = [
        {"content": [{"type": "image", "data": base64.urlsafe_b64encode(data).decode(), "mimeType": "image/png"}]}
        for data in files
    ]
    async with connect(canned(tmp_path, results={"go": said}), store="memory:") as app:
        for data in files:
            assert await content(app, await app.call("go")) == [data]


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_error_in_structured_content_only_is_shown(tmp_path: Path) -> None:
    errors: list[tuple[object, str]] = [
        ({"error": "database refused"}, "database refused"),
        ({"message": "quota is used up", "code": 42}, "quota is used up"),
        ({"error": {"message": "inner"}}, "inner"),
        ("only text", "only text"),
        ({"reason": 5}, '{"reason":5}'),
        ({}, "did not say why"),
    ]
    said = [{"isError": True, "content": [], "structuredContent": structured} for structured, _ in errors]
    async with connect(canned(tmp_path, results={"go": said}), store=tmp_path / "out") as app:
        for _, words in errors:
            with pytest.raises(CapabilityError, match=words):
                await app.call("go")


async def test_failed_tool_image_is_stored_with_its_error(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "no button"}, {"type": "image", "data": PICTURE, "mimeType": "image/png"}]
    target = canned(tmp_path, results={"go": {"isError": True, "content": blocks}})
    async with connect(target, store=tmp_path / "out") as app:
        with pytest.raises(CapabilityError, match="no button") as raised:
            await app.call("go")
        assert isinstance(raised.value.result, Result)
        assert await content(app, raised.value.result) == [PNG]


async def test_is_error_flag_may_be_a_string(tmp_path: Path) -> None:
    flags = [("false", False), ("true", True), (0, False), (1, True), (None, False)]
    said = [{"isError": flag, "content": [WORDS]} for flag, _ in flags]
    async with connect(canned(tmp_path, results={"go": said}), store=tmp_path / "out") as app:
        for flag, fails in flags:
            if fails:
                with pytest.raises(CapabilityError, match="wörds"):
                    await app.call("go")
            else:
                assert (await app.call("go")).data == {"content": [WORDS]}, flag


# --- parameters -------------------------------------------------------------------------------------------------------


async def test_large_picture_in_a_question_arrives_whole(tmp_path: Path) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * 200_000}
    asked = {"maxTokens": 1, "messages": [{"role": "user", "content": image}]}
    target = canned(tmp_path, results={"go": {}}, questions=[{"method": "sampling/createMessage", "params": asked}])

    def describe(question: ElicitationRequest) -> Mapping[str, object]:
        picture: Any = question.params
        return {"success": True, "data": {"result": str(len(picture["messages"][0]["content"]["data"]))}}

    async with connect(target, store="memory:", on_elicitation=describe) as app:
        data: Any = (await app.call("go", timeout=30)).data
        assert data["answered"]["content"]["text"] == "200000"


async def test_required_parameter_with_default_may_be_omitted(tmp_path: Path) -> None:
    inner = {"type": "object", "properties": {"b": {"default": 1}, "c": {}}, "required": ["b"]}
    schema = {
        "type": "object",
        "properties": {"type": {"default": "png"}, "in": inner, "x": {}},
        "required": ["type", "x"],
    }
    tools = [{"name": "go", "inputSchema": schema}]
    async with connect(canned(tmp_path, tools=tools, results={"go": {"content": [WORDS]}}), store="memory:") as app:
        await app.call("go", {"x": 1, "in": {}})
        with pytest.raises(UsageError, match='"x" is a required property'):
            await app.call("go", {})
