"""Limits of a run over ten seconds of a held clock: hosts of different speed, one that refuses, one that hangs."""

from __future__ import annotations

import asyncio
import math
import selectors
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest

from transports.batch import _runner
from transports.batch._jobs import Job, Outcome, State
from transports.batch._runner import Runner, RunOptions
from transports.batch.ledger._ledger import Ledger
from transports.batch.ledger._schema import Leased, Settlement
from transports.errors import CallTimeout, CapabilityError

SECONDS = 10.0
RATE, PER_HOST = 100.0, 4
#: Seconds that a call takes, by host.
TAKES = {"fast": 0.001, "middle": 0.05, "slow": 0.4, "refuses": 0.005, "hangs": 5.0}
#: Calls a second that one host allows, and the pause that it asks for when there are more.
ALLOWED, PAUSE = 5, 1.0


class HeldLoop(asyncio.SelectorEventLoop):
    """Nothing is waited for: the clock jumps to the next moment at which something happens."""

    now = 0.0

    def __init__(self) -> None:
        class Selector(selectors.SelectSelector):
            def select(selector, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                self.now += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


class Queue:
    """The ledger's rules for leasing, without a database: hosts in turn, each in its order, ``per_host`` at most."""

    def __init__(self, loop: HeldLoop, jobs: Sequence[Job]) -> None:
        self.loop = loop
        self.waiting = {host: [(0.0, job, 1) for job in jobs if job.target == host] for host in TAKES}
        self.held: dict[str, tuple[Job, int]] = {}
        self.until: dict[str, float] = {}
        self.given_back: list[float] = []
        self.ended: Counter[tuple[str, State]] = Counter()
        self.turn = self.most_held = 0

    async def lease(
        self, count: int, seconds: float, *, per_host: int | None, closed: Collection[str] = ()
    ) -> list[Leased]:
        leased: list[Leased] = []
        given = True
        while given and len(leased) < count:
            given = False
            for step in range(len(TAKES)):
                host = [*TAKES][(self.turn + step) % len(TAKES)]
                at_work = sum(job.target == host for job, _ in self.held.values())
                free = host not in closed and at_work < (per_host or math.inf) and len(leased) < count
                if free and (ready := next((one for one in self.waiting[host] if one[0] <= self.loop.now), None)):
                    self.waiting[host].remove(ready)
                    _, job, attempts = ready
                    self.held[job.key] = job, attempts
                    leased.append(Leased(job.key, job, attempts))
                    given = True
            self.turn += 1
        return leased

    async def settle_and_lease(
        self,
        settlements: Sequence[Settlement],
        count: int,
        seconds: float,
        *,
        per_host: int | None,
        closed: Collection[str] = (),
    ) -> tuple[int, list[Leased]]:
        held = await self.settle(settlements)
        leased = await self.lease(count, seconds, per_host=per_host, closed=closed)
        self.most_held = max(self.most_held, len(self.held))
        self.until |= {one.key: self.loop.now + seconds for one in leased}
        return held, leased

    async def settle(self, settlements: Sequence[Settlement]) -> int:
        for one in settlements:
            job, attempts = self.held.pop(one.key)
            if not one.begun:
                self.given_back.append(self.loop.now)
                insort(
                    self.waiting[job.target or ""],
                    (0.0, job, attempts),
                    key=lambda other: cast(int, other[1].params["n"]),
                )
            elif one.again_after is None:
                self.ended[job.target or "", one.outcome.state] += 1
            else:
                again = (self.loop.now + one.again_after, job, attempts + 1)
                insort(self.waiting[job.target or ""], again, key=lambda other: cast(int, other[1].params["n"]))
        return len(settlements)

    async def heartbeat(self, seconds: float) -> int:
        self.until = dict.fromkeys(self.held, self.loop.now + seconds)
        return len(self.held)

    async def expire(self) -> tuple[int, int]:
        assert all(self.until[key] >= self.loop.now for key in self.held)
        return 0, 0

    async def is_done(self) -> bool:
        return not self.held and not any(self.waiting.values())


class Apps:
    """All hosts: what they were sent and when, and how much was at work at once."""

    def __init__(self, loop: HeldLoop, unlimited: int, pause: float) -> None:
        self.loop = loop
        self.unlimited = unlimited
        self.pause = pause
        self.sent: dict[str, list[float]] = {host: [] for host in TAKES}
        self.refused: list[float] = []
        self.served: list[float] = []
        self.at_work: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.busy = dict.fromkeys(TAKES, 0.0)

    async def run(self, job: Job) -> Outcome:
        host, sent = str(job.target), self.sent[str(job.target)]
        sent.append(self.loop.now)
        self.at_work[host] += 1
        self.most[host] = max(self.most[host], self.at_work[host])
        took = TAKES[host] * 1000
        await asyncio.sleep(TAKES[host] + len(sent) * 1e-6)  # no two end at one moment
        self.at_work[host] -= 1
        self.busy[host] += TAKES[host]
        if host == "hangs":
            return Outcome.of_error(job, CallTimeout("no answer"), milliseconds=took)
        if host == "refuses":
            if (
                len(self.sent[host]) > self.unlimited
                and len(self.served) - bisect_left(self.served, self.loop.now - 1.0) >= ALLOWED
            ):
                self.refused.append(self.loop.now)
                busy = CapabilityError("later", code="RATE_LIMITED", retryable=True, retry_after=self.pause)
                return Outcome.of_error(job, busy, milliseconds=took)
            self.served.append(self.loop.now)
        return Outcome(job, State.SUCCEEDED, milliseconds=took)


def most_in(times: Sequence[float], seconds: float) -> int:
    """The most of ``times``, which are sorted, that any stretch of so many seconds has."""
    return max((bisect_left(times, start + seconds) - at for at, start in enumerate(times)), default=0)


def simulate(
    patch: pytest.MonkeyPatch, jobs: Sequence[Job], options: RunOptions, unlimited: int = 0, pause: float = PAUSE
) -> tuple[Apps, Queue]:
    loop = HeldLoop()
    clock = SimpleNamespace(monotonic=loop.time, perf_counter=loop.time, time=loop.time)
    patch.setattr(_runner, "time", clock)
    apps, queue = Apps(loop, unlimited, pause), Queue(loop, jobs)
    with asyncio.Runner(loop_factory=lambda: loop) as run:
        run.run(Runner(cast(Ledger, queue), apps, options).run())
    return apps, queue


def require_pauses(apps: Apps, pause: float) -> None:
    for refused in apps.refused:  # calls under way then had been sent before
        assert not any(refused < moment < refused + pause for moment in apps.sent["refuses"])


@pytest.mark.load
def test_rate_and_per_host_limits_hold_across_different_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job("do", {"n": n}, host) for n in range(800) for host in TAKES]
    options = RunOptions(concurrency=20, per_host=PER_HOST, rate=RATE, deadline=SECONDS)
    apps, queue = simulate(monkeypatch, jobs, options)
    sent = sorted(moment for moments in apps.sent.values() for moment in moments)
    assert 0.95 <= len(sent) / (RATE * SECONDS) <= 1.05
    assert max(most_in(sent, seconds) / (RATE * seconds) for seconds in (3.0, 5.0)) <= 1.05
    assert max(apps.most.values()) == PER_HOST
    for host in ("slow", "hangs"):  # their limit is used, too
        assert apps.busy[host] >= 0.95 * PER_HOST * SECONDS, host
    require_pauses(apps, PAUSE)
    assert len(apps.served) >= 0.4 * ALLOWED * SECONDS
    assert set(queue.ended) == {(host, State.UNKNOWN if host == "hangs" else State.SUCCEEDED) for host in TAKES}


