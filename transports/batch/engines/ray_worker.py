"""What runs in a Ray actor: one worker of a run, with one browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import ABPError
from ..pool import Pool
from ..running import RunOptions, open_run
from .local import LocalEngine
from .report import WorkReport

__all__ = ["MakePool", "RayWorker"]

#: Makes the pool of a worker that has so many sessions in its one browser. It travels to the worker.
MakePool = Callable[[int], Pool]


class RayWorker:
    """An actor. It takes its jobs from the ledger, and files go from it to the store; nothing of both passes by Ray."""

    def __init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._task: asyncio.Task[WorkReport] | None = None
        self._drained = False

    async def started(self) -> None:
        """Return as soon as the actor is there."""

    async def work(self, place: str, make_pool: MakePool, options: RunOptions) -> WorkReport | ABPError:
        """Work until the run has ended, :meth:`drain` is called or :meth:`stop`. An error of ours is returned: one that
        is raised would come wrapped."""
        self._task = asyncio.current_task()
        try:
            async with open_run(place) as ledger:
                self._engine = LocalEngine(ledger, make_pool(options.concurrency), options)
                if self._drained:
                    self._engine.drain()
                return await self._engine.run()
        except ABPError as error:
            return type(error)(error.message, code=error.code, retryable=error.retryable)
        except asyncio.CancelledError:
            return WorkReport()  # by stop()

    async def drain(self) -> None:
        """Begin no more jobs."""
        self._drained = True
        if self._engine is not None:
            self._engine.drain()

    async def stop(self) -> None:
        """Cancel the jobs that run, and settle them."""
        if self._task is not None:
            self._task.cancel()
