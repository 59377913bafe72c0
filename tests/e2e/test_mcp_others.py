"""MCP programs that others wrote, from npm, pinned: servers as apps, and the official clients of ``abp mcp``."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_official.node import Node, installed
from tests.mcp_official.running import ERAS, conformance, inspect_http, inspect_stdio
from tests.support.eventually import eventually
from transports import CapabilityError, ElicitationRequest, Notification, connect

pytestmark = pytest.mark.hosts

NPM = {"server-everything": "2026.8.31", "server-filesystem": "2026.8.31"}
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def run(*command: str, cwd: Path) -> None:
    """Install something, or skip where the registry cannot be reached."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{command[0]} does not work here: {error}")
    if done.returncode != 0:
        unreachable = r"ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|ECONNRESET|error sending request|dns"
        assert re.search(unreachable, done.stderr), done.stderr[-2000:]
        pytest.skip(f"the registry of {command[0]} cannot be reached")


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers of npm are installed."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("npm")
    packages = [f"@modelcontextprotocol/{name}@{version}" for name, version in NPM.items()]
    run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), *packages, cwd=folder)
    return folder / "node_modules" / "@modelcontextprotocol"


def text(data: object) -> str:
    blocks: Any = data
    return "\n".join(block["text"] for block in blocks["content"] if block["type"] == "text")


async def test_everything_server(npm: Path, tmp_path: Path) -> None:
    """The reference server of the protocol: pictures, links, embedded resources, questions, subscriptions."""
    told: list[Notification] = []

    def answer(request: ElicitationRequest) -> Mapping[str, object]:
        if request.method == "sampling/create":
            return {"success": True, "data": {"result": "words of a model"}}
        return {"success": True, "data": {"value": {"name": "Ada", "firstLine": "x"}}}

    where = f"mcp+stdio:node {npm / 'server-everything' / 'dist' / 'index.js'}"
    async with connect(where, store=tmp_path, on_notification=told.append, on_elicitation=answer, timeout=60) as app:
        assert app.info.id == "mcp-servers/everything"
        assert text((await app.call("echo", {"message": "hi"})).data) == "Echo: hi"
        picture = (await app.call("get-tiny-image")).artifacts["content.1.data"]
        assert picture.mime_type == "image/png"
        assert Path(str(picture.path)).read_bytes().startswith(PNG_HEAD)
        weather: Any = (await app.call("get-structured-content", {"location": "Chicago"})).data
        assert set(weather) == {"temperature", "conditions", "humidity"}
        links: Any = (await app.call("get-resource-links", {"count": 3})).data
        uris = [block["uri"] for block in links["content"] if block["type"] == "resource_link"]
        assert len(uris) == 3
        blob = next(uri for uri in uris if "blob" in uri)
        assert (await app.resources.read(blob)).artifacts["contents.0.blob"].size_bytes > 0
        reference = {"resourceType": "Blob", "resourceId": 1}
        assert (await app.call("get-resource-reference", reference)).artifacts["content.1.resource.blob"].size_bytes
        assert len(await app.resources.list()) >= 5
        assert "demo://resource/dynamic/text/{resourceId}" in [t.uri_template for t in await app.resources.templates()]
        seen: list[float | None] = []
        work = {"duration": 1, "steps": 4}
        await app.call("trigger-long-running-operation", work, on_progress=lambda one: seen.append(one.progress))
        assert seen == [1, 2, 3, 4]
        assert "Ada" in text((await app.call("trigger-elicitation-request")).data)
        assert "words of a model" in text(
            (await app.call("trigger-sampling-request", {"prompt": "hi", "maxTokens": 10})).data
        )
        with pytest.raises(CapabilityError):
            await app.resources.read("demo://resource/nowhere")
        await app.resources.subscribe(blob)
        await app.call("toggle-subscriber-updates")
        await eventually(lambda: any(one.event == "notifications/resources/updated" for one in told))
        await app.resources.unsubscribe(blob)


async def test_filesystem(npm: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    data = PNG_HEAD + os.urandom(400_000)
    (files / "picture.png").write_bytes(data)
    (files / "words.txt").write_text("a few words")
    where = f"mcp+stdio:node {npm / 'server-filesystem' / 'dist' / 'index.js'} {files}"
    async with connect(where, store=tmp_path / "out", timeout=60) as app:
        assert app.capabilities["read_text_file"].annotations["readOnlyHint"] is True
        read = await app.call("read_media_file", {"path": str(files / "picture.png")})
        (ref,) = [ref for ref in read.artifacts.values() if ref.mime_type == "image/png"]
        assert Path(str(ref.path)).read_bytes() == data
        words: Any = (await app.call("read_text_file", {"path": str(files / "words.txt")})).data
        assert "a few words" in str(words)
        with pytest.raises(CapabilityError, match=r"[Aa]ccess denied"):
            await app.call("read_text_file", {"path": "/etc/hostname"})
        assert not app.resources.available


# --- the official conformance runner, and the command line of the inspector -------------------------------------------


@pytest.fixture(scope="module")
def node() -> Node:
    return installed()


@pytest.mark.requirement("R4-13d")
@pytest.mark.parametrize("era", ERAS)
async def test_applicable_official_scenarios_pass(node: Node, tmp_path: Path, era: str) -> None:
    report = await conformance(node, era, tmp_path)
    assert re.search(r"tools-list: [1-9]\d* passed, 0 failed", report)


@pytest.mark.requirement("R4-13d", "R4-13e")
@pytest.mark.parametrize("inspect", [inspect_stdio, inspect_http])
async def test_mcp_inspector_lists_calls_and_reads(node: Node, tmp_path: Path, inspect: object) -> None:
    assert callable(inspect)
    async with asyncio.timeout(300):
        report = await inspect(node, tmp_path)
    assert len(report) == 7