def test_rate_limiting_app_eventually_gets_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job("do", {"n": n}, "refuses") for n in range(100)]
    apps, queue = simulate(monkeypatch, jobs, RunOptions(concurrency=20))
    assert queue.ended == {("refuses", State.SUCCEEDED): 100}
    assert len(apps.refused) > 200  # most jobs more often than an error may be repeated


def test_leased_jobs_wait_while_their_host_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job("do", {"n": n}, "refuses") for n in range(100)]
    pause = 100.0  # longer than a lease
    apps, queue = simulate(monkeypatch, jobs, RunOptions(concurrency=8), unlimited=60, pause=pause)
    assert queue.ended == {("refuses", State.SUCCEEDED): 100}
    assert apps.refused[0] < 0.1 and queue.most_held == 16
    require_pauses(apps, pause)


class HeldByOthers(Queue):
    """A run whose last jobs other workers have for a minute."""

    looks = 0

    async def lease(
        self, count: int, seconds: float, *, per_host: int | None, closed: Collection[str] = ()
    ) -> list[Leased]:
        self.looks += 1
        return []

    async def is_done(self) -> bool:
        return self.loop.now > 60.0


def test_paused_host_does_not_delay_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job("do", {"n": n}, host) for n in range(300) for host in ("refuses", "middle")][:400]
    apps, queue = simulate(monkeypatch, jobs, RunOptions(concurrency=8), unlimited=60, pause=100.0)
    assert queue.ended == {("refuses", State.SUCCEEDED): 200, ("middle", State.SUCCEEDED): 200}
    assert apps.refused[0] < apps.sent["middle"][-1] < apps.refused[0] + 100.0


def test_jobs_do_not_wait_behind_hanging_app(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job("do", {"n": n}, "fast" if n < 80 else "hangs") for n in range(120)]
    apps, queue = simulate(monkeypatch, jobs, RunOptions(concurrency=8))
    began = apps.sent["hangs"][7]
    assert queue.most_held == 16 and began + 0.9 < queue.given_back[0] < began + 1.5
    assert len(queue.given_back) == 8 and sum(queue.ended.values()) == 120  # once: then jobs are not short


def test_waiting_worker_backs_off_its_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.Queue", HeldByOthers)
    apps, queue = simulate(monkeypatch, [], RunOptions())
    assert isinstance(queue, HeldByOthers) and not apps.sent["fast"]
    assert queue.looks < 25 and queue.loop.now < 60.0 + RunOptions().lease_seconds / 4 + 1.0


def test_job_is_retried_as_soon_as_its_pause_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the ledger had nothing for this worker before."""
    monkeypatch.setitem(TAKES, "hangs", 40.0)
    apps, _ = simulate(monkeypatch, [Job("do", {"n": 1}, "hangs", idempotent=True)], RunOptions())
    sent = apps.sent["hangs"]
    assert len(sent) == 4 and sent[-1] < 3 * 40.0 + 2.0
    pauses = [later - earlier - 40.0 for earlier, later in pairwise(sent)]
    assert all(pause >= 0.05 * 2**n for n, pause in enumerate(pauses)), pauses
