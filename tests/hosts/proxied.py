"""MCP servers of other people, bare and behind ``abp proxy``: the same calls by the official SDK's client."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from PIL import Image

from tests.hosts.environment import ROOT, python_of
from tests.mcp_official.node import Node, _binary as node_binary, packages
from tests.support.mcp_servers import FOLDER
from transports.playwright._find import find_browser

PINS = Path(__file__).with_name("proxied.json")
ABP = [sys.executable, "-m", "transports.surfaces.cli", "proxy"]
LIMIT = 64 * 1024
#: Seconds for all calls of one server.
_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server, its command and the calls. ``volatile`` are words that differ from run to run."""

    name: str
    command: Callable[[Node, Path], Sequence[str]]
    calls: Callable[[Path], Sequence[tuple[str, Mapping[str, object]]]]
    volatile: str = ""


@dataclass(slots=True)
class Answer:
    """Answer to one call: as JSON, its size, and the contents behind its links by SHA-256."""

    tool: str
    result: dict[str, Any]
    contents: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(json.dumps(self.result).encode())


def files(folder: Path) -> None:
    # No format makes it smaller.
    noise = Image.frombytes("RGB", (1200, 400), random.Random(1).randbytes(3 * 1200 * 400))
    noise.save(folder / "photo.png")
    noise.save(folder / "paper.pdf")
    (folder / "log.txt").write_text("2026-01-01 12:00:00 INFO all is well\n" * 20_000)
    (folder / "small.txt").write_text("a few words\n")
    text = "".join(f"<li>item {number} with a link <a href='#{number}'>here</a></li>" for number in range(3000))
    style = "<style>body{background:url(photo.png)}</style>"
    (folder / "page.html").write_text(f"<title>Many items</title>{style}<h1>Items</h1><ul>{text}</ul>")


def _browser() -> str:
    found = find_browser()
    assert found is not None
    return found.path


