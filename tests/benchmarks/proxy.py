"""``abp proxy``: a small call and a large blob through it, against the bare server with the same client."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from functools import partial

import psutil
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from tests.support.mcp_servers import FOLDER

__all__ = ["proxied_results"]

_SMALL = {"size": 1000}


async def proxied_results(bench: Bench) -> list[Row]:
    """A tool's small result and a blob of 10 MB, received by the SDK's client from the server and through the proxy,
    which stores the blob."""
    size, calls, rounds = 10 * MB, 20 if bench.quick else 100, 2 if bench.quick else 3
    server = [sys.executable, str(FOLDER / "plain.py")]
    store = ["--out", str(bench.folder / "proxied")]
    proxy = [sys.executable, "-m", "transports.surfaces.cli", "proxy", *store, "--", *server]
    environment = {**os.environ, "XDG_STATE_HOME": str(bench.folder / "state")}

    def started(command: Sequence[str]) -> Client:
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=environment)
        return Client(stdio_client(parameters, errlog=sys.stderr), mode="legacy")

    async with started(server) as bare, started(proxy) as proxied:
        own = next(one for one in psutil.Process().children() if "proxy" in one.cmdline())

        clients = {"bare": bare, "proxy": proxied}
        small = {name: timed(partial(one.call_tool, "text", _SMALL), times=calls) for name, one in clients.items()}
        large = {name: timed(partial(one.call_tool, "blob", {"size": size})) for name, one in clients.items()}
        texts = await in_turns(small, rounds=rounds)
        await large["proxy"]()
        before = own.memory_info().rss
        blobs = await in_turns(large, rounds=rounds, warm=False)
        grown = (own.memory_info().rss - before) / MB
    return [
        _row("abp proxy, a text of 1 KB through it", texts, 0.6, "a second process reads and writes each message"),
        _row(
            f"abp proxy, a blob of {size // MB} MB → link and verified file", blobs, 0.8, "it also decodes and stores"
        ),
        Row(
            f"abp proxy, memory of the process after blobs of {size // MB} MB",
            "the same after the first one",
            grown,
            f"{grown:.1f} MB more after {rounds + 1} blobs",
            unit="MB",
            at_least=100,
            want=100,
        ),
    ]


def _row(work: str, times: dict[str, list[float]], least: float, reason: str) -> Row:
    middle = {name: 1000 * statistics.median(taken) for name, taken in times.items()}
    best = {name: 1000 * min(taken) for name, taken in times.items()}
    return Row(
        work,
        "the bare server, the same client",
        middle["bare"] / middle["proxy"],
        f"{middle['proxy']:.2f} ms against {middle['bare']:.2f} ms (best: {best['proxy']:.2f} and "
        f"{best['bare']:.2f} ms)",
        at_least=least,
        want=least,
        reason=reason,
    )
