"""``abp batch run``, whole processes, against a loop written by hand. ``ABP_BENCH_JOBS`` is another number of jobs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from tests.benchmarks.batch import beside_loop
from tests.benchmarks.measure import in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row

__all__ = ["whole_runs"]

#: Sessions in one browser, on both sides.
_SESSIONS = 4
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

    async def batch() -> Sequence[float]:
        place = ("--out", str(folder()), "--target", bench.url, "--browsers", "1", "--concurrency", str(_SESSIONS))
        return [await _python(*_BATCH, str(jobs), *place, "-q")]

    async def loop() -> Sequence[float]:
        return [await _python("-m", "tests.benchmarks.by_hand", bench.url, str(jobs), str(folder()), str(_SESSIONS))]

    times = await in_turns({"loop": loop, "batch": batch}, rounds=1 if bench.quick else 2, warm=False)
    ours = min(times["batch"]) / many
    theirs = min(times["loop"]) / many
    row = beside_loop(
        "`abp batch run`, the whole process",
        ours,
        theirs,
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


async def _python(*arguments: str, stdout: int | None = None) -> float:
    """The seconds of a whole process."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=env, stdout=stdout)
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert status == 0, (arguments, status)
    return time.perf_counter() - started
