"""Worker of a run: leases jobs of a ledger, runs them with a driver and settles their outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from .._internal.tasks import backoff_delay, start_task, wait_despite_cancel
from ..errors import ABPError, UsageError
from ..protocol._times import MAX_TIMEOUT
from ._jobs import NOT_SENT, Consent, Job, Outcome, State
from .ledger._ledger import Ledger
from .ledger._schema import Leased, Settlement, host_of

logger = logging.getLogger("transports.batch")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker, times in seconds."""

    #: A job is not retried if the app asks for a longer pause.
    max_retry_after: float = 3600.0
    #: Refusals with a ``retry_after`` that count as one retry: an app with a rate limit may refuse the same job of a
    #: burst again and again.
    refusals_per_retry: int = 5
    #: Jobs with remembered refusals. Beyond that number, refusals of the oldest count as other retries.
    max_refused: int = 10_000
    #: Average duration below which jobs are prefetched.
    short: float = 0.1
    #: Longest wait of a prefetched job, since another worker may be free.
    max_wait: float = 1.0
    #: Between two requests to a ledger without jobs for this worker. The time doubles up to a quarter of a lease, since
    #: a thousand idle workers would keep the ledger busy.
    idle: float = 0.4
    #: From the end of a job until it is written, even if few others have ended.
    latest: float = 0.02


LIMITS = Limits()


class Rate:
    """Limits the starts of jobs, as a leaky bucket: each start fills it, and ``per_second`` starts leak out. A start is
    allowed if it fits in. The bucket holds the starts of a tenth of a second, at least two."""

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._starts = 0.0
        self._updated = time.monotonic()

    def allowed_starts(self, count: int) -> int:
        if self._per_second is None:
            return count
        self._leak_starts(self._per_second)
        burst = max(2.0, self._per_second / 10)
        return min(count, int(burst - self._starts))

    def seconds_until_allowed(self) -> float:
        """Return the seconds until the next start is allowed, or infinity if there is nothing to wait for."""
        if self._per_second is None or self.allowed_starts(1) > 0:
            return math.inf
        return max(1 / self._per_second, 0.001)

    def record_starts(self, count: int) -> None:
        """Count starts. This may be some time after :meth:`allowed_starts` has allowed them."""
        if self._per_second is not None:
            self._leak_starts(self._per_second)
            self._starts += count

    def _leak_starts(self, per_second: float) -> None:
        now = time.monotonic()
        self._starts = max(self._starts - (now - self._updated) * per_second, 0.0)
        self._updated = now


