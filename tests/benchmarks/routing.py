"""The router alone: a large tool result with files that nobody declared."""

from __future__ import annotations

import base64
import json
import random
from statistics import median

from tests.benchmarks.measure import MB, Way, in_turns, timed
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from transports import LocalStore, Result, Router
from transports.artifacts import ArtifactStore, MemoryStore

__all__ = ["hidden_files"]

_FILES = 10


def _result(size: int) -> tuple[dict[str, object], list[bytes]]:
    """A tool result of about ``size`` bytes as JSON, half rows and half base64, and the files in it."""
    noise = random.Random(1)
    rows = [
        {"id": n, "name": f"Customer {n}", "total": n * 1.25, "paid": True, "note": "Delivered to the back door."}
        for n in range(size // 2 // 105)
    ]
    files = [b"%PDF-1.7\n" + noise.randbytes(size // 2 // _FILES * 3 // 4) for _ in range(_FILES)]
    reports = [{"title": f"Report {n}", "body": base64.b64encode(data).decode()} for n, data in enumerate(files)]
    return {"rows": rows, "reports": reports}, files


async def hidden_files(bench: Bench) -> list[Row]:
    """Finding, decoding, hashing and storing ten files in a result, against writing the same result as JSON."""
    data, files = _result(5 * MB)
    size = len(json.dumps(data))
    wrong = ""

    async def dumps() -> None:
        json.dumps(data)

    def routed(store: ArtifactStore) -> Way:
        async def compare(result: Result) -> None:
            nonlocal wrong
            for n, expected in enumerate(files):
                if await store.get(result.artifacts[f"reports.{n}.body"].id) != expected:
                    wrong = f"file {n} is another one"
            for ref in result.artifacts.values():
                await store.delete(ref.id)

        return timed(lambda: Router(store).route(data, capability="export"), then=compare)

    ways = {
        "dumps": timed(dumps),
        "memory": routed(MemoryStore()),
        "local": routed(LocalStore(bench.folder / "store")),
    }
    times = await in_turns(ways, rounds=5 if bench.quick else 9)
    best = {name: min(taken) for name, taken in times.items()}
    row = Row(
        work=f"{size / MB:.0f} MB of JSON with {_FILES} undeclared files, routed",
        baseline="json.dumps of the same result",
        figure=best["dumps"] / best["memory"],
        at_least=0.33,
        want=0.5,
        measured=f"{1000 * best['memory']:.0f} ms into the memory store, {1000 * best['local']:.0f} ms into the local "
        f"one, against {1000 * best['dumps']:.0f} ms (medians: {1000 * median(times['memory']):.0f}, "
        f"{1000 * median(times['local']):.0f}, {1000 * median(times['dumps']):.0f} ms)",
        reason="every value is looked at in Python; each file is decoded, hashed and stored",
        wrong=wrong,
    )
    return [row]
