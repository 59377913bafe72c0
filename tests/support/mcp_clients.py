"""What the tests of the MCP bridge share: an app in this process, and clients of both eras."""

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
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import (
    CallToolResult,
    EmptyResult,
    ImageContent,
    ResourceLink,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SubscribeRequest,
    SubscribeRequestParams,
    TextContent,
    ToolListChangedNotification,
)

from tests.support.apps import answering, hang
from tests.support.slow import slow_but
from transports import CapabilityError, MemoryTransport, Session, connect as connect_app
from transports.artifacts import open_store
from transports.memory import Handler
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options
from transports.testing import Call

ERAS = ("legacy", "2026-07-28")
URL = "ws://app.test/abp"


async def shout(params: Mapping[str, object], call: Call) -> object:
    """Text in capitals."""
    await call.progress(progress=1, total=2, stage="thinking")
    await call.progress(progress=2, total=2)
    return {"text": str(params.get("text", "")).upper()}


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("no paper", code="PRINTER_EMPTY", alternatives=["text.shout"])


async def digest(params: Mapping[str, Any], call: Call) -> object:
    content = params["file"].content
    data = content if isinstance(content, bytes) else content.path.read_bytes()
    file = params["file"]
    return {"sha256": hashlib.sha256(data).hexdigest(), "name": file.filename, "type": file.mime_type}


APP: Mapping[str, Handler] = {"text.shout": shout, "job.hold": hang, "print.page": refuse, "file.digest": digest}


class Apps:
    """Stands for ``connect``: every target is an app in this process. ``make`` makes its transport."""

    def __init__(
        self,
        handlers: Mapping[str, Handler] = APP,
        make: Callable[[Mapping[str, Handler]], MemoryTransport] = MemoryTransport,
    ) -> None:
        self.handlers = handlers
        self.make = make
        self.transports: list[MemoryTransport] = []

    def __call__(self, target: str, **options: Any) -> Session:
        self.transports.append(self.make(self.handlers))
        return connect_app("memory:", **{**options, "transport": self.transports[-1]})


def giving(**contents: object) -> Apps:
    """Apps whose capabilities answer these contents."""
    return Apps({name: answering(content) for name, content in contents.items()})


class Notifications:
    """Notifications to a client of either era: the URI of a resource, ``list`` for the list of resources, and ``tools``
    for that of tools."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[str] = asyncio.Queue()

    async def message(self, message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await self.received.put(message.params.uri)
        elif isinstance(message, ResourceListChangedNotification):
            await self.received.put("list")
        elif isinstance(message, ToolListChangedNotification):
            await self.received.put("tools")

    @asynccontextmanager
    async def subscribed(self, client: Client, era: str, *uris: str) -> AsyncIterator[None]:
        if era == "legacy":
            for uri in uris:
                request = SubscribeRequest(params=SubscribeRequestParams(uri=uri))
                await client.session.send_request(request, EmptyResult)
            yield
            return
        async with client.listen(
            resources_list_changed=True, tools_list_changed=True, resource_subscriptions=list(uris)
        ) as events:
            listening = asyncio.ensure_future(self._listen(events))
            try:
                yield
            finally:
                listening.cancel()
                await asyncio.wait((listening,))

    async def _listen(self, events: Any) -> None:
        async for event in events:
            if isinstance(event, ResourceUpdated):
                await self.received.put(event.uri)
            elif isinstance(event, ResourcesListChanged):
                await self.received.put("list")
            elif isinstance(event, ToolsListChanged):
                await self.received.put("tools")

    async def until(self, what: str) -> None:
        async with asyncio.timeout(10):
            while await self.received.get() != what:
                pass


Serve = Callable[..., Any]


#: For a test of what depends on the handshake.
both_eras = pytest.mark.parametrize("era", ERAS)
#: For a test of what does not.
newer_era = pytest.mark.parametrize("era", slow_but(ERAS, ERAS[1]))


@pytest.fixture
def era() -> str:
    return "legacy"


@pytest.fixture
def serve(tmp_path: Path, era: str) -> Serve:
    """``async with serve(…) as client``: a client of a new bridge, with one app if ``connected``. ``more`` is for the
    bridge or the client."""

    @asynccontextmanager
    async def make(
        apps: Callable[..., Session] | None = None,
        *,
        connected: bool = True,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> AsyncIterator[Client]:
        of_bridge = {name: more.pop(name) for name in ("activity", "calls", "link", "named") if name in more}
        store = open_store(tmp_path / "out")
        bridge = Bridge(Options(**(options or {})), store, connect=apps or Apps(), **of_bridge)
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


def images_of(answer: CallToolResult) -> list[ImageContent]:
    return [item for item in answer.content if isinstance(item, ImageContent)]


def links_of(answer: CallToolResult) -> list[ResourceLink]:
    return [item for item in answer.content if isinstance(item, ResourceLink)]


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
        assert not answer.is_error and size(answer) <= 50_000
        header, content = (item.text for item in answer.content if isinstance(item, TextContent))
        about = json.loads(header)
        whole += base64.b64decode(content) if about["encoding"] == "base64" else content.encode()
        if about["next_offset"] is None:
            return whole
        offset = about["next_offset"]


async def read_as_resource(client: Client, uri: str) -> bytes:
    (content,) = (await client.read_resource(uri)).contents
    return content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)


def files_of(document: object) -> list[dict[str, Any]]:
    """The files that an answer refers to, in its data and beside it, each with its address."""
    if isinstance(document, list):
        return [reference for item in document for reference in files_of(item)]
    if not isinstance(document, dict):
        return []
    if {"id", "path", "mime_type"} <= document.keys():
        return [{**document, "uri": f"artifact://{document['id']}"}]
    return [reference for value in document.values() for reference in files_of(value)]
