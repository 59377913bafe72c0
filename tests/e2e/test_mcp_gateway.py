"""``abp mcp`` in front of another MCP server: the same tools, and results that do not flood an agent."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.support.mcp_clients import called, files_of, read_as_resource, read_with_tool, size
from tests.support.mcp_over_http import tableau_server
from tests.support.mcp_servers.tableau import PDF, PNG, VIEW, WAV, server, view_data
from transports.artifacts import open_store
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options

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
