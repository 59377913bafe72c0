"""Clients that share a server over HTTP do not hear of each other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.support.mcp_http import ANN
from tests.support.mcp_servers import FOLDER
from tests.surfaces.proxy.test_http import served
from transports.surfaces.mcp.proxy._upstream import server_of

pytestmark = pytest.mark.load

TALKATIVE = server_of([sys.executable, str(FOLDER / "talkative.py")])
MODERN = max(MODERN_PROTOCOL_VERSIONS)


def call(name: str, **arguments: object) -> dict[str, object]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@asynccontextmanager
async def newest(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client without a session. All of them use the same ids and tokens."""
    headers = {"Authorization": f"Bearer {ANN}", "MCP-Protocol-Version": MODERN}
    async with aiohttp.ClientSession(url.removesuffix("/mcp"), headers=headers) as http:
        yield http


async def test_http_proxy_isolates_clients_sharing_a_server(tmp_path: Path) -> None:
    async with served(tmp_path, TALKATIVE) as url, newest(url) as ann, newest(url) as eve, asyncio.timeout(60):
        async with eve.post("/mcp", json=call("hold")) as listening, ann.post("/mcp", json=call("hold")) as beside:
            begun = await listening.content.readuntil(b"\n\n")  # its progress: the server has the call
            assert b'"p"' in begun and b'"p"' in await beside.content.readuntil(b"\n\n")
            async with ann.post("/mcp", json=call("spill", secret="of-ann")) as spilled:
                heard = await spilled.text()
            assert '"text": "spill"' in heard or '"text":"spill"' in heard
            async with ann.post("/mcp", json=call("release")) as released:
                await released.text()
            overheard = begun.decode() + (await listening.content.read()).decode()
        assert "hold" in overheard and "of-ann" not in overheard and overheard.count('"p"') == 1


async def test_client_cannot_end_or_answer_call_of_another_client(tmp_path: Path) -> None:
    async with served(tmp_path, TALKATIVE) as url, newest(url) as ann, newest(url) as eve, asyncio.timeout(60):
        async with ann.post("/mcp", json=call("hold")) as held:
            await held.content.readuntil(b"\n\n")
            for forged in (
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
                {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "forged"}]}},
            ):
                async with eve.post("/mcp", json=forged) as ignored:
                    assert ignored.status == 202
            async with eve.post("/mcp", json=call("release")) as released:
                assert "hold" not in await released.text()
            answered = (await held.content.read()).decode()
        assert "hold" in answered and "forged" not in answered and '"id":1' in answered.replace(" ", "")


async def test_field_that_looks_like_an_id_does_not_fail_answer(tmp_path: Path) -> None:
    async with (
        served(tmp_path, TALKATIVE) as url,
        newest(url) as ann,
        asyncio.timeout(60),
        ann.post("/mcp", json=call("odd")) as answered,
    ):
        text = (await answered.text()).replace(" ", "")
    assert '"requestId":1e400' in text and '"text":"odd"' in text and '"id":1,' in text
