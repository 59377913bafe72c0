"""The MCP bridge as clients of both eras meet it, over an app in this process."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent

from transports import Call, CapabilityError, MemoryTransport, Session
from transports import connect as connect_app
from transports.adapters.memory import Handler
from transports.artifacts import open_store
from transports.surfaces.mcp import Bridge, Options

ERAS = ("legacy", "2026-07-28")
URL = "ws://app.test/abp"


async def shout(params: Mapping[str, object], call: Call) -> object:
    """Text in capitals."""
    await call.progress(progress=1, total=2, stage="thinking")
    await call.progress(progress=2, total=2)
    return {"text": str(params.get("text", "")).upper()}


async def hold(params: Mapping[str, object], call: Call) -> object:
    await asyncio.Event().wait()
    return None


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("no paper", code="PRINTER_EMPTY", alternatives=["text.shout"])


async def digest(params: Mapping[str, Any], call: Call) -> object:
    content = params["file"].content
    data = content if isinstance(content, bytes) else content.path.read_bytes()
    file = params["file"]
    return {"sha256": hashlib.sha256(data).hexdigest(), "name": file.filename, "type": file.mime_type}


APP: Mapping[str, Handler] = {"text.shout": shout, "job.hold": hold, "print.page": refuse, "file.digest": digest}


class Apps:
    """Stands for ``connect``: every target is an app in this process."""

    def __init__(self, handlers: Mapping[str, Handler] = APP) -> None:
        self.handlers = handlers
        self.transports: list[MemoryTransport] = []

    def __call__(self, target: str, **options: Any) -> Session:
        options.pop("transport", None)
        self.transports.append(MemoryTransport(self.handlers))
        return connect_app("memory:", transport=self.transports[-1], **options)


Serve = Callable[..., Any]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(tmp_path: Path, era: str) -> Serve:
    """``async with serve(…) as client``: a client of a new bridge; one app is connected unless told otherwise."""

    @asynccontextmanager
    async def make(
        apps: Apps | None = None, *, connected: bool = True, options: Mapping[str, Any] | None = None, **more: Any
    ) -> AsyncIterator[Client]:
        store = open_store(tmp_path / "out")
        bridge = Bridge(Options(**(options or {})), store, connect=apps or Apps())
        async with Client(bridge.server, mode=era, **more) as client:
            if connected:
                await called(client, "abp_connect", url=URL)
            yield client

    return make


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    """The document of an answer that must be a success."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer
    return answer.structured_content


def words(answer: CallToolResult) -> str:
    first = answer.content[0]
    assert isinstance(first, TextContent)
    return first.text


def size(answer: CallToolResult) -> int:
    """Bytes of the message, without images."""
    content = [item for item in answer.content if not isinstance(item, ImageContent)]
    return len(
        answer.model_copy(update={"content": content}).model_dump_json(by_alias=True, exclude_none=True).encode()
    )


async def read_with_tool(client: Client, artifact_id: str) -> bytes:
    whole, offset = b"", 0
    while True:
        answer = await client.call_tool("abp_read_artifact", {"id": artifact_id, "offset": offset})
        assert not answer.is_error and size(answer) <= 64 * 1024
        header, content = (item.text for item in answer.content if isinstance(item, TextContent))
        about = json.loads(header)
        whole += base64.b64decode(content) if about["encoding"] == "base64" else content.encode()
        if about["next_offset"] is None:
            return whole
        offset = about["next_offset"]


async def read_as_resource(client: Client, uri: str) -> bytes:
    (content,) = (await client.read_resource(uri)).contents
    return content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)


# --- the straight path ------------------------------------------------------------------------------------------------


