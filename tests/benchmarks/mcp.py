"""MCP over stdio: a large blob and a small text, of a server as a target and through ``abp proxy``; against the plain
client of the SDK."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median

import psutil
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from tests.support.mcp_servers import FOLDER, target
from transports import Message, Result, connect

__all__ = ["mcp_results", "proxied_results"]

_SMALL = {"size": 1000}
_SIZE = 10 * MB
_LARGE = {"size": _SIZE}
_SERVER = [sys.executable, str(FOLDER / "plain.py")]


async def mcp_results(bench: Bench) -> list[Row]:
    """A tool's result, from the call to a verified file, and a small one to the session; the SDK only receives them."""
    calls, rounds = (20, 2) if bench.quick else (100, 3)
    wanted = hashlib.sha256(random.Random(1).randbytes(_SIZE)).hexdigest()
    async with (
        Client(StdioServerParameters(command=_SERVER[0], args=_SERVER[1:])) as plain,
        connect(target("plain"), store=bench.folder / "store") as app,
        connect(target("plain"), store="memory:") as light,
    ):

        async def kept(result: Result) -> None:
            ref = result.artifacts["content.0.resource.blob"]
            assert ref.sha256 == wanted, "the content is not what the server sent"
            await app.store.delete(ref.id)

        def message() -> Message:
            options = {"callId": "1", "progressToken": "1"}
            return Message("capabilities/call", {"capability": "text", "params": _SMALL, "options": options})

        await app.call("blob", _LARGE)  # the server makes it once
        blobs = {
            "bare": timed(partial(plain.call_tool, "blob", _LARGE)),
            "kit": timed(partial(app.call, "blob", _LARGE), then=kept),
        }
        large = await in_turns(blobs, rounds=rounds, warm=False)
        small = {
            "bare": timed(partial(plain.call_tool, "text", _SMALL), times=calls),
            "kit": timed(lambda: light.transport.request(message(), timeout=30), times=calls),
            "memory": timed(partial(light.call, "text", _SMALL), times=calls),
            "folder": timed(partial(app.call, "text", _SMALL), times=calls),
        }
        texts = await in_turns(small, rounds=rounds)
    stored = {name: f"{1000 * median(texts[name]):.2f} ms" for name in ("memory", "folder")}
    row = partial(_row, "the SDK's own client, which only receives it", min, want=1)
    return [
        row(f"MCP over stdio, a blob of {_SIZE // MB} MB → verified file", large, 1 / 1.5, "it also stores and syncs"),
        row(
            "MCP over stdio, a text of 1 KB, received",
            texts,
            1 / 1.3,
            f"with the answer as a file of its own a call takes {stored['memory']} (memory) and {stored['folder']} "
            "(a folder, synced to the disk)",
        ),
    ]


async def proxied_results(bench: Bench) -> list[Row]:
    """A tool's small result and a blob of 10 MB, received by the SDK's client from the server and through the proxy,
    which stores the blob."""
    calls, rounds = (20, 2) if bench.quick else (100, 3)
    store = ["--out", str(bench.folder / "proxied")]
    proxy = [sys.executable, "-m", "transports.surfaces.cli", "proxy", *store, "--", *_SERVER]
    environment = {**os.environ, "XDG_STATE_HOME": str(bench.folder / "state")}

    def started(command: Sequence[str]) -> Client:
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=environment)
        return Client(stdio_client(parameters, errlog=sys.stderr), mode="legacy")

    async with started(_SERVER) as bare, started(proxy) as proxied:
        own = next(one for one in psutil.Process().children() if "proxy" in one.cmdline())
        clients = {"bare": bare, "kit": proxied}
        small = {name: timed(partial(one.call_tool, "text", _SMALL), times=calls) for name, one in clients.items()}
        large = {name: timed(partial(one.call_tool, "blob", _LARGE)) for name, one in clients.items()}
        texts = await in_turns(small, rounds=rounds)
        await large["kit"]()
        before = own.memory_info().rss
        blobs = await in_turns(large, rounds=rounds, warm=False)
        grown = (own.memory_info().rss - before) / MB
    row = partial(_row, "the bare server, the same client", median)
    blob = f"a blob of {_SIZE // MB} MB"
    return [
        row("abp proxy, a text of 1 KB through it", texts, 0.6, "a second process reads and writes each message"),
        row(f"abp proxy, {blob} → link and verified file", blobs, 0.8, "it also decodes and stores"),
        Row(
            f"abp proxy, memory of the process after blobs of {_SIZE // MB} MB",
            "the same after the first one",
            grown,
            f"{grown:.1f} MB more after {rounds + 1} blobs",
            unit="MB",
            at_least=100,
            want=100,
        ),
    ]


def _row(
    baseline: str,
    of: Callable[[Iterable[float]], float],
    work: str,
    times: dict[str, list[float]],
    least: float,
    reason: str,
    *,
    want: float | None = None,
) -> Row:
    """The ratio of the best or of the medians, and both in words."""
    best, middle = ({name: 1000 * average(taken) for name, taken in times.items()} for average in (min, median))
    return Row(
        work,
        baseline,
        of(times["bare"]) / of(times["kit"]),
        f"{best['kit']:.2f} ms against {best['bare']:.2f} ms (medians: {middle['kit']:.2f} and "
        f"{middle['bare']:.2f} ms)",
        at_least=least,
        want=want or least,
        reason=reason,
    )
