"""What an app says of itself, of its capabilities and of its answers reaches the caller, also from a recording."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as mt
import pytest
from mcp import Client

from tests.support.apps import socket_app
from tests.support.rows import each_row
from transports import connect, open_store
from transports.errors import CapabilityError
from transports.session._session import Session
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options

HELLO: dict[str, object] = {
    "sessionId": "1",
    "protocolVersion": "0.1",
    "app": {
        "id": "dev.full",
        "name": "Full",
        "version": "1",
        "description": "An app with every field",
        "homepage": "https://app.test/",
        "icon": "https://app.test/icon.png",
        "support": "help@app.test",
    },
    "capabilities": [
        {
            "name": "convert.text",
            "features": {"gfm": True},
            "browserRequirement": "Chrome 120 or later",
            "requirements": [
                {"type": "browser", "description": "WebGL", "met": True},
                {"type": "permission", "description": "the camera", "met": False, "resolution": "Allow the camera"},
            ],
        }
    ],
    "features": {"progress": True, "dynamicCapabilities": False, "odd": "yes"},
}
METADATA = {"duration": 150, "cached": True, "other": "x"}


@asynccontextmanager
async def full_app(metadata: object = METADATA, error: str = "") -> AsyncIterator[str]:
    answer: dict[str, object] = {"success": True, "data": {"x": 1}, "metadata": metadata}
    if error:
        answer = {"success": False, "error": {"code": error, "message": "refused"}}
    async with socket_app(lambda _: answer, HELLO) as address:
        yield f"ws://{address}/abp"


def _document(result: mt.CallToolResult) -> dict[str, Any]:
    document: dict[str, Any] | None = result.structured_content
    assert document is not None
    return document


async def check_fields(app: Session) -> None:
    info, capability = app.info, app.capabilities["convert.text"]
    assert (info.description, info.homepage) == ("An app with every field", "https://app.test/")
    assert (info.icon, info.support) == ("https://app.test/icon.png", "help@app.test")
    assert app.features == {"progress": True, "dynamicCapabilities": False}
    assert capability.features == {"gfm": True}
    assert capability.browser_requirement == "Chrome 120 or later"
    result = await app.call("convert.text")
    assert result.response_metadata == {"duration": 150, "cached": True}
    assert result.as_dict()["response_metadata"] == {"duration": 150, "cached": True}
    assert result.for_agent()["response_metadata"] == {"duration": 150, "cached": True}


@pytest.mark.requirement("R6-3g", "R6-4j")
async def test_app_fields_reach_caller_live_and_replayed(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    async with full_app() as url, connect(url, store="memory:", record=recording) as app:
        await check_fields(app)
    async with connect(f"replay:{recording}", store="memory:") as app:
        await check_fields(app)


@each_row("metadata", [None, [], "fast", {"duration": -1, "cached": "yes"}, {"duration": True}, {"duration": "1"}, {}])
async def test_invalid_response_metadata_is_dropped(metadata: object) -> None:
    async with full_app(metadata) as url, connect(url, store="memory:") as app:
        result = await app.call("convert.text")
    assert result.response_metadata == {}
    assert "response_metadata" not in result.as_dict() and "response_metadata" not in result.for_agent()


@pytest.mark.requirement("R6-4i")
@each_row(
    "code",
    [
        *("CAPABILITY_UNAVAILABLE", "REQUIREMENT_NOT_MET", "PERMISSION_DENIED"),
        *("PERMISSION_REQUIRED", "PRECONDITION_FAILED"),
    ],
)
async def test_error_names_the_requirement_and_how_to_meet_it(code: str) -> None:
    async with full_app(error=code) as url, connect(url, store="memory:") as app:
        with pytest.raises(CapabilityError) as caught:
            await app.call("convert.text")
    assert caught.value.message == "convert.text: refused; it needs the camera: Allow the camera"
    assert str(caught.value) == f"{caught.value.message} [{code}]"


async def test_bridge_shows_declared_app_and_answer_fields(tmp_path: Path) -> None:
    bridge = Bridge(Options(), open_store(tmp_path))
    async with full_app() as url, Client(bridge.server) as client:
        connected = _document(await client.call_tool("abp_connect", {"url": url}))
        described = _document(await client.call_tool("abp_status", {"capability": "convert.text"}))
        answer = _document(await client.call_tool("abp_convert_text", {}))
    assert connected["app"]["support"] == "help@app.test"
    assert connected["features"] == ["progress"]
    assert described["capability"]["features"] == {"gfm": True}
    assert described["capability"]["browserRequirement"] == "Chrome 120 or later"
    assert "response_metadata" not in answer  # a model has no use for it
