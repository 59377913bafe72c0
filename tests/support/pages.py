"""Servers of a page or of a few answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Page

from transports.playwright import _page_transport as page_transport
from transports.playwright._agent import Channel
from transports.playwright._channels import PlaywrightChannel


@asynccontextmanager
async def serve_answers(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The address of a server that answers every request so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@asynccontextmanager
async def serve_page(html: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """The address of a server that answers ``html``."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html", headers=headers)

    async with serve_answers(answer) as url:
        yield url


def app_page(calls: str, *, before: str = "", body: str = "", title: str = "App") -> str:
    """A page with an app; ``calls`` are members of an object: name and function of the parameters and options."""
    return f"""<!doctype html><title>{title}</title><script>{before}</script><body>{body}<script>
{{
  const CALLS = {{ {calls} }}, app = {{ id: "app", name: "{title}", version: "1" }};
  const capabilities = Object.keys(CALLS).map((name) => ({{ name, available: true }}));
  window.abp = {{
    async initialize() {{ return {{ sessionId: "s", protocolVersion: "0.1", app, features: {{}}, capabilities }}; }},
    async call(name, params, options) {{ return {{ success: true, data: await CALLS[name](params, options) }}; }},
    async shutdown() {{}},
  }};
}}</script>"""


def page_speaking(serve: str, *, before: str = "", body: str = "") -> str:
    """A page of the capabilities in ``serve``, in the way that its address names after ``speaks``: as WebMCP "tools",
    whose names end in its ``name``, as "abp", the page's own object, or over postMessage, for "messages"."""
    return f"""<!doctype html><title>App</title>{body}<script>
{before}
const query = new URLSearchParams(location.search), speaks = query.get("speaks"), serve = {{ {serve} }};
const capabilities = Object.keys(serve).map((name) => ({{ name, available: true }}));
const app = {{ id: "a", name: "App", version: "1" }};
const reply = {{ sessionId: "s", protocolVersion: "0.1", app, capabilities, features: {{}} }};
const call = async (name, params) => ({{ success: true, data: await serve[name](params) }});
if (speaks === "tools") for (const name of Object.keys(serve)) document.modelContext.registerTool({{
  name: name + (query.get("name") ?? ""), description: name, execute: serve[name], inputSchema: {{ type: "object" }},
}});
if (speaks === "abp") globalThis.abp = {{ initialize: async () => reply, shutdown: async () => {{}}, call,
  listCapabilities: async () => capabilities }};
if (speaks === "messages") addEventListener("message", async ({{ data: {{ type, id, payload }}, source, origin }}) => {{
  const say = (type, payload) => source.postMessage({{ type, id, timestamp: Date.now(), payload }}, origin);
  if (type === "initialize") say("initialize-result", reply);
  if (type === "capabilities/call") say("capabilities/call-result", await call(payload.capability, payload.params));
}});
</script>"""


def reach_without_cdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pages reached by Playwright's own API, which is all that Firefox and WebKit have."""

    async def evaluating(page: Page) -> Channel:
        return PlaywrightChannel(page)

    monkeypatch.setattr(page_transport, "open_channel", evaluating)
