"""Views of MCP servers: opening one, its tools and its files, against a bare page that speaks with the same view."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.benchmarks.measure import MB, in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row, Table
from tests.support.mcp_servers import FOLDER, target
from transports import Message, connect

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

__all__ = ["views"]

#: A host of 20 lines: the handshake, then input and result; it answers every other request of the view with {}.
_HOST = """([url, origin, input, result]) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  const post = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, origin);
  const waiting = new Map();
  let last = 0;
  globalThis.ask = (method, params) => new Promise((done) => {
    waiting.set(last += 1, done);
    post({ id: last, method, params });
  });
  addEventListener("message", async ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    if (data.method === undefined) return waiting.get(data.id)(data.result);
    const hostContext = { theme: "light" }, hostInfo = { name: "bare", version: "1" };
    const begin = { protocolVersion: "2026-01-26", hostInfo, hostCapabilities: {}, hostContext };
    if (data.id !== undefined) post({ id: data.id, result: data.method === "ui/initialize" ? begin : {} });
    if (data.method !== "ui/notifications/initialized") return;
    post({ method: "ui/notifications/tool-input", params: { arguments: input } });
    post({ method: "ui/notifications/tool-result", params: result });
    resolve(await ask("tools/list", {}));
  });
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.src = url;
  document.body.append(frame);
})"""
_SEND = """async () => (await rpc("ui/download-file", { contents: [
  { type: "resource", resource: { uri: "file:///a.bin", mimeType: "application/octet-stream", blob: globalThis.big } }
] })).result"""


@asynccontextmanager
async def _bare(bench: Bench, client: Client) -> AsyncIterator[Page]:
    """A page with the view of ``board``, opened by a bare script."""
    result = await client.call_tool("board", {"n": 1})
    read = await client.read_resource("ui://views/board.html")
    html: Any = read.contents[0]
    context = await bench.browser.playwright.new_context()
    page = await context.new_page()
    policy = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src data:"

    async def serve(route: Route) -> None:
        if "view" in route.request.url:
            body, headers = html.text, {"Content-Security-Policy": policy}
            await route.fulfill(body=body, content_type="text/html", headers=headers)
        else:
            await route.fulfill(body="<!doctype html><body>", content_type="text/html")

    await page.route("http://*.localhost/**", serve)
    await page.goto("http://host.localhost/")
    shown = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))
    await page.evaluate(_HOST, ["http://view.localhost/", "http://view.localhost", {"n": 1}, shown])
    try:
        yield page
    finally:
        await page.evaluate("ask('ui/resource-teardown', {}).then(() => null)")
        await context.close()


async def views(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Opening a view, a call of its tool, and a file of 16 MB that it hands out."""
    calls, size = (20 if bench.quick else 40), 16 * MB
    rounds = 3
    server = StdioServerParameters(command=sys.executable, args=[str(FOLDER / "views.py")])
    async with (
        Client(server) as client,
        connect(target("views"), browser=bench.browser, store=bench.folder / "store") as app,
    ):

        async def open_bare() -> Sequence[float]:
            started = time.perf_counter()
            async with _bare(bench, client):
                return [time.perf_counter() - started]

        async def open_kit() -> Sequence[float]:
            started = time.perf_counter()
            async with app.open_view("board", {"n": 1}):
                return [time.perf_counter() - started]

        opening = await in_turns({"bare": open_bare, "kit": open_kit}, rounds=rounds, warm=False)

        async def many(call: Callable[[], Awaitable[object]], count: int) -> Sequence[float]:
            taken = []
            for _ in range(count):
                started = time.perf_counter()
                await call()
                taken.append(time.perf_counter() - started)
            return taken

        async with _bare(bench, client) as page, app.open_view("board", {"n": 1}) as view:
            asked = "ask('tools/call', { name: 'echo', arguments: { text: 'a' } })"

            def message() -> Message:
                payload = {
                    "capability": "echo",
                    "params": {"text": "a"},
                    "options": {"callId": "1", "progressToken": "1"},
                }
                return Message("capabilities/call", payload)

            small = await in_turns(
                {
                    "bare": lambda: many(lambda: page.evaluate(asked), calls),
                    "kit": lambda: many(lambda: view.transport.request(message(), timeout=30), calls),
                    "call": lambda: many(lambda: view.call("echo", {"text": "a"}), calls),
                },
                rounds=rounds,
            )
            bare_view = page.main_frame.child_frames[0]
            for frame in (bare_view, view.frame):
                await frame.evaluate(f"() => {{ globalThis.big = btoa('x'.repeat({size})); }}")
            large = await in_turns(
                {
                    "bare": lambda: many(lambda: bare_view.evaluate(_SEND), 1),
                    "kit": lambda: many(lambda: view.frame.evaluate(_SEND), 1),
                },
                rounds=rounds,
                warm=False,
            )
            assert {file.size_bytes for file in view.files} == {size}, "a file is not whole"
    call = f"{1000 * statistics.median(small['call']):.2f} ms"
    return [
        _row("opening a view of an MCP server", "a bare script that does the handshake", opening, 0.8),
        _row("a tool of a view", "one round trip of postMessage", small, None, f"`view.call` takes {call}"),
        _row(f"a file of {size // MB} MB of a view → verified file", "the message alone", large, None, "it is stored"),
    ], []


def _row(work: str, baseline: str, times: dict[str, list[float]], least: float | None, reason: str = "") -> Row:
    best = {name: 1000 * min(taken) for name, taken in times.items()}
    middle = {name: 1000 * statistics.median(taken) for name, taken in times.items()}
    measured = (
        f"{best['kit']:.2f} ms against {best['bare']:.2f} ms (medians: {middle['kit']:.2f} and {middle['bare']:.2f} ms)"
    )
    return Row(work, baseline, best["bare"] / best["kit"], "×", measured, least, 1 if least else None, reason)
