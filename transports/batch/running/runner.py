"""The loop of one worker: settle what has ended and lease as many jobs as there is room for at once, run them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeAlias

from ...errors import ABPError
from ...tasks import finished
from ..jobs import Job, State
from ..ledger import Leased, Ledger, Settlement
from ..ledger.columns import host_of
from ..outcome import NOT_SENT, Outcome
from .ahead import Ahead, Elapsed
from .limits import HostPauses, Rate, Retries
from .options import RunOptions

__all__ = ["Driver", "Ended", "OnSettled", "Runner"]

logger = logging.getLogger("transports.batch")

#: Seconds between two requests to a ledger that has nothing for this worker now. They double, up to a quarter of a
#: lease: else a thousand workers that wait for others would keep the ledger busy.
_IDLE = 0.4
#: Seconds after which the end of a job is written, however few have ended.
_LATEST = 0.02

OnSettled: TypeAlias = Callable[[Settlement], object]


class Driver(Protocol):
    """What runs one job, such as a :class:`~transports.batch.Pool`."""

    async def run(self, job: Job, /) -> Outcome:
        """Run a job and return its outcome. Raises nothing for what the job does. A cancellation that comes before
        anything of the job was sent is raised with :data:`~transports.batch.outcome.NOT_SENT` as its argument."""


class Ended(StrEnum):
    """Why a worker has ended."""

    #: Every job of the run has a final state.
    DONE = "done"
    #: It was told to stop.
    STOPPED = "stopped"
    #: The deadline of the run has passed.
    DEADLINE = "deadline"


class Runner:
    """Runs the jobs of a ledger with one driver. ``on_settled`` is told of each outcome once it is in the ledger."""

    def __init__(
        self, ledger: Ledger, driver: Driver, options: RunOptions, on_settled: OnSettled = lambda _: None
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._options = options
        self._on_settled = on_settled
        self._rate = Rate(options.rate)
        self._retries = Retries(options.retries)
        self._pauses = HostPauses()
        self._running: dict[str, tuple[Leased, asyncio.Task[None]]] = {}
        self._ahead = Ahead(options)
        self._deadline = math.inf
        #: What is to be written; and what is written, and not told yet.
        self._ended: list[Settlement] = []
        self._written: list[Settlement] = []
        self._wake = asyncio.Event()
        self._latest: asyncio.TimerHandle | None = None
        self._stopped: Ended | None = None
        self._renewed = 0.0
        self._found_nothing = 0

    def drain(self) -> None:
        """Begin no more jobs; :meth:`run` returns when those that run have ended."""
        self._stopped = self._stopped or Ended.STOPPED
        self._wake.set()

    async def run(self) -> Ended:
        """Run jobs until every one has a final state, the deadline passes or :meth:`drain` is called.

        If it is cancelled, the jobs that run are cancelled in their apps and settled: queued again if they are
        idempotent or were not sent, else ``unknown``. Raises :class:`~transports.errors.LedgerError`.
        """
        if self._options.deadline is not None:
            self._deadline = time.monotonic() + self._options.deadline
        work = asyncio.ensure_future(self._work())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stopped = self._stopped or Ended.STOPPED  # at once: the ledger may take long to answer
            work.cancel()
            with contextlib.suppress(Exception):
                await finished(work)
            raise

    async def _work(self) -> Ended:
        try:
            while True:
                await self._keep_leases()
                leased = await self._turn()
                self._begin()
                if not self._holds:
                    if self._stopped:
                        return self._stopped
                    if not leased and await self._ledger.is_done():
                        return Ended.DONE
                await self._wait()
        finally:
            await self._abandon()

    @property
    def _holds(self) -> bool:
        """Whether the ledger has jobs as leased by this worker; those that have ended are until they are written."""
        return bool(self._running or self._ahead or self._ended)

    async def _keep_leases(self) -> None:
        """Renew our leases, and end those of workers that are gone."""
        if time.monotonic() - self._renewed < (self._options.lease_seconds / 4 if self._holds else _IDLE):
            return
        self._renewed = time.monotonic()
        if self._holds:
            await self._ledger.heartbeat(self._options.lease_seconds)
        again, unknown = await self._ledger.expire()
        if again or unknown:
            logger.warning(
                "a worker was lost: %d of its jobs are queued again, %d may have run and are unknown", again, unknown
            )

    async def _turn(self) -> int:
        """Write what has ended, lease as many jobs as there is room for, and return how many they are."""
        self._give_back()
        self._wake.clear()
        room, ended = self._room(), self._take_ended()
        if not ended and not room:
            return 0
        try:
            leased = await finished(asyncio.ensure_future(self._ask(ended, room)))
        finally:
            self._tell()
        if leased:
            await self._rate.take(leased)
        if room:
            self._found_nothing = 0 if leased else self._found_nothing + 1
        return leased

    def _room(self) -> int:
        """How many jobs may be leased now."""
        free = self._options.concurrency + self._ahead.size - len(self._running) - len(self._ahead)
        return 0 if self._stopped else max(self._rate.room(free), 0)

    def _take_ended(self) -> list[Settlement]:
        ended, self._ended = self._ended, []
        if self._latest is not None:
            self._latest.cancel()
        return ended

    def _begin(self) -> None:
        """Start as many of the leased jobs as may run."""
        self._give_back()
        while self._ahead and len(self._running) < self._options.concurrency:
            one = self._ahead.take()
            self._running[one.key] = one, asyncio.create_task(self._run_job(one))

    def _give_back(self) -> None:
        """Give back what was leased and is not begun soon."""
        if time.monotonic() >= self._deadline:
            self._stopped = self._stopped or Ended.DEADLINE
        if dropped := self._ahead.drop(self._pauses.closed(), stopped=self._stopped is not None):
            self._ended += map(_not_begun, dropped)
            self._wake.set()

    async def _ask(self, ended: list[Settlement], room: int) -> int:
        """One transaction of the ledger, and what it means here; return how many jobs were leased. It is not cancelled
        with the worker: what was written is told, and what was leased is given back if it is not begun."""
        asked, limits = Elapsed(), self._options
        try:
            if room:
                held, leased = await self._ledger.settle_and_lease(
                    ended, room, limits.lease_seconds, per_host=limits.per_host, closed=self._pauses.closed()
                )
            else:
                held, leased = await self._ledger.settle(ended), []
        except BaseException:
            self._ended[:0] = ended  # tried once more when the run ends: what is known must not become unknown
            raise
        if held < len(ended):
            logger.warning("%d jobs had been given to another worker meanwhile", len(ended) - held)
        self._written += [one for one in ended if one.begun]
        self._ahead.add(leased, asked, {*self._running, *(one.key for one in self._ended)})
        return len(leased)

    def _tell(self) -> None:
        written, self._written = self._written, []
        for settlement in written:
            self._on_settled(settlement)

    async def _run_job(self, leased: Leased) -> None:
        started = time.perf_counter()
        try:
            try:
                job = await self._checked(leased.job)
            except ABPError as error:
                outcome = Outcome.of_error(leased.job, error, sent=False)
            else:
                outcome = await self._driver.run(job)
        except asyncio.CancelledError as cancelled:
            if NOT_SENT in cancelled.args:
                self._end(_not_begun(leased))
            elif leased.job.idempotent:
                self._end(Settlement(leased.key, Outcome(leased.job, State.CANCELLED), 0.0))
            else:
                lost = Outcome(leased.job, State.UNKNOWN, error_code="CANCELLED", error=_ABANDONED)
                self._end(Settlement(leased.key, lost))
            raise
        except Exception as error:  # noqa: BLE001 - a driver that breaks its contract costs one job
            took = (time.perf_counter() - started) * 1000
            outcome = Outcome.of_error(leased.job, error, milliseconds=took)
        delay = self._retries.delay(outcome, leased.attempts)
        if delay is not None and outcome.retry_after is not None:
            self._pauses.pause(host_of(leased.job), outcome.retry_after)
        self._end(Settlement(leased.key, outcome, delay))

    async def _checked(self, job: Job) -> Job:
        """Return the job as it may be run: a ledger holds what others wrote, and a file may be another one by now."""
        consent = self._options.consent
        if consent is None:
            return job
        try:
            return await asyncio.to_thread(consent.checked, job) if job.files else consent.checked(job)
        except asyncio.CancelledError:
            raise asyncio.CancelledError(NOT_SENT) from None

    def _end(self, settlement: Settlement) -> None:
        loop, again = asyncio.get_running_loop(), settlement.again_after is not None
        self._ahead.count(None if again else settlement.outcome.milliseconds / 1000)
        self._ended.append(settlement)
        self._running.pop(settlement.key, None)
        self._begin()
        if self._ahead.is_low:
            self._wake.set()
        elif len(self._ended) == 1:
            self._latest = loop.call_later(_LATEST, self._wake.set)
        if settlement.again_after:
            loop.call_later(settlement.again_after + 0.01, self._wake.set)

    async def _wait(self) -> None:
        """Wait until a job ends, or for as long as nothing can be done."""
        seconds = self._options.lease_seconds / 4
        if not self._stopped and len(self._running) < self._options.concurrency:
            seconds = min(self._idle(), self._rate.seconds(), self._pauses.seconds() + 0.001)
        if not self._stopped:
            seconds = min(seconds, max(self._deadline - time.monotonic(), 0.0))
        seconds = min(seconds, self._ahead.seconds + 0.001)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _idle(self) -> float:
        longest = self._options.lease_seconds / 4
        return min(_IDLE * 2.0 ** min(self._found_nothing, 10), longest) * random.uniform(0.5, 1.0)

    async def _abandon(self) -> None:
        """Cancel what still runs, and write what that leaves behind."""
        self._stopped = self._stopped or Ended.STOPPED
        tasks = {task: leased for leased, task in self._running.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_ABANDON_TIMEOUT)
        never_begun = [one for one, task in self._running.values() if task.done()]
        self._ended += [_not_begun(one) for one in never_begun]
        if self._ended or self._ahead:
            with contextlib.suppress(Exception):  # the error that ended the run is raised; leases end by themselves
                await self._turn()


def _not_begun(leased: Leased) -> Settlement:
    """A job that the next worker may run."""
    return Settlement(leased.key, Outcome(leased.job, State.CANCELLED), 0.0, begun=False)


_ABANDON_TIMEOUT = 10.0
_ABANDONED = "the run was stopped while the job ran; it may have run: look at the app before you send it again"