SERVERS = (
    Server(
        "server-everything",
        lambda node, _: [*node.command("mcp-server-everything"), "stdio"],
        lambda _: [
            ("echo", {"message": "héllo"}),
            ("get-sum", {"a": 1, "b": 2}),
            ("get-tiny-image", {}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("echo", {"message": "long " * 40_000}),
        ],
    ),
    Server(
        "server-filesystem",
        lambda node, folder: [*node.command("mcp-server-filesystem"), str(folder)],
        lambda folder: [
            ("read_text_file", {"path": str(folder / "small.txt")}),
            ("list_directory", {"path": str(folder)}),
            ("read_media_file", {"path": str(folder / "photo.png")}),
            ("read_text_file", {"path": str(folder / "log.txt")}),
        ],
    ),
    Server(
        "server-pdf",
        lambda node, folder: [*node.command("mcp-pdf-server"), "--stdio", str(folder / "paper.pdf")],
        lambda folder: [
            ("list_pdfs", {}),
            ("read_pdf_bytes", {"url": str(folder / "paper.pdf"), "offset": 0, "byteCount": 400_000}),
        ],
    ),
    Server(
        "playwright-mcp",
        lambda node, folder: [
            *node.command("playwright-mcp"),
            *("--headless", "--isolated", "--no-sandbox", "--allow-unrestricted-file-access"),
            *("--executable-path", _browser(), "--output-dir", str(folder / "output")),
        ],
        lambda folder: [
            ("browser_navigate", {"url": (folder / "page.html").as_uri()}),
            ("browser_evaluate", {"function": "() => document.title"}),
            ("browser_evaluate", {"function": "() => document.body.innerHTML"}),
            ("browser_take_screenshot", {"type": "png"}),
        ],
        r"page-[\dT-]+Z?-?\d*|console-[\dT-]+Z?|[\d-]+T[\d-]+Z",
    ),
    Server(
        "chrome-devtools-mcp",
        lambda node, _: [
            *node.command("chrome-devtools-mcp"),
            *("--headless", "--isolated", "--no-usage-statistics", "--viewport", "1280x720"),
            *("--executablePath", _browser()),
            *("--chromeArg=--no-sandbox", "--chromeArg=--disable-dev-shm-usage"),
        ],
        lambda folder: [
            ("new_page", {"url": (folder / "page.html").as_uri()}),
            ("evaluate_script", {"pageId": 2, "function": "() => document.title"}),
            ("take_snapshot", {"pageId": 2}),
            ("take_screenshot", {"pageId": 2, "format": "jpeg", "quality": 60}),
        ],
        r"/tmp/[\w./-]+",
    ),
    Server(
        "fastmcp",
        lambda _, __: [str(python_of("fastmcp")), str(FOLDER / "fast.py")],
        lambda _: [("rows", {"count": 3}), ("rows", {"count": 4000}), ("chart", {}), ("report", {})],
    ),
)


def installed() -> Node:
    """The servers of npm, installed first if need be."""
    folder = packages(PINS)
    return Node(node_binary(folder), folder)


async def measured(server: Server, node: Node, folder: Path, *, proxied: bool) -> list[Answer]:
    """The answers of a server to its calls, bare or behind the proxy."""
    files_folder = folder / "files"
    command = list(server.command(node, files_folder))
    whole = [*ABP, "--out", str(folder / "store"), "--", *command] if proxied else command
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")}
    started = StdioServerParameters(command=whole[0], args=whole[1:], env=environment, cwd=files_folder)
    answers: list[Answer] = []
    with (folder / "stderr.txt").open("a") as errors:
        async with asyncio.timeout(_SECONDS), Client(stdio_client(started, errlog=errors), mode="legacy") as client:
            about = {
                "server": client.server_info.model_dump(mode="json") if client.server_info else None,
                "tools": [tool.model_dump(mode="json") for tool in (await client.list_tools()).tools],
            }
            answers.append(Answer("tools/list", about))
            for tool, arguments in server.calls(files_folder):
                result = await client.call_tool(tool, dict(arguments))
                answer = Answer(tool, result.model_dump(mode="json", by_alias=True, exclude_none=True))
                for uri in _links(answer.result) if proxied else ():
                    (item,) = (await client.read_resource(uri)).contents
                    data = item.model_dump()
                    content = base64.b64decode(data["blob"]) if "blob" in data else data["text"].encode()
                    answer.contents.append(hashlib.sha256(content).hexdigest())
                answers.append(answer)
    return answers


def _links(result: Mapping[str, Any]) -> list[str]:
    return [block["uri"] for block in result["content"] if block["type"] == "resource_link" and _is_ours(block["uri"])]


def _is_ours(uri: str) -> bool:
    return uri.startswith("artifact://")


def large_values(node: object) -> Iterator[str]:
    """SHA-256 of each large value of a bare answer: of a text, and of what it is as base64."""
    if isinstance(node, dict):
        for value in node.values():
            yield from large_values(value)
    elif isinstance(node, list):
        for value in node:
            yield from large_values(value)
    elif isinstance(node, str) and len(node) > 1000:
        yield hashlib.sha256(node.encode()).hexdigest()
        with suppress(ValueError):
            yield hashlib.sha256(base64.b64decode(node, validate=True)).hexdigest()


def compare(server: Server, bare: Sequence[Answer], proxied: Sequence[Answer]) -> None:
    """Raise :class:`AssertionError` unless small answers are equal, and large ones whole behind their links."""
    assert len(bare) == len(proxied)
    for answer, behind in zip(bare, proxied, strict=True):
        if answer.size <= LIMIT or answer.tool == "tools/list":
            assert _plain(server, answer) == _plain(server, behind), (server.name, answer.tool)
            assert not behind.contents
        else:
            assert behind.size < LIMIT, (server.name, answer.tool, behind.size)
            whole = set(large_values(answer.result))
            structured = answer.result.get("structuredContent")
            if structured is not None:
                whole.add(hashlib.sha256(json.dumps(structured, separators=(",", ":")).encode()).hexdigest())
            assert behind.contents and set(behind.contents) <= whole, (server.name, answer.tool, behind.result)


def _plain(server: Server, answer: Answer) -> str:
    text = json.dumps(answer.result)
    return re.sub(server.volatile, "…", text) if server.volatile else text
