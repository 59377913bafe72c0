"""The official conformance suite against ``server-everything``, bare and behind ``abp proxy``."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from tests.hosts.environment import ROOT
from tests.hosts.proxied import ABP
from tests.mcp_official.node import Node
from tests.mcp_official.proxy import proxied
from tests.mcp_official.running import run, serving
from tests.support.eventually import eventually

_TOKEN = "official-0123456789abcdef"
#: A line of the runner's summary: ``✓ tools-list: 3 passed, 0 failed``.
_LINE = re.compile(r"^\s*(?:✓|✗|✔|×)?\s*([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)


async def checks(node: Node, folder: Path, *, behind: bool) -> Mapping[str, tuple[int, int]]:
    """The numbers of passed and failed checks by scenario. Both ways have the same proxy for the token before them."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_everything(node, folder))
        if behind:
            url = await stack.enter_async_context(_proxy(folder, url))
        front = await stack.enter_async_context(proxied(url, _TOKEN))
        _, out, errors = await run([*node.command("conformance"), "server", "--url", front], folder)
    text = out + errors
    scenarios = {name: (int(passed), int(failed)) for name, passed, failed in _LINE.findall(text)}
    assert scenarios, text[-3000:]
    return scenarios


@asynccontextmanager
async def _everything(node: Node, folder: Path) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *node.command("mcp-server-everything"),
        "streamableHttp",
        cwd=folder,
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}/mcp"

        async def answers() -> bool:
            try:
                async with aiohttp.ClientSession() as http, http.get(url):
                    return True
            except aiohttp.ClientError:
                return False

        await eventually(answers)
        yield url
    finally:
        process.terminate()
        await process.wait()


def _proxy(folder: Path, url: str) -> AbstractAsyncContextManager[str]:
    command = [*ABP, "--url", url, "--http", "127.0.0.1:0", "--out", str(folder / "store")]
    own = {"ABP_MCP_TOKEN": _TOKEN, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")}
    return serving(command, {**os.environ, **own})