async def test_connect_list_call_disconnect(serve: Serve) -> None:
    async with serve(connected=False) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "abp_connect",
            "abp_call",
            "abp_status",
            "abp_disconnect",
            "abp_artifacts",
            "abp_read_artifact",
        ]
        connected = await called(client, "abp_connect", url=URL)
        assert connected["app"]["name"] == "In-process app"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"abp_text_shout", "abp_job_hold"} <= set(tools)
        assert tools["abp_text_shout"].description == "Text in capitals."
        document = await called(client, "abp_text_shout", text="hi")
        assert document["data"] == {"text": "HI"}
        assert document["session"] == connected["session"]
        again = await called(client, "abp_call", capability="text.shout", params={"text": "ho"})
        assert again["data"] == {"text": "HO"}
        await called(client, "abp_disconnect")
        assert "abp_text_shout" not in {tool.name for tool in (await client.list_tools()).tools}
        with pytest.raises(MCPError, match="no tool 'abp_text_shout'"):
            await client.call_tool("abp_text_shout", {"text": "hi"})
        listed = await called(client, "abp_artifacts")
        assert listed["total"] == 2


async def test_the_answer_is_words_then_links_and_the_document_of_the_command_line(serve: Serve) -> None:
    async with serve() as client:
        answer = await client.call_tool("abp_text_shout", {"text": "hi"})
        assert words(answer).startswith("Output saved to file: ")
        (link,) = [item for item in answer.content if isinstance(item, ResourceLink)]
        document = answer.structured_content
        assert set(document) >= {"success", "capability", "transport", "data", "duration_ms", "warnings", "artifacts"}
        assert link.uri == document["artifacts"][0]["uri"]
        assert json.loads(await read_as_resource(client, link.uri)) == {"text": "HI"}


async def test_two_apps_need_the_session_to_be_said(serve: Serve) -> None:
    async with serve() as client:
        second = await called(client, "abp_connect", url=URL)
        answer = await client.call_tool("abp_call", {"capability": "text.shout"})
        assert answer.is_error and second["session"] in words(answer)
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "abp_text_shout"]
        assert tool.input_schema["required"] == ["session"]
        document = await called(client, "abp_text_shout", text="hi", session=second["session"])
        assert document["session"] == second["session"]
        mine = await called(client, "abp_artifacts", session=second["session"])
        assert mine["total"] == 1
        status = await called(client, "abp_status")
        assert len(status["sessions"]) == 2


async def test_errors_are_answers_that_say_how_to_go_on(serve: Serve) -> None:
    async with serve() as client:
        answer = await client.call_tool("abp_print_page", {})
        assert answer.is_error
        assert answer.structured_content["error"]["code"] == "PRINTER_EMPTY"
        for part in ("no paper", "[PRINTER_EMPTY]", "Retryable: no", "Alternatives: text.shout", "Next: "):
            assert part in words(answer)
        unknown = await client.call_tool("abp_call", {"capability": "text.shuot"})
        assert unknown.structured_content["error"]["alternatives"] == ["text.shout"]
        wrong = await client.call_tool("abp_call", {"capabilty": "text.shout"})
        assert wrong.is_error and wrong.structured_content["error"]["code"] == "INVALID_PARAMS"
        elsewhere = await client.call_tool("abp_connect", {"url": "mcp+stdio:rm -rf /"})
        assert elsewhere.is_error and "--app" in words(elsewhere)
        with pytest.raises(MCPError):
            await client.call_tool("abp_nothing", {})


async def test_progress_reaches_the_client_and_grows(serve: Serve) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with serve() as client:
        await client.call_tool("abp_text_shout", {"text": "hi"}, progress_callback=on_progress)
        await asyncio.sleep(0.05)
    assert told == [(1, 2, "thinking"), (2, 2, None)]


async def test_a_cancelled_request_cancels_the_call_in_the_app(serve: Serve) -> None:
    apps = Apps()
    async with serve(apps) as client:
        task = asyncio.ensure_future(client.call_tool("abp_job_hold", {}))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(2):
            while not apps.transports[0].cancelled:
                await asyncio.sleep(0.01)
        assert (await called(client, "abp_text_shout", text="on"))["data"] == {"text": "ON"}


async def test_too_many_apps(serve: Serve) -> None:
    async with serve(options={"max_sessions": 1}) as client:
        answer = await client.call_tool("abp_connect", {"url": URL})
        assert answer.is_error and "abp_disconnect" in words(answer)


async def test_an_app_from_the_start(serve: Serve) -> None:
    async with serve(connected=False, options={"app": URL}) as client:
        assert "abp_text_shout" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await called(client, "abp_text_shout", text="hi"))["data"] == {"text": "HI"}
