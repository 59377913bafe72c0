"""Pages of one text, served at every path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer


@asynccontextmanager
async def serve_page(html: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """The address of a server that answers ``html``."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))
