"""Messages of a gigabyte through ``abp proxy``: they never become memory of a gigabyte, whichever way they go."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import aiohttp
from aiohttp import web

from tests.support.gigabytes import PROGRAM, answer, counted, hello, parts, sum_of
from transports.artifacts import open_store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
GIGABYTE = 1_000_000_000
#: Most bytes by which the proxy may grow, and seconds for one test.
GROWTH, SECONDS = 60_000_000, 900
TOKEN = "ann-0123456789abcdef"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
KINDS = ("base64", "text", "numbers", "rows")
PASSES = ("--max-inline", str(2 * GIGABYTE))


def peak(process: asyncio.subprocess.Process) -> int:
    """The most memory in bytes that a process has had."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("the largest memory of a process is read from /proc")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@asynccontextmanager
async def proxy(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    own = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), "ABP_MCP_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "transports.surfaces.cli", "proxy", "--out", str(folder / "store"), *arguments),
        env={**os.environ, **own},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if "--http" in arguments else None,
        limit=1 << 20,
    )
    try:
        async with asyncio.timeout(SECONDS):
            yield process
    finally:
        process.terminate()
        await process.communicate()


def message(identity: int | None, method: str, params: object) -> bytes:
    own = {} if identity is None else {"id": identity}
    return json.dumps({"jsonrpc": "2.0", **own, "method": method, "params": params}).encode()


def called(identity: int, kind: str, size: int = GIGABYTE) -> bytes:
    return message(identity, "tools/call", {"name": "give", "arguments": {"kind": kind, "size": size}})


