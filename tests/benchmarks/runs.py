"""``abp batch run``, whole processes, against a loop written by hand. ``ABP_BENCH_JOBS`` is another number of jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from tests.benchmarks.batch import beside_loop
from tests.benchmarks.measure import at_once, in_turns, python
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row

__all__ = ["whole_runs"]

#: Sessions in one browser, on both sides.
_SESSIONS = "4"
_BATCH = ("-m", "transports.surfaces.cli", "batch", "run")


async def whole_runs(bench: Bench) -> list[Row]:
    """Many small calls whose answers are kept: what a shell waits for, from the start of Python to its end."""
    many = int(os.environ.get("ABP_BENCH_JOBS", 50 if bench.quick else 100))
    folders = count()

    def folder() -> Path:
        path = bench.folder / f"run-{next(folders)}"
        path.mkdir()
        return path

    jobs = _write_jobs(bench.folder / "jobs.jsonl", range(many))

    async def batch() -> None:
        place = ("--out", folder(), "--target", bench.url, "--browsers", "1", "--concurrency", _SESSIONS)
        await python(*_BATCH, jobs, *place, "-q", PYTHONDONTWRITEBYTECODE="")

    async def loop() -> None:
        arguments = (bench.url, jobs, folder(), _SESSIONS)
        await python("-m", "tests.benchmarks.by_hand", *arguments, PYTHONDONTWRITEBYTECODE="")

    ways = {"loop": at_once(loop, many), "batch": at_once(batch, many)}
    times = await in_turns(ways, rounds=1 if bench.quick else 2, warm=False)
    ours = min(times["batch"])
    row = beside_loop(
        "`abp batch run`, the whole process",
        ours,
        min(times["loop"]),
        baseline="asyncio workers written by hand over one Browser, their whole process, the same jobs and store",
        measured=f"{1 / ours:,.0f} jobs a second of {many:,}, {_SESSIONS} sessions in one browser",
        reason="each job is written to the ledger three times, and to the manifest",
    )
    return [row]


def _write_jobs(path: Path, numbers: Iterable[int]) -> Path:
    with path.open("w") as file:
        for number in numbers:
            params = {"csv": f"number,text\n{number},some words that no other job has, {number}\n"}
            file.write(json.dumps({"id": str(number), "capability": "data.json", "params": params}) + "\n")
    return path
