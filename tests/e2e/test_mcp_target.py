"""An MCP server as a target, in both protocol eras and over both of its transports; and behind ``abp mcp``, whose
results do not flood an agent."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from mcp import Client
from mcp_types import CallToolResult

from tests.support.eventually import eventually
from tests.support.mcp_clients import called, files_of, read_as_resource, read_with_tool, size
from tests.support.mcp_over_http import tableau_server
from tests.support.mcp_servers import target
from tests.support.mcp_servers.tableau import PDF, PNG, VIEW, WAV, server, view_data
from tests.support.mcp_servers.warm import warm_target
from transports import (
    CallTimeout,
    CapabilitiesChanged,
    CapabilityError,
    ConnectionChanged,
    Disconnected,
    ElicitationRequest,
    Notification,
    Progress,
    Session,
    UsageError,
    connect,
)
from transports.artifacts import open_store
from transports.errors import BadEncoding, ConnectFailed, SizeMismatch, TooLarge
from transports.mcp import MCPTransport
from transports.protocol.messages import Message
from transports.routing import ResourcePolicy, RoutingPolicy
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options

TOKEN = "a-token-that-nobody-may-see"

Connected = Callable[..., Any]

#: Most tests show what happens to an answer that has arrived, over HTTP. The newest protocol over pipes is that of
#: tests/e2e/test_behaviour.py.
in_each_way = pytest.mark.parametrize("way", ["legacy", "http"], indirect=True, scope="module")
in_older_protocol = pytest.mark.parametrize("way", ["legacy"], indirect=True, scope="module")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "http"))


@pytest.fixture(scope="module")
def tableau() -> Iterator[str]:
    with warm_target("tableau") as warm:
        yield warm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def over_http() -> AsyncIterator[str]:
    """The target of one server for all tests that leave it as it is."""
    async with tableau_server(TOKEN) as target:
        yield target


@pytest.fixture(scope="module")
def make(way: str, over_http: str, request: pytest.FixtureRequest) -> Connected:
    """``connect`` to the server of this way."""
    if way == "legacy":
        return partial(connect, f"{request.getfixturevalue('tableau')} --legacy")
    return partial(connect, over_http, headers={"Authorization": f"Bearer {TOKEN}"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(make: Connected, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    async with make(store=tmp_path_factory.mktemp("shared")) as session:
        yield session


@pytest.fixture
def app(make: Connected, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Session]]:
    """A session of this way with options of its own."""
    return lambda **options: make(**{"store": tmp_path / "out", **options})


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def value(tree: object, *path: str | int) -> Any:
    for step in path:
        tree = tree[step]  # type: ignore[index]
    return tree


# --- tools are capabilities -------------------------------------------------------------------------------------------


async def test_tools_of_all_pages_become_capabilities(shared: Session) -> None:
    assert (shared.info.id, shared.info.name, shared.info.version) == ("tableau-mcp", "Tableau", "1.0")
    assert shared.transport.name == "mcp"
    assert {"download_workbook", "large", "resources.read"} <= set(shared.capabilities)
    download = shared.capabilities["download_workbook"]
    assert download.input_schema["properties"] == {"id": {"type": "string"}}
    assert download.annotations == {"title": "Reads", "readOnlyHint": True}
    assert "view_name" in value(shared.capabilities["get_view_as_pdf"].output_schema, "properties")


@pytest.mark.requirement("R2-3.3d", "R2-4.3b", "R2-6.4a", "R2-B.a", "R2-B.b", "R2-B.c")
async def test_preset_extracts_files_from_text_and_structured_content(shared: Session) -> None:
    """docs/requirements.md R2-B; the preset applies by the server's name."""
    workbook = await shared.call("download_workbook", {"id": "1"})
    ref = workbook.artifacts["content.0.text.content"]
    assert (ref.sha256, ref.filename, ref.mime_type) == (digest(PDF), "Sales Dashboard.pdf", "application/pdf")
    assert workbook.summaries[0].startswith("Downloaded workbook 'Sales Dashboard' as PDF")
    view = await shared.call("get_view_as_pdf")
    assert view.artifacts["pdf_data"].sha256 == digest(PDF)
    assert value(view.data, "view_name") == "Revenue by Region"
    assert set(value(view.data).keys()) == {"pdf_data", "view_name", "generated_at"}  # not a second time as text
    assert view.warnings == ()
    books = await shared.call("list_workbooks")
    assert "Marketing" in value(books.data, "content", 0, "text")
    assert list(books.artifacts) == [""]


