"""Many small calls over a pool, against a loop over sessions written by hand."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tests.benchmarks.measure import at_once, in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from transports import Session, connect
from transports.batch import Job, Pool, State

__all__ = ["beside_loop", "pooled_calls"]

#: Sessions in one browser, on both sides.
_SESSIONS = 4
_CALL = "data.json", {"csv": "name,city\n" + "\n".join(f"person {n},town {n}" for n in range(14))}


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
    row = beside_loop(
        "small calls over a pool (`pool.map`)",
        ours,
        min(times["by hand"]),
        baseline="asyncio workers written by hand over one Browser, the same jobs and sessions",
        measured=f"{1 / ours:,.0f} calls a second in one browser, {_SESSIONS} sessions",
        reason="each job is leased a session, watched and given an outcome",
    )
    return [row]


def beside_loop(work: str, ours: float, theirs: float, *, baseline: str, measured: str, reason: str) -> Row:
    """The row of one work: ``ours`` and ``theirs`` are the seconds of a job by the kit and by the loop."""
    return Row(
        work, baseline, theirs / ours, f"{measured}, against {1 / theirs:,.0f}", at_least=0.8, want=0.9, reason=reason
    )
