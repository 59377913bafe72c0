"""An app of a few lines, whose own loading hides nothing of what a session adds to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

__all__ = ["serve_empty_app"]

_PAGE = """<!doctype html>
<title>Empty</title>
<script>
window.abp = {
  async initialize() { return { sessionId: "1", protocolVersion: "0.1", app: { id: "empty", name: "Empty" } }; },
  async listCapabilities() { return [{ name: "nothing" }]; },
  async call() { return { success: true, data: null }; },
  async shutdown() {},
};
</script>
"""


async def _answer(_: web.Request) -> web.Response:
    return web.Response(text=_PAGE, content_type="text/html")


@asynccontextmanager
async def serve_empty_app() -> AsyncIterator[str]:
    """Serve the app while the block lasts; its address."""
    app = web.Application()
    app.router.add_get("/", _answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))
