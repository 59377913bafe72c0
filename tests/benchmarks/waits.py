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

from tests.benchmarks.measure import Way, in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row

__all__ = ["waits"]

_KIT = ("-m", "transports.surfaces.cli")
_HELP = "import argparse; argparse.ArgumentParser(description='Drive apps').parse_args(['--help'])"
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


async def waits(bench: Bench) -> list[Row]:
    """Help, and the first answer of the bridge."""
    return [await _help(bench), await _bridge(bench)]


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
