"""Start-up: a session in a running browser, a whole process with one call, and the import of it all."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.benchmarks.measure import Way, in_turns, python, timed
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from transports import connect
from transports.playwright._find import find_browser

__all__ = ["cold_call", "imports", "sessions"]

_AT_ONCE = 8
_AGENT = "{agent: {name: 'plain', version: '1'}}"
_CAPABILITY, _PARAMS = "data.json", {"csv": "a,b\n1,2"}

_PLAIN_PROGRAM = f"""
import json, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1])
    page = browser.new_page()
    page.goto(sys.argv[2], wait_until="domcontentloaded")
    call = "args => window.abp.initialize({_AGENT}).then(() => window.abp.call(...args))"
    print(json.dumps(page.evaluate(call, ["{_CAPABILITY}", {_PARAMS!r}, {{}}])))
    browser.close()
"""
_CLOCKED = "import time; started = time.process_time(); {}; print(time.process_time() - started)"

#: An app of a few lines, whose own loading hides nothing of what a session adds to it.
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


async def sessions(bench: Bench) -> list[Row]:
    """Sessions opened in a browser that runs already, alone and eight at once; against bare Playwright. With an
    app of a few lines, and alone with the reference app, whose own loading is most of the time."""
    async with _serve_empty_app() as empty:
        rows = [await _opened(bench, "an empty app", empty, number) for number in (1, _AT_ONCE)]
    return [*rows, await _opened(bench, "the reference app", bench.url, 1)]


async def _opened(bench: Bench, app: str, url: str, number: int) -> Row:
    async def kit(stack: AsyncExitStack) -> None:
        await stack.enter_async_context(connect(url, browser=bench.browser, store="none:"))

    async def plain(stack: AsyncExitStack) -> None:
        context = await bench.browser.playwright.new_context()
        stack.push_async_callback(context.close)
        page = await context.new_page()
        await page.goto(url, wait_until="domcontentloaded")
        await page.evaluate(f"() => window.abp.initialize({_AGENT}).then(() => window.abp.listCapabilities())")

    def opening(way: Callable[[AsyncExitStack], Awaitable[None]]) -> Way:
        async def turn() -> list[float]:
            async with AsyncExitStack() as stack:  # each closes in the task that opened it
                started = time.perf_counter()
                opened, closing = asyncio.Barrier(number + 1), asyncio.Event()

                async def one() -> None:
                    async with AsyncExitStack() as own:
                        await way(own)
                        await opened.wait()
                        await closing.wait()

                group = await stack.enter_async_context(asyncio.TaskGroup())
                for _ in range(number):
                    group.create_task(one())
                await opened.wait()
                taken = (time.perf_counter() - started) / number
                closing.set()
            return [taken]

        return turn

    rounds = (3 if bench.quick else 4) if number == 1 else (1 if bench.quick else 2)
    times = await in_turns({"plain": opening(plain), "kit": opening(kit)}, rounds=rounds, warm=False)
    ours, theirs = median(times["kit"]), median(times["plain"])
    return Row(
        work=f"session opened in a running browser, {app}" + ("" if number == 1 else f", {number} at once"),
        baseline="bare Playwright: context, page, goto, initialize, list",
        figure=theirs / ours,
        at_least=0.85 if number == 1 else 0.9,
        measured=f"median {1000 * ours:.0f} ms a session against {1000 * theirs:.0f} ms",
        reason="the kit also installs its agent, answers what a browser asks a person, and reads the manifest",
    )


async def cold_call(bench: Bench) -> list[Row]:
    """One call from the command line, browser and all; against a program that does the same with Playwright."""
    browser = find_browser()
    assert browser is not None
    options = [word for key, value in _PARAMS.items() for word in ("-p", f"{key}={value}")]
    kit = ["-m", "transports.surfaces.cli", "call", bench.url, _CAPABILITY, *options, "--json"]
    programs = {
        "plain": ["-c", _PLAIN_PROGRAM, browser.path, bench.url],
        "kit": [*kit, "--out", str(bench.folder / "cold")],
    }
    answers: dict[str, object] = {}

    async def run(name: str) -> None:
        answers[name] = json.loads(await python(*programs[name], ABP_BROWSER=browser.path))["data"]

    times = await in_turns({name: timed(partial(run, name)) for name in programs}, rounds=2, warm=False)
    ours, theirs = median(times["kit"]), median(times["plain"])
    row = Row(
        work="`abp call`, the whole process, its browser included",
        baseline="python -c with Playwright's blocking API: launch, goto, initialize, call",
        figure=theirs / ours,
        at_least=0.9,
        measured=f"median {ours:.2f} s against {theirs:.2f} s",
        reason="the command line, 0.1 s of the processor, is imported before the driver is started",
        wrong="" if answers["kit"] == answers["plain"] else "the two answers differ",
    )
    return [row]


async def imports(bench: Bench) -> list[Row]:
    """What importing costs a fresh process, in processor time."""

    def importing(statement: str) -> Way:
        async def turn() -> Sequence[float]:
            return [float(await python("-c", _CLOCKED.format(statement)))]

        return turn

    ways = {"plain": importing("import playwright.async_api"), "kit": importing("from transports import connect")}
    times = await in_turns(ways, rounds=3 if bench.quick else 5, warm=False)
    ours, theirs = median(times["kit"]), median(times["plain"])
    row = Row(
        work="`from transports import connect`, processor time",
        baseline="import playwright.async_api",
        figure=theirs / ours,
        at_least=1 / 1.5,
        want=1,
        measured=f"median {1000 * ours:.0f} ms against {1000 * theirs:.0f} ms",
    )
    return [row]


async def _answer(_: web.Request) -> web.Response:
    return web.Response(text=_PAGE, content_type="text/html")


@asynccontextmanager
async def _serve_empty_app() -> AsyncIterator[str]:
    """Serve the app while the block lasts; its address."""
    app = web.Application()
    app.router.add_get("/", _answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))
