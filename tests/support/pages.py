"""Pages of one text, served at every path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Page

from transports.playwright import _page_transport as page_transport
from transports.playwright._agent import Channel
from transports.playwright._channels import PlaywrightChannel


@asynccontextmanager
async def serve_page(html: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """The address of a server that answers ``html``."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


def reach_without_cdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pages reached by Playwright's own API, which is all that Firefox and WebKit have."""

    async def evaluating(page: Page) -> Channel:
        return PlaywrightChannel(page)

    monkeypatch.setattr(page_transport, "open_channel", evaluating)
