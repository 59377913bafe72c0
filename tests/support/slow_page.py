"""A page that is only ready some requests after it has loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

_HTML = """<!doctype html><title>Slow</title><body style="margin:0;height:3000px"><script>
addEventListener("load", async () => {
  for (let n = 0; n < 3; n++) await fetch("slow?" + n);
  document.body.style.background = "rgb(200, 30, 40)";
});
</script>"""


@dataclass(slots=True)
class SlowPage:
    """Its address, its colour once it is ready, and the cookies that were sent to it."""

    url: str
    colour: tuple[int, int, int] = (200, 30, 40)
    cookies: list[str] = field(default_factory=list)


@pytest_asyncio.fixture(loop_scope="session")
async def slow_page() -> AsyncIterator[SlowPage]:
    async def page(request: web.Request) -> web.Response:
        served.cookies += request.headers.getall("Cookie", [])
        return web.Response(text=_HTML, content_type="text/html")

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(text="ready")

    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/slow", slow)])
    async with TestServer(app) as server:
        served = SlowPage(str(server.make_url("/")))
        yield served