class HostPauses:
    """Hosts that are not called for a while, since their apps have asked for a pause (``retry_after``)."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def pause(self, host: str, seconds: float) -> None:
        """Begin a pause of a host. A pause that ends later stays in force."""
        until = time.monotonic() + min(seconds, LIMITS.max_retry_after)
        self._until[host] = max(until, self._until.get(host, 0.0))

    def paused_hosts(self) -> frozenset[str]:
        now = time.monotonic()
        self._until = {host: until for host, until in self._until.items() if until > now}
        return frozenset(self._until)

    def seconds_to_end(self) -> float:
        now = time.monotonic()
        return min((until - now for until in self._until.values() if until > now), default=math.inf)


class Retries:
    """Retry policy: at most ``limit`` retries per job, within a budget of all jobs. The budget is a fifth of the ended
    jobs plus 20, so that an app that is down is not called ``limit`` times for each job. A refusal with a
    ``retry_after`` does not use the budget, and counts as a fifth of a retry."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._spent = 0
        self._ended = 0
        #: Refusals of retried jobs by key, as far as this worker has seen them.
        self._refusals: dict[str, int] = {}

    def delay(self, outcome: Outcome, attempts: int) -> float | None:
        """Return the seconds until the job is retried, or ``None`` if this outcome is final."""
        delay: float | None = None
        if outcome.retryable:
            delay = self._retry_delay(outcome.job.key, outcome.retry_after, attempts)
        elif self._refusals:
            self._refusals.pop(outcome.job.key, None)
        if delay is None:
            self._ended += 1
        return delay

    def _retry_delay(self, key: str, retry_after: float | None, attempts: int) -> float | None:
        refusals = self._refusals.pop(key, 0)

        if retry_after is not None:
            max_attempts = self._limit * LIMITS.refusals_per_retry
            if attempts > max_attempts or retry_after > LIMITS.max_retry_after:
                return None
            self._remember_refusals(key, refusals + 1)
            # The delay is at least the first one of the backoff, so that the job is not due before its host is open.
            return max(retry_after, backoff_delay(1))

        # Several refusals count as one retry.
        retries = attempts - refusals + refusals // LIMITS.refusals_per_retry
        budget = 20 + self._ended / 5
        if retries > self._limit or self._spent >= budget:
            return None
        self._spent += 1
        self._remember_refusals(key, refusals)
        return backoff_delay(retries)

    def _remember_refusals(self, key: str, refusals: int) -> None:
        if not refusals:
            return
        self._refusals[key] = refusals
        # If another worker leases a job afterwards, its entry here is never removed, so their number is limited.
        if len(self._refusals) > LIMITS.max_refused:
            oldest = next(iter(self._refusals))
            del self._refusals[oldest]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Limits of one worker.

    ``concurrency`` jobs run at once; for one host at most ``per_host``, counted over all workers of the run. ``rate``
    is the maximum number of starts per second. A job whose outcome is ``retryable`` is retried up to ``retries`` times.
    After ``deadline`` seconds no more jobs are started. A lease lasts ``lease_seconds`` and is renewed while its job
    runs. ``consent`` holds the permissions of untrusted jobs; :func:`run` sets it. Without it, jobs have no
    restrictions.

    Raises :class:`~transports.errors.UsageError` for a number out of its range."""

    concurrency: int = 8
    per_host: int | None = None
    rate: float | None = None
    retries: int = 3
    deadline: float | None = None
    lease_seconds: float = 60.0
    consent: Consent | None = None

    def __post_init__(self) -> None:
        most = 1_000_000_000  # far within the range of the ledger's integers
        for name, value, minimum, maximum in (
            ("concurrency", self.concurrency, 1, most),
            ("per_host", self.per_host, 1, most),
            ("retries", self.retries, 0, most),
            ("rate", self.rate, 1e-6, most),
            ("deadline", self.deadline, 1e-6, MAX_TIMEOUT),
            ("lease_seconds", self.lease_seconds, 1, MAX_TIMEOUT),
        ):
            is_in_range = value is None or minimum <= value <= maximum
            if isinstance(value, bool) or not is_in_range:
                raise UsageError(f"{name} must be a number from {minimum:g} to {maximum:,}")


def pool_size(concurrency: int, browsers: int | None = None) -> tuple[int, int]:
    """Return the number of browsers, by default one per core, and of sessions in each, so that each of ``concurrency``
    jobs has a session."""
    count = browsers or min(concurrency, os.cpu_count() or 1)
    return count, math.ceil(concurrency / count)


class Elapsed:
    """Stopwatch with two clocks: a monotonic one, and the wall clock, which also runs while the machine sleeps."""

    def __init__(self) -> None:
        self._monotonic_start = time.monotonic()
        self._wall_start = time.time()

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._monotonic_start, time.time() - self._wall_start)


@dataclass(frozen=True, slots=True)
class _PrefetchedJob:
    """A leased job that has not started. The times run since the lease was requested, and since it arrived."""

    leased: Leased
    since_request: Elapsed
    since_arrival: Elapsed


class PrefetchedJobs:
    """Jobs of one worker that are leased but not started. It does not prefetch while jobs are long, nor with ``rate``
    or ``per_host``: those limits count leased jobs, so that other workers would get fewer jobs than they could run."""

    def __init__(self, options: RunOptions, max_wait: float = LIMITS.max_wait) -> None:
        is_limited = options.rate is not None or options.per_host is not None
        self._max_size = 0 if is_limited else options.concurrency
        self._max_wait = max_wait
        #: Later, the lease might have expired.
        self._max_age_of_lease = options.lease_seconds / 2
        self._jobs: deque[_PrefetchedJob] = deque()
        #: Average duration of a job in seconds.
        self._average: float | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def target_size(self) -> int:
        """Number of jobs to prefetch: none while jobs are long, or if their length is unknown."""
        if self._average is None or self._average >= LIMITS.short:
            return 0
        return self._max_size

    @property
    def is_low(self) -> bool:
        return len(self._jobs) <= self.target_size // 8

    @property
    def seconds_left(self) -> float:
        """Seconds until the oldest job has waited too long; infinity without jobs."""
        if not self._jobs:
            return math.inf
        return self._remaining_wait(self._jobs[0])

    def _remaining_wait(self, job: _PrefetchedJob) -> float:
        """Return the seconds that a job may still wait: until ``max_wait`` after its arrival, which a slow ledger does
        not shorten, or until its lease might end."""
        seconds_of_wait = self._max_wait - job.since_arrival.seconds
        seconds_of_lease = self._max_age_of_lease - job.since_request.seconds
        return max(min(seconds_of_wait, seconds_of_lease), 0.0)

    def add(self, jobs: Iterable[Leased], since_request: Elapsed, other_keys: Collection[str]) -> None:
        """Add newly leased jobs. Jobs that the worker has already are left out: those that are here, and those with
        ``other_keys``. They were leased a second time after the first lease had expired."""
        present = {*other_keys, *(job.leased.key for job in self._jobs)}
        since_arrival = Elapsed()
        for leased in jobs:
            if leased.key not in present:
                self._jobs.append(_PrefetchedJob(leased, since_request, since_arrival))

    def pop(self) -> Leased:
        return self._jobs.popleft().leased

    def remove_unstartable(self, closed: Collection[str], *, stopped: bool) -> list[Leased]:
        """Remove and return jobs that waited too long, those of ``closed`` hosts, and all if the worker has
        ``stopped``. They can be leased again by any worker."""
        # Nearly always no job must be dropped, so the jobs are not searched.
        may_drop_jobs = stopped or bool(closed) or not self.seconds_left
        if not self._jobs or not may_drop_jobs:
            return []

        dropped: list[Leased] = []
        remaining: deque[_PrefetchedJob] = deque()
        for job in self._jobs:
            has_waited_too_long = not self._remaining_wait(job)
            if has_waited_too_long:
                self.suspend()
            if has_waited_too_long or stopped or host_of(job.leased.job) in closed:
                dropped.append(job.leased)
            else:
                remaining.append(job)
        self._jobs = remaining
        return dropped

    def suspend(self) -> None:
        """Stop prefetching for a while, after a job that starts late or is retried. A retried job is older than the
        prefetched jobs, but would wait behind them."""
        # The average is set far above the limit, so that the next few short jobs do not start prefetching again.
        self._average = max(self._average or 0.0, LIMITS.short * 10)

    def record_duration(self, seconds: float) -> None:
        if self._average is None:
            self._average = seconds
        else:
            # An exponential moving average: the last eight jobs or so count.
            self._average = self._average * 7 / 8 + seconds / 8


OnSettled: TypeAlias = Callable[[Settlement], object]


class Driver(Protocol):
    """Runs one job, such as a :class:`~transports.batch.Pool`."""

    async def run(self, job: Job, /) -> Outcome:
        """Errors of the job are part of the outcome and not raised. A cancellation before any part of the job was sent
        is raised with :data:`~transports.batch._jobs.NOT_SENT` as its argument."""


class Runner:
    """Runs the jobs of a ledger. ``on_settled`` is called with each outcome once it is in the ledger. A prefetched job
    waits ``max_wait`` seconds at most."""

    def __init__(
        self,
        ledger: Ledger,
        driver: Driver,
        options: RunOptions,
        on_settled: OnSettled = lambda _: None,
        *,
        max_wait: float = LIMITS.max_wait,
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._options = options
        self._on_settled = on_settled
        self._rate = Rate(options.rate)
        self._retries = Retries(options.retries)
        self._pauses = HostPauses()
        self._running: dict[str, tuple[Leased, asyncio.Task[None]]] = {}
        self._prefetched = PrefetchedJobs(options, max_wait)
        self._deadline = math.inf
        #: Settlements to write, and written settlements that ``on_settled`` has not seen yet.
        self._ended: list[Settlement] = []
        self._written: list[Settlement] = []
        self._wake = asyncio.Event()
        #: Wakes the worker to write a small batch of ended jobs.
        self._write_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._renewed_at = 0.0
        #: Requests in a row for which the ledger had no jobs.
        self._empty_requests = 0

    def drain(self) -> None:
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Run jobs until every one has a final state, the deadline passes or :meth:`drain` is called. If it is
        cancelled, running jobs are cancelled in their apps and settled: queued again if they are idempotent or were not
        sent, otherwise ``unknown``."""
        if self._options.deadline is not None:
            self._deadline = time.monotonic() + self._options.deadline
        loop = asyncio.ensure_future(self._run_loop())
        try:
            await asyncio.shield(loop)
        except asyncio.CancelledError:
            # Stop starting jobs at once: the ledger may take long to answer.
            self._stopped = True
            loop.cancel()
            with contextlib.suppress(Exception):
                await wait_despite_cancel(loop)
            raise

    async def _run_loop(self) -> None:
        try:
            while True:
                await self._keep_leases()
                new_job_count = await self._write_and_lease()
                self._start_jobs()
                if self._stopped and not self._has_leases:
                    return
                if not new_job_count and not self._has_leases and await self._ledger.is_done():
                    return
                await self._wait_for_event()
        finally:
            await self._cancel_jobs()

    @property
    def _has_leases(self) -> bool:
        """Whether any job is leased. An ended job keeps its lease until it is written."""
        return bool(self._running or self._prefetched or self._ended)

    async def _keep_leases(self) -> None:
        """From time to time, renew the leases of this worker, and end those of lost workers."""
        interval = self._options.lease_seconds / 4 if self._has_leases else LIMITS.idle
        if time.monotonic() - self._renewed_at < interval:
            return

        self._renewed_at = time.monotonic()
        if self._has_leases:
            await self._ledger.heartbeat(self._options.lease_seconds)
        again, unknown = await self._ledger.expire()
        if again or unknown:
            logger.warning(
                "a worker was lost: %d of its jobs are queued again, %d may have run and are unknown", again, unknown
            )

    async def _write_and_lease(self) -> int:
        """Write the outcomes of ended jobs, lease new jobs, and return the number of new jobs."""
        self._return_late_jobs()
        # This comes before the request, so that a job which ends meanwhile wakes the worker again.
        self._wake.clear()
        if self._write_timer is not None:
            self._write_timer.cancel()

        room = 0 if self._stopped else self._lease_count()
        ended = self._ended
        self._ended = []
        if not ended and not room:
            return 0
        try:
            new_job_count = await wait_despite_cancel(asyncio.ensure_future(self._settle_and_lease(ended, room)))
        finally:
            # These outcomes are in the ledger, so they are reported even after a cancellation.
            settlements = self._written
            self._written = []
            for settlement in settlements:
                self._on_settled(settlement)

        if new_job_count:
            self._rate.record_starts(new_job_count)
            self._empty_requests = 0
        elif room:
            self._empty_requests += 1
        return new_job_count

    def _lease_count(self) -> int:
        """Return the number of jobs to lease now."""
        free = self._options.concurrency + self._prefetched.target_size - len(self._running) - len(self._prefetched)
        return max(self._rate.allowed_starts(free), 0)

    def _start_jobs(self) -> None:
        self._return_late_jobs()
        while self._prefetched and len(self._running) < self._options.concurrency:
            leased = self._prefetched.pop()
            task = start_task(self._run_job(leased), partial(self._fail_job, leased))
            self._running[leased.key] = leased, task

    def _return_late_jobs(self) -> None:
        """Return leased jobs that will not start soon to the queue."""
        if time.monotonic() >= self._deadline:
            self._stopped = True
        dropped = self._prefetched.remove_unstartable(self._pauses.paused_hosts(), stopped=self._stopped)
        if dropped:
            self._ended += map(_not_begun, dropped)
            self._wake.set()

    async def _settle_and_lease(self, ended: list[Settlement], room: int) -> int:
        """Settle and lease in one transaction of the ledger, and return the number of leased jobs. Not cancelled
        with the worker, so that every written outcome is reported and leased jobs that are not started return to the
        queue."""
        since_request = Elapsed()
        options = self._options
        new_jobs: list[Leased] = []
        try:
            if room:
                written_count, new_jobs = await self._ledger.settle_and_lease(
                    ended, room, options.lease_seconds, per_host=options.per_host, closed=self._pauses.paused_hosts()
                )
            else:
                written_count = await self._ledger.settle(ended)
        except BaseException:
            # Without this, these jobs would become unknown. Their outcomes are written again when the run ends.
            self._ended[:0] = ended
            raise

        if written_count < len(ended):
            logger.warning("%d jobs had been leased to another worker meanwhile", len(ended) - written_count)
        self._written += [settlement for settlement in ended if settlement.begun]
        ended_meanwhile = (settlement.key for settlement in self._ended)
        self._prefetched.add(new_jobs, since_request, {*self._running, *ended_meanwhile})
        return len(new_jobs)

    async def _run_job(self, leased: Leased) -> None:
        """Run a leased job and settle it: with its outcome, or with a delay until it is retried."""
        started = time.perf_counter()
        try:
            outcome = await self._run_if_allowed(leased.job)
        except asyncio.CancelledError as cancelled:
            self._end_job(_settle_cancelled(leased, was_sent=NOT_SENT not in cancelled.args))
            raise
        except Exception as error:  # noqa: BLE001 - a driver that breaks its contract costs one job
            milliseconds = (time.perf_counter() - started) * 1000
            outcome = Outcome.of_error(leased.job, error, milliseconds=milliseconds)

        delay = self._retries.delay(outcome, leased.attempts)
        if delay is not None and outcome.retry_after is not None:
            self._pauses.pause(host_of(leased.job), outcome.retry_after)
        self._end_job(Settlement(leased.key, outcome, delay))

    def _fail_job(self, leased: Leased, error: BaseException) -> None:
        """Settle a job whose driver broke its contract: it may have run."""
        if leased.key in self._running:
            lost = Outcome(leased.job, State.UNKNOWN, error_code=ABPError.code, error=f"the driver failed: {error!r}")
            self._end_job(Settlement(leased.key, lost))

    async def _run_if_allowed(self, job: Job) -> Outcome:
        """Run a job after checking its permissions again: the ledger is untrusted, and a file may have been replaced
        since the input was read."""
        consent = self._options.consent
        try:
            if consent is not None and job.files:
                job = await asyncio.to_thread(consent.checked, job)
            elif consent is not None:
                job = consent.checked(job)
        except ABPError as error:
            return Outcome.of_error(job, error, sent=False)
        except asyncio.CancelledError:
            raise asyncio.CancelledError(NOT_SENT) from None
        return await self._driver.run(job)

    def _end_job(self, settlement: Settlement) -> None:
        """Note that a job has ended, start the next ones, and see that the settlement is written soon."""
        loop = asyncio.get_running_loop()
        if settlement.again_after is None:
            self._prefetched.record_duration(settlement.outcome.milliseconds / 1000)
        else:
            self._prefetched.suspend()
        self._ended.append(settlement)
        self._running.pop(settlement.key, None)
        self._start_jobs()

        is_first_to_write = len(self._ended) == 1
        if self._prefetched.is_low:
            # More jobs are needed at once; this one is written with the same request.
            self._wake.set()
        elif is_first_to_write:
            self._write_timer = loop.call_later(LIMITS.latest, self._wake.set)
        if settlement.again_after:
            # Wake up shortly after the job is due, so that it is due by the ledger's clock too.
            loop.call_later(settlement.again_after + 0.01, self._wake.set)

    async def _wait_for_event(self) -> None:
        """Wait until a job has ended, or until something is due: leases, jobs, hosts or the deadline."""
        # With this margin, the time limit has certainly passed when the wait is over.
        margin = 0.001
        limits = [self._options.lease_seconds / 4, self._prefetched.seconds_left + margin]
        if not self._stopped:
            limits.append(max(self._deadline - time.monotonic(), 0.0))
            has_free_places = len(self._running) < self._options.concurrency
            if has_free_places:
                limits += [self._seconds_to_next_request(), self._rate.seconds_until_allowed()]
                limits.append(self._pauses.seconds_to_end() + margin)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(limits)):
                await self._wake.wait()

    def _seconds_to_next_request(self) -> float:
        """Return the seconds until the ledger is asked for jobs again. They double with each request for which it had
        no jobs, and are random, so that workers do not ask all at once."""
        # The exponent has a limit, since a float overflows beyond 2 ** 1023.
        doublings = min(self._empty_requests, 10)
        longest = self._options.lease_seconds / 4
        return min(LIMITS.idle * 2.0**doublings, longest) * random.uniform(0.5, 1.0)

    async def _cancel_jobs(self) -> None:
        """Cancel the running jobs, and write their outcomes and return the other jobs as far as this is possible."""
        self._stopped = True
        tasks = {task: leased for leased, task in self._running.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            # A driver may ignore its cancellation.
            await asyncio.wait(tasks, timeout=10.0)

        # A task that was cancelled before its first step has not ended its job itself.
        self._ended += [_not_begun(leased) for leased, task in self._running.values() if task.done()]
        if self._ended or self._prefetched:
            # An error here must not hide the one that ended the run. Leases that remain expire by themselves.
            with contextlib.suppress(Exception):
                await self._write_and_lease()


def _settle_cancelled(leased: Leased, *, was_sent: bool) -> Settlement:
    if not was_sent:
        return _not_begun(leased)
    if leased.job.idempotent:
        return Settlement(leased.key, Outcome(leased.job, State.CANCELLED), 0.0)
    advice = "the run was stopped while the job ran; look at the app before you send it again"
    return Settlement(leased.key, Outcome(leased.job, State.UNKNOWN, error_code="CANCELLED", error=advice))


def _not_begun(leased: Leased) -> Settlement:
    return Settlement(leased.key, Outcome(leased.job, State.CANCELLED), 0.0, begun=False)
