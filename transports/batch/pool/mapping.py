"""Many jobs at once, read only as fast as their outcomes are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable

from ...tasks import cancel_and_wait
from ..jobs import Job
from ..outcome import Outcome

__all__ = ["run_all"]


async def run_all(
    jobs: Iterable[Job] | AsyncIterable[Job], run: Callable[[Job], Awaitable[Outcome]], count: int
) -> AsyncGenerator[Outcome, None]:
    """Run jobs, ``count`` of them at once, and yield the outcome of each as it ends.

    Raises what ``jobs`` and ``run`` raise, after the outcomes of those before."""
    waiting, ended = _reading(jobs), 0
    reading = asyncio.Lock()
    outcomes: asyncio.Queue[Outcome | BaseException | None] = asyncio.Queue(count)

    async def work() -> None:
        try:
            while True:
                async with reading:
                    job = await anext(waiting, None)
                if job is None:
                    break
                await outcomes.put(await run(job))
        except Exception as error:  # noqa: BLE001 - of the jobs' source, raised below
            await outcomes.put(error)
        else:
            await outcomes.put(None)

    workers = [asyncio.ensure_future(work()) for _ in range(count)]
    failure: BaseException | None = None
    try:
        while ended < count:
            outcome = await outcomes.get()
            if isinstance(outcome, Outcome):
                yield outcome
            else:
                ended, failure = ended + 1, failure or outcome
        if failure is not None:
            raise failure
    finally:
        await cancel_and_wait(workers)


async def _reading(jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncIterator[Job]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield job
    else:
        for job in jobs:
            yield job
