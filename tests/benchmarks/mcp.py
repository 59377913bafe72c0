"""MCP servers as targets: a large blob and a small text over stdio, against the plain client of the SDK."""

from __future__ import annotations

import hashlib
import random
import statistics
import sys
from functools import partial

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from tests.support.mcp_servers import FOLDER, target
from transports import Message, Result, connect

__all__ = ["mcp_results"]

_SMALL = {"size": 1000}


async def mcp_results(bench: Bench) -> list[Row]:
    """A tool's result, from the call to a verified file, and a small one to the session; the SDK only receives them."""
    size, calls = (10 * MB, 20) if bench.quick else (10 * MB, 100)
    wanted = hashlib.sha256(random.Random(1).randbytes(size)).hexdigest()
    server = StdioServerParameters(command=sys.executable, args=[str(FOLDER / "plain.py")])
    async with (
        Client(server) as plain,
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

        await app.call("blob", {"size": size})  # the server makes it once
        rounds = 2 if bench.quick else 3
        blobs = {
            "received": timed(partial(plain.call_tool, "blob", {"size": size})),
            "kit": timed(partial(app.call, "blob", {"size": size}), then=kept),
        }
        large = await in_turns(blobs, rounds=rounds, warm=False)
        small = {
            "received": timed(partial(plain.call_tool, "text", _SMALL), times=calls),
            "kit": timed(lambda: light.transport.request(message(), timeout=30), times=calls),
            "memory": timed(partial(light.call, "text", _SMALL), times=calls),
            "folder": timed(partial(app.call, "text", _SMALL), times=calls),
        }
        texts = await in_turns(small, rounds=rounds)
    stored = {name: f"{1000 * statistics.median(texts[name]):.2f} ms" for name in ("memory", "folder")}
    return [
        _row(f"MCP over stdio, a blob of {size // MB} MB → verified file", large, 1 / 1.5, "it also stores and syncs"),
        _row(
            "MCP over stdio, a text of 1 KB, received",
            texts,
            1 / 1.3,
            f"with the answer as a file of its own a call takes {stored['memory']} (memory) and {stored['folder']} "
            "(a folder, synced to the disk)",
        ),
    ]


def _row(work: str, times: dict[str, list[float]], least: float, reason: str) -> Row:
    best = {name: 1000 * min(taken) for name, taken in times.items()}
    middle = {name: 1000 * statistics.median(taken) for name, taken in times.items()}
    return Row(
        work,
        "the SDK's own client, which only receives it",
        best["received"] / best["kit"],
        f"{best['kit']:.2f} ms against {best['received']:.2f} ms (medians: {middle['kit']:.2f} and "
        f"{middle['received']:.2f} ms)",
        at_least=least,
        want=1,
        reason=reason,
    )
