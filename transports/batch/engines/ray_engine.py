"""The engine on Ray: as many actors as the ledger's backlog asks for, each a worker with one browser."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import ABPError, ConnectFailed, Disconnected, TransportError, UsageError
from ...tasks import backoff_delay
from ..ledger import Counts, Ledger
from ..running import RunOptions
from .ray_cluster import RayCluster
from .ray_worker import MakePool, RayWorker
from .report import WorkReport

__all__ = ["RayEngine"]

logger = logging.getLogger("transports.batch")

#: Seconds between two looks at the ledger and the actors.
_LOOK = 0.5
#: How often in a row actors may be lost while no job ends.
_MAX_FAILURES = 5
#: Seconds for the actors to settle their jobs once they are told to stop.
_STOP = 15.0
#: Seconds for an actor to start where a CPU is free, and where it waits for one while no other actor works.
_START, _ROOM = 90.0, 600.0
#: Seconds between two looks at the cluster.
_CHECK = 5.0


@dataclass(slots=True)
class _Actor:
    handle: Any
    started: Any
    answer: Any
    begun: float = field(default_factory=time.monotonic)
    works: bool = False
    drained: bool = False


class RayEngine:
    """Workers of a run in Ray actors with one browser each, on the Ray cluster at ``address`` or on a local one.

    ``place`` is the run's ledger where an actor finds it: its folder, or a ``postgresql://`` address. ``make_pool``
    makes the pool of an actor. ``browsers`` is how many actors there are at most, by default one for each CPU of the
    cluster. The limits of ``options`` hold for all of them together: ``concurrency`` and ``rate`` are shared out.
    ``shared`` says that other machines reach the ledger and the store. ``on_counts`` is told how the run stands.

    An actor that is lost, or does not start, is replaced, and so is a local cluster that has ended; the jobs of lost
    actors are queued again or ``unknown``, as those of any worker that is lost.
    Raises :class:`~transports.errors.UsageError` without Ray.
    """

    def __init__(
        self,
        ledger: Ledger,
        place: str,
        make_pool: MakePool,
        options: RunOptions,
        *,
        address: str | None = None,
        browsers: int | None = None,
        shared: bool = True,
        on_counts: Callable[[Counts], object] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._place = place
        self._make_pool = make_pool
        self._options = options
        self._browsers = browsers
        self._shared = shared
        self._on_counts = on_counts
        self._cluster = RayCluster(address, min(browsers or os.cpu_count() or 1, options.concurrency))
        self._actors: dict[int, _Actor] = {}
        self._stopped = False
        self._wake = asyncio.Event()
        self._calls = 0
        self._recycled: Counter[str] = Counter()
        self._failures, self._not_before, self._open = 0, 0.0, 0
        self._checked = 0.0

    def drain(self) -> None:
        """Begin no more jobs."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> WorkReport:
        """Run jobs to the end. Raises :class:`~transports.errors.ConnectFailed` for a cluster that does not answer,
        :class:`~transports.errors.UsageError` for other machines that do not reach the ledger and the store, and what
        actors raise of which none gets a job done."""
        end = None if self._options.deadline is None else time.monotonic() + self._options.deadline
        async with self._cluster:
            if not self._shared and await self._cluster.is_elsewhere():
                raise UsageError(
                    "the Ray cluster has other machines, which do not reach the run's folder; name what they reach: "
                    "--ledger postgresql://HOST/DATABASE?run=NAME and --store s3://BUCKET/PREFIX"
                )
            shares = self._shares(self._browsers or await self._cluster.cores())
            try:
                while True:
                    self._stopped = self._stopped or (end is not None and time.monotonic() >= end)
                    counts = await self._ledger.counts()
                    self._on_counts(counts)
                    await self._collect(counts)
                    waiting = await self._waiting()
                    if time.monotonic() >= self._checked + _CHECK:
                        self._checked = time.monotonic()
                        lost = await self._cluster.is_lost()  # if the head is gone, Ray ends this process in a minute
                        if waiting and counts.open and not self._stopped:
                            await self._check_starts(waiting, lost=lost)
                    if not self._actors and (self._stopped or not counts.open):
                        return WorkReport(self._calls, dict(self._recycled))
                    await self._scale(shares, 0 if self._stopped else counts.open, end)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), _LOOK)
                    self._wake.clear()
            finally:
                await self._stop()

    def _shares(self, count: int) -> list[RunOptions]:
        """What each of ``count`` actors may do, so that all together keep the limits."""
        rate = self._options.rate
        most_actors = self._options.concurrency
        if rate is not None:  # each may begin with two jobs at once: together with a second's worth at most
            most_actors = min(most_actors, max(1, int(rate / 2)))
        count = min(count, most_actors)
        most, more = divmod(self._options.concurrency, count)
        rate = None if rate is None else rate / count
        return [replace(self._options, concurrency=most + (at < more), rate=rate) for at in range(count)]

    async def _scale(self, shares: list[RunOptions], backlog: int, end: float | None) -> None:
        """Have an actor for each share that ``backlog`` jobs want; let those that are more end."""
        for at, share in enumerate(shares):
            actor = self._actors.get(at)
            if backlog > 0 and actor is None and time.monotonic() >= self._not_before:
                left = None if end is None else max(end - time.monotonic(), 0.001)
                options = replace(share, deadline=left)
                started = await self._cluster.start(RayWorker, "work", self._place, self._make_pool, options)
                self._actors[at] = _Actor(*started)
            elif backlog <= 0 and actor is not None:
                if not actor.drained:
                    actor.drained = True
                    await self._cluster.tell(actor.handle, "drain")
                elif not actor.works:  # it was told before it started, if it ever does: it has no job
                    del self._actors[at]
                    await self._cluster.kill(actor.handle)
            backlog -= share.concurrency

    async def _collect(self, counts: Counts) -> None:
        """Take the actors that have ended away, and note what became of them."""
        if counts.open != self._open:
            self._open, self._failures = counts.open, 0
        ready = await self._cluster.answered([actor.answer for actor in self._actors.values()])
        for at, actor in [*self._actors.items()]:
            if actor.answer not in ready:
                continue
            del self._actors[at]
            told = await self._cluster.result(actor.answer)
            await self._cluster.kill(actor.handle)
            if isinstance(told, WorkReport):
                self._calls += told.calls
                self._recycled.update(told.recycled)
            elif isinstance(told, ABPError):
                self._lost(told)

    async def _check_starts(self, waiting: dict[int, _Actor], *, lost: bool) -> None:
        """Replace what keeps actors from starting: the connection to a cluster that has ended (``lost``), or an actor
        itself."""
        now = time.monotonic()
        if lost:
            self._actors.clear()
            await self._cluster.reopen()
            self._lost(Disconnected("the Ray cluster has ended, or its part on this machine"))
            return
        late = [at for at, actor in waiting.items() if now >= actor.begun + _START]
        if late and await self._cluster.has_room():
            for at in late:
                await self._cluster.kill(self._actors.pop(at).handle)
                self._lost(ConnectFailed(f"an actor on Ray did not start within {_START:g} s"))
        elif len(waiting) == len(self._actors) and now >= min(actor.begun for actor in waiting.values()) + _ROOM:
            raise ConnectFailed(
                f"no actor found a free CPU on Ray within {_ROOM:g} s; end other work there, or add machines (`ray "
                "status` shows both), then run the same command again"
            )

    async def _waiting(self) -> dict[int, _Actor]:
        """The actors that have not started yet."""
        waiting = {at: actor for at, actor in self._actors.items() if not actor.works}
        ready = await self._cluster.answered([actor.started for actor in waiting.values()])
        for actor in waiting.values():
            actor.works = actor.started in ready
        return {at: actor for at, actor in waiting.items() if not actor.works}

    def _lost(self, error: ABPError) -> None:
        self._recycled["ended"] += 1
        logger.warning("a worker was lost: %s", error.message)
        if time.monotonic() < self._not_before:  # begun before the last failure: a machine takes all its actors along
            return
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            if isinstance(error, TransportError):
                raise type(error)(f"{error.message}, as {self._failures - 1} before it; {self._cluster.advice}")
            raise error
        self._not_before = time.monotonic() + backoff_delay(self._failures)

    async def _stop(self) -> None:
        """Have the actors that still work cancel their jobs and settle them; end them."""
        with contextlib.suppress(ConnectFailed):
            for actor in self._actors.values():
                await self._cluster.tell(actor.handle, "stop")
            until = time.monotonic() + _STOP
            waiting = await self._waiting()
            answers = [actor.answer for at, actor in self._actors.items() if at not in waiting]
            while len(await self._cluster.answered(answers)) < len(answers) and time.monotonic() < until:
                await asyncio.sleep(0.1)
            for actor in self._actors.values():
                await self._cluster.kill(actor.handle)
