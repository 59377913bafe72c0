"""Workers as :class:`transports.batch._runner.Runner` is one: settle what has ended, lease what there is
room for, run it.

Each worker has a machine of its own. All share one ledger, one object store, and the hosts of the apps.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from tests.scale_model.events import Bell, Clock, Process, Resource
from transports.batch._runner import LIMITS


@dataclass(frozen=True, slots=True)
class Costs:
    """What things take, in seconds. A transaction takes a time of its own, and more for each job in it."""

    lease: float
    lease_job: float
    settle: float
    settle_job: float
    #: Renewing leases and ending those of lost workers, and more for each lease that others hold.
    keep: float
    keep_lease: float
    #: Processor time of a job in the worker's Python, and in the driver and the browser.
    python: float
    page: float = 0.0
    #: Until a worker asks a ledger again that had nothing for it, doubled each time, and until it renews its leases.
    idle: float = 0.3
    idle_most: float = 15.0
    renew: float = 15.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What runs. Times are in seconds.

    Each of ``workers`` has ``sessions`` and ``cores``. A job takes ``work`` of a core in the app's page and ``wait``
    without one. Its file is stored by ``puts`` requests of ``put`` each; the store takes ``puts_per_second``. All hosts
    together run ``slots`` jobs at once. Leases are given one after the other (the ledger locks the run); other
    transactions run on ``ledger_cores`` at once, or, with none, one after the other, too (SQLite).
    """

    workers: int
    sessions: int = 8
    cores: int = 2
    work: float = 0.0
    wait: float = 0.0
    puts: int = 0
    put: float = 0.05
    puts_per_second: float = 3500.0
    slots: int | None = None
    ledger_cores: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it: jobs a second in the second half of the run, and what share of the time leases were being given
    and requests were at the store."""

    per_second: float
    ledger: float
    store: float


@dataclass
class _World:
    clock: Clock
    costs: Costs
    setup: Setup
    lock: Resource
    ledger: Resource
    store: Resource
    held: int = 0
    ended: list[float] = field(default_factory=list)


def simulate(costs: Costs, setup: Setup, *, seconds: float = 60.0, seed: int = 0) -> Run:
    """Let workers run for so many seconds, and count what ended in the second half of them."""
    clock, chance = Clock(), random.Random(seed)
    at_once = max(round(setup.puts_per_second * setup.put), 1)
    lock, store = Resource(clock, 1), Resource(clock, at_once)
    ledger = Resource(clock, setup.ledger_cores) if setup.ledger_cores else lock
    world = _World(clock, costs, setup, lock, ledger, store)
    for _ in range(setup.workers):
        worker = _Worker(world)
        clock.go_on(worker.loop(), chance.random() * min(seconds / 10, 1.0))
        clock.go_on(worker.keep(), chance.random() * costs.renew)
    clock.run(seconds)
    counted = sum(moment > seconds / 2 for moment in world.ended)
    return Run(counted / (seconds / 2), lock.use, store.use)


class _Worker:
    def __init__(self, world: _World) -> None:
        self._world = world
        self._cores = Resource(world.clock, world.setup.cores)
        self._python = Resource(world.clock, 1)
        self._wake = Bell(world.clock)
        self._running = self._waiting = self._ended = self._found_nothing = 0
        self._job_seconds = math.inf

    @property
    def _ahead(self) -> int:
        """Jobs that are leased beyond those that run, while jobs are short and no limit counts leases."""
        setup = self._world.setup
        return setup.sessions if self._job_seconds < LIMITS.short and setup.slots is None else 0

    def loop(self) -> Process:
        world, costs, setup = self._world, self._world.costs, self._world.setup
        while True:
            ended, self._ended = self._ended, 0
            room = setup.sessions + self._ahead - self._running - self._waiting
            if ended:  # its own transaction only if there is nothing to lease, else the first part of that one
                yield from self._transaction((0.0 if room else costs.settle) + ended * costs.settle_job)
                world.held -= ended
            if room:
                free = room if setup.slots is None else max(setup.slots - world.held, 0)
                leased = min(room, free)
                world.held += leased
                yield world.lock
                yield costs.lease + leased * costs.lease_job
                world.lock.release()
                self._waiting += leased
                self._found_nothing = 0 if leased else self._found_nothing + 1
                self._begin()
            if not self._ended or self._waiting > self._ahead // 8:
                if self._ended:
                    self._wake.ring_in(LIMITS.latest)
                elif self._running < setup.sessions:
                    self._wake.ring_in(min(costs.idle * 2.0 ** min(self._found_nothing, 10), costs.idle_most))
                yield self._wake

    def _begin(self) -> None:
        while self._waiting and self._running < self._world.setup.sessions:
            self._waiting -= 1
            self._running += 1
            self._world.clock.go_on(self._job())

    def keep(self) -> Process:
        """Renew the leases, and end those of lost workers."""
        world, costs = self._world, self._world.costs
        while True:
            yield from self._transaction(costs.keep + world.held * costs.keep_lease)
            yield costs.renew

    def _transaction(self, seconds: float) -> Process:
        yield self._world.ledger
        yield seconds
        self._world.ledger.release()

    def _job(self) -> Process:
        world, costs, setup = self._world, self._world.costs, self._world.setup
        began = world.clock.now
        yield from self._compute(costs.python / 2)
        if costs.page + setup.work:
            yield self._cores
            yield costs.page + setup.work
            self._cores.release()
        if setup.wait:
            yield setup.wait
        for _ in range(setup.puts):
            yield world.store
            yield setup.put
            world.store.release()
        yield from self._compute(costs.python / 2)
        world.ended.append(world.clock.now)
        took = world.clock.now - began
        known = self._job_seconds < math.inf
        self._job_seconds = self._job_seconds * 7 / 8 + took / 8 if known else took
        self._running -= 1
        self._ended += 1
        self._begin()
        if self._waiting <= self._ahead // 8:
            self._wake.ring()
        elif self._ended == 1:
            self._wake.ring_in(LIMITS.latest)

    def _compute(self, seconds: float) -> Process:
        """In the one thread of Python that has the event loop."""
        yield self._python
        yield self._cores
        yield seconds
        self._cores.release()
        self._python.release()
