"""Many small calls over a pool, and ``abp batch run`` as whole processes, against loops written by hand.

``ABP_BENCH_JOBS`` is another number of jobs for the processes.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

from tests.benchmarks.measure import at_once, in_turns, python
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from transports import Session, connect
from transports.batch import Job, Pool, State

__all__ = ["pooled_calls", "whole_runs"]

#: Sessions in one browser, on both sides.
_SESSIONS = 4
_CALL = "data.json", {"csv": "name,city\n" + "\n".join(f"person {n},town {n}" for n in range(14))}
_BATCH = ("-m", "transports.surfaces.cli", "batch", "run")


async def pooled_calls(bench: Bench) -> list[Row]:
    """``pool.map`` of small page calls; the sessions of both sides are open before."""
    capability, params = _CALL
    count = 100 if bench.quick else 200

    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(Pool(1, _SESSIONS, store="none:"))
        apps = [
            await stack.enter_async_context(connect(bench.url, browser=bench.browser, store="none:"))
            for _ in range(_SESSIONS)
        ]

        async def by_pool() -> None:
            jobs = (Job(capability, params, bench.url) for _ in range(count))
            outcomes = [outcome async for outcome in pool.map(jobs)]
            assert {outcome.state for outcome in outcomes} == {State.SUCCEEDED} and len(outcomes) == count

        async def by_hand() -> None:
            numbers = iter(range(count))

            async def work(app: Session) -> None:
                for _ in numbers:
                    await app.call(capability, params)

            await asyncio.gather(*map(work, apps))

        ways = {"by hand": at_once(by_hand, count), "pool": at_once(by_pool, count)}
        times = await in_turns(ways, rounds=3, warm=False)

    ours = min(times["pool"])
    row = _beside_loop(
        "small calls over a pool (`pool.map`)",
        ours,
        min(times["by hand"]),
        baseline="asyncio workers written by hand over one Browser, the same jobs and sessions",
        measured=f"{1 / ours:,.0f} calls a second in one browser, {_SESSIONS} sessions",
        reason="each job is leased a session, watched and given an outcome",
    )
    return [row]


async def whole_runs(bench: Bench) -> list[Row]:
    """Many small calls whose answers are kept: what a shell waits for, from the start of Python to its end."""
    many = int(os.environ.get("ABP_BENCH_JOBS", 50 if bench.quick else 100))
    folders = count()

    def folder() -> Path:
        path = bench.folder / f"run-{next(folders)}"
        path.mkdir()
        return path

    jobs = bench.folder / "jobs.jsonl"
    with jobs.open("w") as file:
        for number in range(many):
            params = {"csv": f"number,text\n{number},some words that no other job has, {number}\n"}
            file.write(json.dumps({"id": str(number), "capability": "data.json", "params": params}) + "\n")

    async def batch() -> None:
        place = ("--out", folder(), "--target", bench.url, "--browsers", "1", "--concurrency", str(_SESSIONS))
        await python(*_BATCH, jobs, *place, "-q", PYTHONDONTWRITEBYTECODE="")

    async def loop() -> None:
        arguments = (bench.url, jobs, folder(), str(_SESSIONS))
        await python("-m", "tests.benchmarks.by_hand", *arguments, PYTHONDONTWRITEBYTECODE="")

    ways = {"loop": at_once(loop, many), "batch": at_once(batch, many)}
    times = await in_turns(ways, rounds=1 if bench.quick else 2, warm=False)
    ours = min(times["batch"])
    row = _beside_loop(
        "`abp batch run`, the whole process",
        ours,
        min(times["loop"]),
        baseline="asyncio workers written by hand over one Browser, their whole process, the same jobs and store",
        measured=f"{1 / ours:,.0f} jobs a second of {many:,}, {_SESSIONS} sessions in one browser",
        reason="each job is written to the ledger three times, and to the manifest",
    )
    return [row]


def _beside_loop(work: str, ours: float, theirs: float, *, baseline: str, measured: str, reason: str) -> Row:
    """The row of one work: ``ours`` and ``theirs`` are the seconds of a job by the kit and by the loop."""
    return Row(
        work, baseline, theirs / ours, f"{measured}, against {1 / theirs:,.0f}", at_least=0.8, want=0.9, reason=reason
    )
