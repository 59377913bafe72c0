"""What a person waits for: whole processes of the command line, each beside a bare program that does the least.

Medians of a few.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from statistics import median

from tests.benchmarks.measure import Way, in_turns, python, timed
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
    ways = {"plain": timed(partial(python, "-c", _HELP)), "kit": timed(partial(python, *_KIT, "--help"))}
    helped = await in_turns(ways, rounds=3 if bench.quick else 5, warm=False)
    out = str(bench.folder / "bridge")
    ways = {"plain": _first_answer("-c", _SERVER), "kit": _first_answer(*_KIT, "mcp", ABP_OUTPUT_DIR=out)}
    answered = await in_turns(ways, rounds=2, warm=False)
    return [
        _row("`abp --help`", "python -c with argparse", helped, "its commands are read to be listed"),
        _row("`abp mcp`, until its first answer", "the SDK's own server without any tool", answered, ""),
    ]


def _row(work: str, baseline: str, times: dict[str, list[float]], reason: str) -> Row:
    ours, theirs = median(times["kit"]), median(times["plain"])
    measured = f"median {1000 * ours:.0f} ms against {1000 * theirs:.0f} ms"
    return Row(work, baseline, theirs / ours, measured, reason=reason)


def _first_answer(*arguments: str, **environment: str) -> Way:
    """A server from its start until it has answered; then it is ended."""

    async def turn() -> Sequence[float]:
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(_HELLO).encode() + b"\n")
            async with asyncio.timeout(60):
                assert b'"result"' in await process.stdout.readline()
            return [time.perf_counter() - started]
        finally:
            process.terminate()
            await process.wait()

    return turn
