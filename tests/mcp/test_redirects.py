"""An MCP server behind an address does not lead what it is sent elsewhere."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from transports import connect
from transports.errors import ABPError


async def test_a_redirect_is_not_followed_with_headers_or_messages() -> None:
    seen: list[tuple[str, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("X-Key")))
        if request.path == "/there":
            return web.Response(status=400)
        return web.Response(status=307, headers={"Location": str(there.make_url("/there"))})

    def app() -> web.Application:
        made = web.Application()
        made.router.add_route("*", "/{path:.*}", answer)
        return made

    async with TestServer(app()) as here, TestServer(app()) as there:
        with pytest.raises(ABPError):
            async with connect(f"mcp+{here.make_url('/mcp')}", headers={"X-Key": "k3y-value"}, timeout=2):
                pass
    assert seen and {path for path, _ in seen} == {"/mcp"}
