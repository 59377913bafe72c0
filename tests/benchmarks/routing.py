"""The router alone: a large tool result with files that nobody declared."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.measure import MB, in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row, Table
from transports import LocalStore, Router
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


def _write_by_hand(data: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir()
    references = []
    for number, report in enumerate(data["reports"]):
        content = base64.b64decode(report["body"], validate=True)
        (folder / f"{number}.pdf").write_bytes(content)
        references.append({"title": report["title"], "sha256": hashlib.sha256(content).hexdigest()})
    (folder / "answer.json").write_text(json.dumps({**data, "reports": references}))


async def hidden_files(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Finding, decoding, hashing and storing ten files in a result, against writing the same result as JSON."""
    data, files = _result(5 * MB)
    size = len(json.dumps(data))
    wrong = ""

    async def dumps() -> Sequence[float]:
        started = time.perf_counter()
        json.dumps(data)
        return [time.perf_counter() - started]

    async def routed(store: ArtifactStore) -> Sequence[float]:
        nonlocal wrong
        started = time.perf_counter()
        result = await Router(store).route(data, capability="export")
        taken = time.perf_counter() - started
        for n, expected in enumerate(files):
            if await store.get(result.artifacts[f"reports.{n}.body"].id) != expected:
                wrong = f"file {n} is another one"
        for ref in result.artifacts.values():
            await store.delete(ref.id)
        return [taken]

    async def by_hand() -> Sequence[float]:
        started = time.perf_counter()
        await asyncio.to_thread(_write_by_hand, data, bench.folder / "by-hand")
        taken = time.perf_counter() - started
        shutil.rmtree(bench.folder / "by-hand")
        return [taken]

    local = LocalStore(bench.folder / "store")
    ways = {
        "dumps": dumps,
        "by hand": by_hand,
        "memory": lambda: routed(MemoryStore()),
        "local": lambda: routed(local),
    }
    times = await in_turns(ways, rounds=5 if bench.quick else 9)
    best = {name: min(taken) for name, taken in times.items()}
    row = Row(
        work=f"{size / MB:.0f} MB of JSON with {_FILES} undeclared files, routed",
        baseline="json.dumps of the same result",
        figure=best["dumps"] / best["memory"],
        unit="×",
        at_least=0.33,
        want=0.5,
        measured=f"{1000 * best['memory']:.0f} ms into the memory store, {1000 * best['local']:.0f} ms into the local "
        f"one, against {1000 * best['dumps']:.0f} ms (medians: {1000 * median(times['memory']):.0f}, "
        f"{1000 * median(times['local']):.0f}, {1000 * median(times['dumps']):.0f} ms)",
        reason="every value is looked at in Python; each file is decoded, hashed and stored",
        wrong=wrong,
    )
    beside = Row(
        work=f"{row.work} into the local store, beside its limit",
        baseline="a program that knows where the files are: decoded, hashed and written, the rest as JSON",
        figure=best["by hand"] / best["local"],
        unit="×",
        measured=f"{1000 * best['local']:.0f} ms against {1000 * best['by hand']:.0f} ms; the kit finds the files, "
        "syncs them to the disk and keeps a record of each",
    )
    return [row, beside], []