@pytest.mark.requirement("R2-2.3a", "R2-2.3c", "R2-3.3a", "R2-3.3c", "R2-5.4b")
async def test_typed_content_is_stored_and_text_stays(shared: Session) -> None:
    image = await shared.call("get_view_image")
    assert image.artifacts["content.1.data"].sha256 == digest(PNG)
    assert image.artifacts["content.1.data"].mime_type == "image/png"
    assert value(image.data, "content", 0, "text") == "The view:"
    several = await shared.call("narrate")
    sound, blob = several.artifacts["content.0.data"], several.artifacts["content.1.resource.blob"]
    assert (sound.sha256, sound.mime_type) == (digest(WAV), "audio/wav")
    assert (blob.sha256, blob.filename, blob.mime_type) == (digest(PDF), "note.bin", "application/x-note")
    assert value(several.data, "content", 2, "resource", "text") == "a note"
    assert {step.layer for step in image.steps} == {"typed"}


async def test_an_answer_over_the_limit_fails_only_its_call(
    app: Connected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABP_MAX_MESSAGE_BYTES", "1000000")
    async with app(store=tmp_path / "out") as session:
        with pytest.raises(TooLarge, match="1,000,000 bytes"):
            await session.call("large", {"bytes": 3_000_000})
        assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        assert (await session.call("large", {"bytes": 100_000})).artifacts[
            "content.0.resource.blob"
        ].size_bytes == 100_000


async def test_files_are_sent_as_bare_base64_for_string_schema(shared: Session, tmp_path: Path) -> None:
    (tmp_path / "in.pdf").write_bytes(b"%PDF-1.4 in")
    sent = (await shared.call("upload", {"file": tmp_path / "in.pdf", "described": b"more"})).data
    assert value(sent, "file") == "JVBERi0xLjQgaW4="
    assert shared.warnings == ()


async def test_mcp_failure_raises_capability_error(shared: Session) -> None:
    with pytest.raises(CapabilityError, match="the printer is empty") as failed:
        await shared.call("fails")
    assert failed.value.code == "OPERATION_FAILED"
    with pytest.raises(CapabilityError, match="not for you") as refused:
        await shared.call("refuses")
    assert (refused.value.code, refused.value.details) == ("INVALID_PARAMS", {"code": -32602})
    with pytest.raises(CapabilityError, match="did you mean get_view_as_pdf") as unknown:
        await shared.call("get_view_pdf")
    assert unknown.value.code == "UNKNOWN_CAPABILITY"
    with pytest.raises(UsageError, match="steps"):
        await shared.call("work", {"steps": "many"})


# --- while a call runs ------------------------------------------------------------------------------------------------


@in_each_way
async def test_mcp_progress_arrives_in_order(shared: Session) -> None:
    seen: list[Progress] = []
    await shared.call("work", {"steps": 4}, on_progress=seen.append)
    assert [(item.progress, item.total, item.stage) for item in seen] == [(n, 4, f"step {n}") for n in (1, 2, 3, 4)]


@in_each_way
async def test_timeout_and_cancellation_cancel_remote_call(shared: Session) -> None:
    recorded = (await shared.call("record")).data
    before = value(recorded, "cancelled")
    with pytest.raises(CallTimeout):
        await shared.call("wait", timeout=0.3)
    waiting = asyncio.ensure_future(shared.call("wait"))
    async with asyncio.timeout(10):
        while value((await shared.call("record")).data, "waiting") < value(recorded, "waiting") + 2:
            await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(10):
        while value((await shared.call("record")).data, "cancelled") < before + 2:
            await asyncio.sleep(0.05)


@in_each_way
async def test_elicitations_reach_the_session_handler(app: Connected, shared: Session) -> None:
    asked: list[ElicitationRequest] = []

    async def blue(request: ElicitationRequest) -> Mapping[str, object]:
        asked.append(request)
        return {"success": True, "data": {"value": {"colour": "blue"}}}

    async with app(on_elicitation=blue) as session:
        answered = (await session.call("ask")).data
        assert answered == {"action": "accept", "content": {"colour": "blue"}}
        assert asked[0].method == "elicitation/input"
        assert (asked[0].params["message"], value(asked[0].params, "schema", "required")) == (
            "Which colour?",
            ["colour"],
        )
    assert (await shared.call("ask")).data == {"action": "decline", "content": {}}


async def test_question_of_a_call_of_a_view_is_asked_once_and_infinite_timeouts_are_allowed(
    over_http: str, tmp_path: Path
) -> None:
    asked: list[ElicitationRequest] = []

    async def blue(request: ElicitationRequest) -> Mapping[str, object]:
        asked.append(request)
        return {"success": True, "data": {"value": {"colour": "blue"}}}

    transport = MCPTransport(over_http, headers={"Authorization": f"Bearer {TOKEN}"})
    options: dict[str, Any] = {"store": tmp_path, "on_elicitation": blue, "timeout": math.inf}
    async with connect(over_http, transport=transport, **options) as session:
        call = {"method": "tools/call", "params": {"name": "ask", "arguments": {}}}
        reply = await transport.request(Message("view/request", call), timeout=20)
        assert value(reply.payload, "structuredContent", "action") == "accept" and len(asked) == 1
        assert (await session.call("work", {"steps": 1}, timeout=math.inf)).data == {"steps": 1}
        assert await session.resources.list(timeout=math.inf)


@pytest.mark.slow
async def test_server_lost_while_its_question_is_answered_is_disconnected(tmp_path: Path) -> None:
    others = set(psutil.Process().children(recursive=True))

    async def answer_too_late(_: ElicitationRequest) -> Mapping[str, object]:
        for process in set(psutil.Process().children(recursive=True)) - others:
            process.kill()
        # The session notices the loss meanwhile.
        await asyncio.sleep(1.5)
        return {"success": True, "data": {"value": {"colour": "blue"}}}

    async with connect(target("tableau"), store=tmp_path, on_elicitation=answer_too_late) as session:
        with pytest.raises(Disconnected, match="it may have run"):
            await session.call("ask")


async def test_sampling_is_offered_only_with_handler_that_answers_it(tableau: str, tmp_path: Path) -> None:
    def speak(request: ElicitationRequest) -> Mapping[str, object]:
        assert request.method == "sampling/create"
        return {"success": True, "data": {"result": value(request.params, "messages", 0, "content", "text") + "!"}}

    where = f"{tableau} --legacy"
    async with connect(where, store=tmp_path, on_elicitation=speak) as session:
        assert value((await session.call("think")).data, "said") == "Say hi!"
    async with connect(where, store=tmp_path) as session:
        with pytest.raises(CapabilityError):
            await session.call("think")


@in_older_protocol
async def test_late_tool_becomes_capability(app: Connected, tmp_path: Path) -> None:
    async with app(store=tmp_path) as session, session.events() as events:
        await session.call("grow")
        async with asyncio.timeout(10):
            while not isinstance(change := await anext(events), CapabilitiesChanged):
                pass
        assert change.added == ("extra",)
        assert (await session.call("extra")).data == {"extra": True}
        assert "resources.read" in session.capabilities


# --- resources --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-2.4a", "R2-2.4b", "R2-3.5a", "R2-5.7a", "R2-5.7b", "R2-6.2a", "R2-6.2d")
async def test_resources_and_templates_are_listed_across_pages(shared: Session) -> None:
    listed = await shared.resources.list()
    assert len(listed) == 26
    assert (listed[0].uri, listed[0].mime_type, listed[0].size) == (VIEW, "text/csv", len(view_data()))
    templates = await shared.resources.templates()
    assert [one.name for one in templates] == ["notes", "files", "views"]
    assert templates[0].uri_template == "tableau://notes/{number}"
    page = (await shared.call("resources.list")).data
    assert (len(value(page, "resources")), value(page, "nextCursor")) == (10, "10")
    rest = (await shared.call("resources.list", {"cursor": "20"})).data
    assert len(value(rest, "resources")) == 6
    first = (await shared.call("resources.templates")).data
    assert (value(first, "resourceTemplates", 0, "name"), value(first, "nextCursor")) == ("notes", "1")
    last = (await shared.call("resources.templates", {"cursor": "2"})).data
    assert value(last, "resourceTemplates", 0, "name") == "views" and isinstance(last, dict)
    assert "nextCursor" not in last


@pytest.mark.requirement("R2-2.4c", "R2-3.5b", "R2-3.5d", "R2-4.2h", "R2-4.2i", "R2-5.7c", "R2-5.7g", "R2-5.7h")
@pytest.mark.requirement("R2-6.2d")
async def test_short_text_resource_is_inline_and_others_become_artifacts(shared: Session) -> None:
    note = await shared.resources.read("tableau://notes/3")
    assert value(note.data, "contents", 0, "text") == "This is tableau://notes/3"
    table = await shared.call("resources.read", {"uri": VIEW})
    ref = table.artifacts["contents.0.text"]
    content = Path(str(ref.path)).read_bytes()
    assert (ref.mime_type, ref.filename, ref.sha256) == ("text/csv", "data.csv", digest(content))
    assert content.startswith(b"region,revenue\nnorth,") and len(content) == len(view_data())
    assert value(table.data, "contents", 0, "text", "id") == ref.id
    pdf = await shared.resources.read("tableau://files/7.pdf", size=len(PDF))
    assert (pdf.artifacts["contents.0.blob"].sha256, pdf.artifacts["contents.0.blob"].filename) == (
        digest(PDF),
        "7.pdf",
    )


@pytest.mark.requirement("R2-2.4d", "R2-3.5c", "R2-4.2i", "R2-5.7d", "R2-5.7e", "R2-6.2b", "R2-6.2c", "R2-7.3a")
@pytest.mark.requirement("R2-7.3b", "R2-7.3c")
@in_older_protocol
async def test_a_resource_is_cached_until_it_changes(app: Connected) -> None:
    told: list[Notification] = []

    async def reads(session: Session) -> int:
        return int(value((await session.call("record")).data, "reads"))

    async with app(on_notification=told.append) as session:
        before = await reads(session)
        first = await session.resources.read(VIEW)
        assert (await session.resources.read(VIEW)) == first
        assert await reads(session) == before + 1
        await session.resources.read(VIEW, fresh=True)
        assert await reads(session) == before + 2
        await session.resources.subscribe(VIEW)
        await session.call("refresh")
        await eventually(lambda: bool(told))
        assert (told[0].event, told[0].data) == ("notifications/resources/updated", {"uri": VIEW})
        changed = await session.resources.read(VIEW)
        assert changed.artifacts["contents.0.text"].sha256 != first.artifacts["contents.0.text"].sha256
        await session.store.delete(changed.artifacts["contents.0.text"].id)
        await session.resources.read(VIEW)  # its file is gone: read again
        assert await reads(session) == before + 4
        await session.resources.unsubscribe(VIEW)
        await session.call("refresh")
        await session.call("record")
        assert len(told) == 1


@pytest.mark.requirement("R2-4.2i")
async def test_callers_policy_replaces_preset_and_disables_resource_cache(app: Connected) -> None:
    resources = ResourcePolicy(cache_reads_to_artifacts=False, inline_text_if_under_chars=10**6)
    async with app(routing=RoutingPolicy(heuristics=False, resources=resources)) as session:
        assert list((await session.call("download_workbook")).artifacts) == ["content.0.text", ""]
        before = value((await session.call("record")).data, "reads")
        for _ in range(2):
            assert "contents.0.text" not in (await session.resources.read(VIEW)).inline_fields
        assert value((await session.call("record")).data, "reads") == before + 2


@pytest.mark.requirement("R2-2.3d", "R2-3.3b", "R2-4.2g", "R2-5.7f")
async def test_resource_links_are_not_read_automatically(shared: Session) -> None:
    before = value((await shared.call("record")).data, "reads")
    result = await shared.call("export_links")
    link = value(result.data, "content", 0)
    assert (link["uri"], link["mimeType"], link["size"]) == (VIEW, "text/csv", len(view_data()))
    assert link["fetched"] is False and "resources.read" in link["hint"]
    assert value((await shared.call("record")).data, "reads") == before


@pytest.mark.requirement("R2-2.3d", "R2-4.2g", "R2-4.3d", "R2-5.7f")
async def test_small_links_are_read_when_policy_enables_it(app: Connected) -> None:
    policy = RoutingPolicy(resources=ResourcePolicy(auto_read_if_size_under_bytes=100_000))
    async with app(routing=policy) as session:
        result = await session.call("export_links")
        table, gone, lies, large = value(result.data, "content")
        assert table["fetched"] is True
        read = result.artifacts["content.0.contents.0.text"]
        assert read == (await session.resources.read(VIEW)).artifacts["contents.0.text"]
        assert (read.mime_type, read.size_bytes) == ("text/csv", len(view_data()))
        assert (gone["fetched"], lies["fetched"]) == (False, False)
        assert "not found" in gone["fetch_error"]
        assert "declared 5 bytes" in lies["fetch_error"]
        assert large["fetched"] is False and "resources.read" in large["hint"]
        assert {"content.0.contents.0.text", ""} == set(result.artifacts)


@pytest.mark.requirement("R2-4.2f")
async def test_links_are_not_read_when_resources_are_disabled(app: Connected) -> None:
    off = ResourcePolicy(enabled=False, auto_read_if_size_under_bytes=100_000)
    async with app(routing=RoutingPolicy(resources=off)) as session:
        before = value((await session.call("record")).data, "reads")
        result = await session.call("export_links")
        for link in value(result.data, "content"):
            assert link["type"] == "resource_link" and not {"fetched", "hint", "contents"} & link.keys()
        assert value((await session.call("record")).data, "reads") == before
        assert (await session.resources.read(VIEW)).artifacts  # what is asked for is still read


@pytest.mark.requirement("R2-6.2e", "R2-6.2g", "R2-6.4i")
async def test_an_unreadable_resource_raises_a_typed_error_and_leaves_no_file(app: Connected, tmp_path: Path) -> None:
    async with app(store=tmp_path / "out") as session:
        with pytest.raises(CapabilityError) as gone:
            await session.resources.read("tableau://views/gone")
        assert gone.value.details["code"] in (-32002, -32602)
        assert gone.value.message.startswith("tableau://views/gone: "), gone.value
        with pytest.raises(BadEncoding):
            await session.resources.read("tableau://files/broken")
        with pytest.raises(SizeMismatch):
            await session.resources.read("tableau://files/7.pdf", size=12)
        with pytest.raises(CallTimeout):
            await session.resources.read("tableau://files/slow", timeout=0.3)
        assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        assert (await session.resources.read("tableau://notes/1")).artifacts


@pytest.mark.requirement("R2-6.2f")
async def test_a_server_without_resources_logs_nothing_about_them(tmp_path: Path) -> None:
    async with connect(target("rude"), store=tmp_path) as session:
        assert not session.resources.available
        assert (await session.resources.list(), await session.resources.templates()) == ((), ())
        assert not [name for name in session.capabilities if name.startswith("resources.")]
        with pytest.raises(UsageError, match="no resources") as refused:
            await session.resources.read("x://y")
        assert refused.value.code == "NOT_SUPPORTED"


# --- a server that dies -----------------------------------------------------------------------------------------------


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.slow
async def test_killed_server_is_restarted_and_subscriptions_renewed(tmp_path: Path) -> None:
    before = children()
    told: list[Notification] = []
    session = connect(target("tableau"), store=tmp_path, on_notification=told.append)
    async with session, session.events() as events:
        await session.resources.subscribe(VIEW)
        await session.resources.read(VIEW)
        waiting = asyncio.ensure_future(session.call("wait"))
        async with asyncio.timeout(10):
            while not value((await session.call("record")).data, "waiting"):
                await asyncio.sleep(0.02)
        for pid in children() - before:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(Disconnected, match="SIGKILL"):
            await waiting
        async with asyncio.timeout(20):
            while not (isinstance(event := await anext(events), ConnectionChanged) and event.connected):
                pass
        assert (await session.call("work", {"steps": 1})).data == {"steps": 1}
        await session.call("refresh")
        await eventually(lambda: any(one.event == "notifications/resources/updated" for one in told))
        assert value((await session.call("record")).data, "reads") == 0  # it is a new one
        await session.resources.read(VIEW)
        assert value((await session.call("record")).data, "reads") == 1  # and nothing of the old one is kept
    await eventually(lambda: children() <= before)


async def test_calls_to_stopped_http_server_raise(tmp_path: Path) -> None:
    async with tableau_server() as where:
        session = connect(where, store=tmp_path)
        await session.__aenter__()
    try:
        with pytest.raises(Disconnected):
            await session.call("list_workbooks", timeout=0.5)  # it is waited for so long
    finally:
        await session.aclose()


# --- authentication ---------------------------------------------------------------------------------------------------


async def test_sdk_auth_is_used_and_wrong_token_is_rejected_without_being_shown(over_http: str, tmp_path: Path) -> None:
    import httpx2

    class Bearer(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            request.headers["Authorization"] = f"Bearer {TOKEN}"
            yield request

    async with connect(over_http, store=tmp_path, auth=Bearer()) as session:
        assert (await session.call("list_workbooks")).artifacts
    with pytest.raises(ConnectFailed) as refused:
        await connect(over_http, store=tmp_path, headers={"Authorization": "Bearer wrong-and-secret"})
    assert "wrong-and-secret" not in str(refused.value)


# --- ``abp mcp`` in front of another server ---------------------------------------------------------------------------


#: The five calls of the table in docs/mcp-servers.md, and the content that each has.
CALLS: Mapping[str, tuple[bytes, ...]] = {
    "download_workbook": (PDF,),
    "get_view_as_pdf": (PDF,),
    "get_view_image": (PNG,),
    "narrate": (WAV, PDF),
    "list_workbooks": (),
}


def whole(answer: CallToolResult) -> int:
    """Bytes of the message that reaches the client."""
    return len(answer.model_dump_json(by_alias=True, exclude_none=True).encode())


@asynccontextmanager
async def gateway(folder: Path, app: str | None = None) -> AsyncIterator[Client]:
    """A client of the bridge in this process, in front of an app; by default the server with workbooks over HTTP."""
    async with contextlib.AsyncExitStack() as stack:
        address = app if app is not None else await stack.enter_async_context(tableau_server())
        bridge = Bridge(Options(apps=(address,)), open_store(folder))
        stack.push_async_callback(bridge.aclose)
        yield await stack.enter_async_context(Client(bridge.server))


def references(document: object) -> dict[str, str]:
    """The artifacts that an answer refers to: SHA-256 → id."""
    return {
        hashlib.sha256(Path(artifact["path"]).read_bytes()).hexdigest(): artifact["id"]
        for artifact in files_of(document)
    }


@pytest.mark.requirement("R2-0b", "R2-6.1c", "R2-6.4a")
async def test_gateway_keeps_large_outputs_within_limit(tmp_path: Path) -> None:
    """The same five calls, directly and through the gateway; all that is dropped can be fetched by reference."""
    table: dict[str, tuple[int, int, int]] = {}
    async with Client(server()) as direct, gateway(tmp_path) as bridged:
        listed = {tool.name for tool in (await bridged.list_tools()).tools}
        assert {f"abp_{name}" for name in CALLS} <= listed
        for name, contents in CALLS.items():
            flood, tame = await direct.call_tool(name, {}), await bridged.call_tool(f"abp_{name}", {})
            assert not tame.is_error, tame
            table[name] = whole(flood), whole(tame), size(tame)
            if name == "download_workbook":  # the preset of the server's name applies
                assert "Sales Dashboard.pdf" in json.dumps(tame.structured_content)
            by_hash = references(tame.structured_content)
            for content in contents:
                key = by_hash[hashlib.sha256(content).hexdigest()]
                assert await read_as_resource(bridged, f"artifact://{key}") == content
            if name == "get_view_image":
                assert await read_with_tool(bridged, by_hash[hashlib.sha256(PNG).hexdigest()]) == PNG
    assert all(text < 8192 for _, _, text in table.values()), table  # pictures that a model can look at come with it
    assert sum(flood for flood, _, _ in table.values()) > 3_000_000
    assert table["download_workbook"][1] * 100 < table["download_workbook"][0]


@pytest.mark.requirement("R2-6.2d")
async def test_server_resources_are_gateway_tools(tmp_path: Path) -> None:
    async with gateway(tmp_path) as client:
        listed = await called(client, "abp_resources_list")
        assert VIEW in json.dumps(listed)
        read = await called(client, "abp_resources_read", uri=VIEW)
        (key,) = references(read).values()
        assert (await read_as_resource(client, f"artifact://{key}")).decode() == view_data()
        assert (await read_as_resource(client, VIEW)).decode() == view_data()


async def test_server_start_failure_is_reported_without_arguments(tmp_path: Path) -> None:
    async with gateway(tmp_path, "mcp+stdio:false --api-key sk-123456789") as client:
        answer = await client.call_tool("abp_status", {})
        assert answer.is_error
        text = answer.model_dump_json()
        assert "could not be connected" in text
        assert "sk-123456789" not in text