def long_call(size: int) -> Iterator[bytes]:
    """A call with so many bytes of arguments."""
    yield b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"give","arguments":{"text":"'
    piece = b"0123456789abcdef" * 65536
    for _ in range(size // len(piece)):
        yield piece
    yield b'"}}}'


def check(result: dict[str, Any]) -> str:
    """A result whose content has been replaced: the artifact."""
    assert len(json.dumps(result)) < 20_000
    (about,) = result["_meta"]["abp-transports/artifacts"].values()
    uri: str = about["uri"]
    return uri


def content(kind: str) -> Iterator[bytes]:
    """The content of a result of a gigabyte."""
    for piece in parts(kind, GIGABYTE):
        if kind == "base64":
            yield b"" if piece[:1] in b'{"' else base64.b64decode(piece)
        elif kind == "text":
            yield b"" if piece[:1] in b'{"' else piece.replace(b"\\n", b"\n")
        elif piece.startswith(b"{"):
            yield piece.partition(b'"structuredContent":')[2]
        else:
            yield piece.replace(b"]}}", b"]}")


async def stored(folder: Path, uri: str) -> tuple[int, str]:
    """Size and SHA-256 of a stored file, as it is read."""
    sum_, size = hashlib.sha256(), 0
    async with open_store(folder / "store") as store:
        async for chunk in store.open(await store.stat(uri.partition("://")[2])):
            sum_.update(chunk)
            size += len(chunk)
    return size, sum_.hexdigest()


# --- stdio ------------------------------------------------------------------------------------------------------------


class Stdio:
    """A client over pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    async def send(self, pieces: Iterator[bytes]) -> None:
        for piece in (*pieces, b"\n"):
            self.stdin.write(piece)
            await self.stdin.drain()

    async def result(self, request: bytes) -> Any:
        await self.send(iter([request]))
        return json.loads(await self.stdout.readline())["result"]

    async def open(self) -> None:
        """The handshake, and a message that is only long."""
        await self.result(message(0, "initialize", HELLO))
        await self.send(iter([message(None, "notifications/initialized", {})]))
        await self.result(message(1, "tools/list", {}))
        await self.send(iter([called(2, "base64", 8_000_000)]))
        await self.line()

    async def line(self) -> tuple[int, str]:
        """Size and SHA-256 of a line."""
        sum_, size = hashlib.sha256(), 0
        while True:
            chunk = await self.stdout.read(1 << 20)
            sum_.update(chunk.removesuffix(b"\n"))
            size += len(chunk)
            if chunk.endswith(b"\n") or not chunk:
                return size - 1, sum_.hexdigest()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_gigabyte_of_a_started_server_is_stored(tmp_path: Path, kind: str) -> None:
    async with proxy(tmp_path, "--", sys.executable, PROGRAM) as process:
        client = Stdio(process)
        await client.open()
        before = peak(process)
        uri = check(await client.result(called(3, kind)))
        assert peak(process) - before < GROWTH
        assert await stored(tmp_path, uri) == sum_of(content(kind))


@pytest.mark.parametrize("kind", ["base64", "rows"])
async def test_a_gigabyte_that_stays_passes_from_a_started_server(tmp_path: Path, kind: str) -> None:
    async with proxy(tmp_path, *PASSES, "--", sys.executable, PROGRAM) as process:
        client = Stdio(process)
        await client.open()
        before = peak(process)
        await client.send(iter([called(3, kind)]))
        assert await client.line() == sum_of(answer(3, kind, GIGABYTE))
        assert peak(process) - before < GROWTH


async def test_a_gigabyte_of_arguments_reaches_a_started_server(tmp_path: Path) -> None:
    async with proxy(tmp_path, "--", sys.executable, PROGRAM) as process:
        client = Stdio(process)
        await client.open()
        before = peak(process)
        await client.send(long_call(GIGABYTE))
        said = json.loads(await client.stdout.readline())["result"]["content"][0]["text"]
        assert said == "{} {}".format(*sum_of(long_call(GIGABYTE)))
        assert peak(process) - before < GROWTH


# --- HTTP -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def server(*, events: bool) -> AsyncIterator[str]:
    """The address of a server that answers with one JSON document, or with events."""

    async def post(request: web.Request) -> web.StreamResponse:
        head = await request.content.read(1 << 16)
        if not request.content.at_eof() or len(head) == 1 << 16:
            sum_, size = hashlib.sha256(head), len(head)
            async for chunk in request.content.iter_chunked(1 << 20):
                sum_.update(chunk)
                size += len(chunk)
            return web.json_response(counted(4, size, sum_.hexdigest()))
        asked = json.loads(head)
        if asked["method"] != "tools/call":
            said = hello(asked)
            return web.Response(status=202) if said is None else web.json_response(said)
        given = asked["params"]["arguments"]
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream" if events else "application/json"})
        await out.prepare(request)
        await out.write(b"data: " if events else b"")
        for piece in answer(asked["id"], given["kind"], given["size"]):
            await out.write(piece)
        await out.write(b"\n\n" if events else b"")
        return out

    app = web.Application()
    app.router.add_post("/mcp", post)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def http_client(process: asyncio.subprocess.Process) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A client with a handshake, which has had a message that is only long, and the proxy's address."""
    assert process.stderr is not None
    while b"serving at" not in (said := await process.stderr.readline()):
        assert said, "the proxy has ended"
    url = said.decode().split()[-1]
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers, read_bufsize=1 << 20) as http:
        async with http.post(url, data=message(0, "initialize", HELLO)) as opened:
            session = opened.headers["mcp-session-id"]
            await opened.read()
        http.headers["mcp-session-id"] = session
        await http.post(url, data=message(None, "notifications/initialized", {}))
        async with http.post(url, data=called(2, "base64", 8_000_000)) as long:
            await long.read()
        yield http, url


async def event(chunks: AsyncIterable[bytes]) -> tuple[int, str]:
    """Size and SHA-256 of the data of one event, whose comments are short."""
    sum_, size, head = hashlib.sha256(), 0, b""
    held = b""
    async for chunk in chunks:
        if not size:
            head += chunk
            if b"data: " not in head:
                continue
            chunk = head.partition(b"data: ")[2]
        held += chunk
        sum_.update(held[:-2])
        size += len(held[:-2])
        held = held[-2:]
    assert held == b"\n\n"
    return size, sum_.hexdigest()


@pytest.mark.parametrize(("kind", "events"), [("base64", False), ("base64", True), ("rows", False)])
async def test_a_gigabyte_over_http_is_stored(tmp_path: Path, kind: str, events: bool) -> None:
    async with server(events=events) as behind, proxy(tmp_path, "--url", behind, "--http", "127.0.0.1:0") as process:
        async with http_client(process) as (http, url):
            before = peak(process)
            async with http.post(url, data=called(3, kind)) as answered:
                text = await answered.text()
            uri = check(json.loads(text.partition("data: ")[2])["result"])
            assert peak(process) - before < GROWTH
        assert await stored(tmp_path, uri) == sum_of(content(kind))


async def test_a_gigabyte_that_stays_passes_over_http(tmp_path: Path) -> None:
    async with (
        server(events=False) as behind,
        proxy(tmp_path, *PASSES, "--url", behind, "--http", "127.0.0.1:0") as process,
        http_client(process) as (http, url),
    ):
        before = peak(process)
        async with http.post(url, data=called(3, "base64")) as answered:
            assert await event(answered.content.iter_chunked(1 << 20)) == sum_of(answer(3, "base64", GIGABYTE))
        assert peak(process) - before < GROWTH


async def test_the_longest_request_over_http_passes(tmp_path: Path) -> None:
    async def body(size: int) -> AsyncIterator[bytes]:
        for piece in long_call(size):
            yield piece

    async with (
        server(events=False) as behind,
        proxy(tmp_path, "--url", behind, "--http", "127.0.0.1:0") as process,
        http_client(process) as (http, url),
    ):
        before = peak(process)
        async with http.post(url, data=body(136 << 20)) as answered:
            said = json.loads((await answered.text()).partition("data: ")[2])["result"]["content"][0]["text"]
        assert said == "{} {}".format(*sum_of(long_call(136 << 20)))
        async with http.post(url, data=body(138 << 20)) as refused:
            assert refused.status == 413 and (await refused.json())["error"]["data"]["code"] == "TOO_LARGE"
        assert peak(process) - before < GROWTH
