"""What a person waits for: whole processes of the command line, each beside a bare program that does the least.

Medians of a few.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

from tests.benchmarks.filled import filled_store
from tests.benchmarks.measure import Way, in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row, Table
from transports.playwright._find import find_browser

__all__ = ["SERVE", "gallery_address", "waits"]

_KIT = ("-m", "transports.surfaces.cli")
#: ``abp serve`` that says its address as JSON.
SERVE = (*_KIT, "serve", "--json")
_AGENT = "{agent: {name: 'plain', version: '1'}}"
_HELP = "import argparse; argparse.ArgumentParser(description='Drive apps').parse_args(['--help'])"
_LISTED = f"""
import json, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1])
    page = browser.new_page()
    page.goto(sys.argv[2], wait_until="domcontentloaded")
    listed = page.evaluate("() => window.abp.initialize({_AGENT}).then(() => window.abp.listCapabilities())")
    print(json.dumps(listed))
    browser.close()
"""
_SERVER = """
import asyncio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
async def main():
    server = Server("plain")
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
asyncio.run(main())
"""
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
_FILES = "import functools, http.server as h, sys; s = h.ThreadingHTTPServer(('127.0.0.1', 0), " + (
    "functools.partial(h.SimpleHTTPRequestHandler, directory=sys.argv[1])); "
    "print(s.server_port, flush=True); s.serve_forever()"
)


async def waits(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Help, capabilities, the bridge's first answer, and the gallery of many artifacts."""
    return [await _help(bench), await _capabilities(bench), await _bridge(bench), await _gallery(bench)], []


def _row(work: str, baseline: str, times: dict[str, list[float]], reason: str) -> Row:
    ours, theirs = median(times["kit"]), median(times["plain"])
    measured = f"median {1000 * ours:.0f} ms against {1000 * theirs:.0f} ms"
    return Row(work, baseline, theirs / ours, "×", measured, reason=reason)


def _whole(arguments: Sequence[str], environment: dict[str, str]) -> Way:
    """A process from its start to its end."""

    async def turn() -> Sequence[float]:
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment}
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, arguments
        assert printed
        return [time.perf_counter() - started]

    return turn


def _until(
    arguments: Sequence[str],
    environment: dict[str, str],
    ready: Callable[[asyncio.subprocess.Process], Awaitable[object]],
) -> Way:
    """A process from its start until ``ready``; then it is ended."""

    async def turn() -> Sequence[float]:
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        try:
            async with asyncio.timeout(60):
                await ready(process)
            return [time.perf_counter() - started]
        finally:
            process.terminate()
            await process.wait()

    return turn


async def _help(bench: Bench) -> Row:
    ways = {"plain": _whole(["-c", _HELP], {}), "kit": _whole([*_KIT, "--help"], {})}
    times = await in_turns(ways, rounds=3 if bench.quick else 5, warm=False)
    return _row("`abp --help`", "python -c with argparse", times, "its commands are read to be listed")


async def _capabilities(bench: Bench) -> Row:
    browser = find_browser()
    assert browser is not None
    known = {"ABP_BROWSER": browser.path}
    ways = {
        "plain": _whole(["-c", _LISTED, browser.path, bench.url], known),
        "kit": _whole([*_KIT, "capabilities", bench.url], known),
    }
    times = await in_turns(ways, rounds=2, warm=False)
    baseline = "python -c with Playwright's blocking API: launch, goto, initialize, list"
    return _row("`abp capabilities`, the whole process, its browser included", baseline, times, "")


async def _bridge(bench: Bench) -> Row:
    async def answered(process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(_HELLO).encode() + b"\n")
        assert b'"result"' in await process.stdout.readline()

    out = {"ABP_OUTPUT_DIR": str(bench.folder / "bridge")}
    ways = {"plain": _until(["-c", _SERVER], {}, answered), "kit": _until([*_KIT, "mcp"], out, answered)}
    times = await in_turns(ways, rounds=2, warm=False)
    return _row("`abp mcp`, until its first answer", "the SDK's own server without any tool", times, "")


def gallery_address(line: bytes) -> str:
    """The address with its token, from the line that :data:`SERVE` prints."""
    said = json.loads(line)
    return f"{said['url'].rstrip('/')}/#token={said['token']}"


async def _gallery(bench: Bench) -> Row:
    count = 1_000 if bench.quick else 10_000
    folder, plain = await filled_store(bench, count), bench.folder / "plain"
    plain.mkdir()
    lines = "".join(f'<li class="item">file {number}.txt</li>' for number in range(count))
    (plain / "index.html").write_text(f"<!doctype html><title>Files</title><ul>{lines}</ul>")

    def drawn(address: Callable[[bytes], str], shown: str) -> Callable[[asyncio.subprocess.Process], Awaitable[object]]:
        async def ready(process: asyncio.subprocess.Process) -> None:
            assert process.stdout is not None
            page = await context.new_page()
            await page.goto(address(await process.stdout.readline()))
            await page.wait_for_selector(shown)
            await page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

        return ready

    ways = {
        "plain": _until(["-c", _FILES, str(plain)], {}, drawn(lambda line: f"http://127.0.0.1:{int(line)}/", ".item")),
        "kit": _until([*SERVE, "--out", str(folder)], {}, drawn(gallery_address, ".card .name")),
    }
    context = await bench.browser.playwright.new_context()
    try:
        times = await in_turns(ways, rounds=2, warm=False)
    finally:
        await context.close()
    return _row(
        f"`abp serve`, until its page is drawn, {count:,} artifacts",
        "http.server with one page of as many lines",
        times,
        "the artifacts are looked for, and read for the page that is shown",
    )
