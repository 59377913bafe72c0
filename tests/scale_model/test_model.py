"""The model: its clock, what it must find without any constants, and a machine that was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scale_model.events import Bell, Clock, Process, Resource
from tests.scale_model.measure import costs_of, load
from tests.scale_model.model import Costs, Setup, simulate

#: How far the model may be from what was measured.
ERROR = 0.15
FREE = Costs(lease=0.0, lease_job=0.0, settle=0.0, settle_job=0.0, keep=0.0, keep_lease=0.0, python=0.0)


def test_processes_wait_for_time_for_resources_and_for_bells() -> None:
    clock = Clock()
    desk, bell, seen = Resource(clock, 2), Bell(clock), []

    def customer(name: str) -> Process:
        yield desk
        yield 1.0
        desk.release()
        seen.append((name, clock.now))

    def sleeper() -> Process:
        bell.ring_in(0.25)
        yield bell
        seen.append(("alarm", clock.now))
        bell.ring_in(9.0)
        yield bell
        seen.append(("woken", clock.now))
        yield bell  # the alarm of the nap before does not end this one
        seen.append(("never", clock.now))

    for name in "abc":
        clock.go_on(customer(name))
    clock.go_on(sleeper())
    clock.run(0.5)
    bell.ring()
    clock.run(10.0)
    assert seen == [("alarm", 0.25), ("woken", 0.5), ("a", 1.0), ("b", 1.0), ("c", 2.0)]
    assert desk.use == pytest.approx(3.0 / 20.0)


@pytest.mark.parametrize(
    ("setup", "costs", "per_second"),
    [
        (Setup(10, sessions=8, wait=1.0), FREE, 80.0),
        (Setup(10, sessions=8, cores=2, work=0.5), FREE, 40.0),
        (Setup(10, sessions=8, wait=1.0, puts=2, put=0.05, puts_per_second=100.0), FREE, 50.0),
        (Setup(10, sessions=8, wait=1.0, slots=16), FREE, 16.0),
        (Setup(4, sessions=1, wait=0.01), replace(FREE, lease=0.01), 100.0),
        (Setup(40, sessions=1, wait=0.01), replace(FREE, settle_job=0.01), 100.0),
        (Setup(10, sessions=1, wait=0.01, ledger_cores=2), replace(FREE, settle_job=0.01), 200.0),
    ],
)
def test_what_is_scarce_decides(setup: Setup, costs: Costs, per_second: float) -> None:
    assert simulate(costs, setup, seconds=40.0).per_second == pytest.approx(per_second, rel=0.05)


def test_the_model_finds_the_throughput_of_a_machine_that_was_measured() -> None:
    """The first run gives the processor time of a job; of the others the model is told sessions and waiting alone."""
    ledger, runs, machine = load()
    first, *others = (run for run in runs if run.kind == "socket")
    costs, cores = costs_of(ledger["SQLite"], first), int(machine["cores"])
    found = {}
    for run in others:
        setup = Setup(1, run.sessions, cores, work=first.app, wait=run.wait)
        found[run.sessions, run.wait] = simulate(costs, setup, seconds=4.0).per_second / run.per_second
    assert len(found) >= 5
    assert all(1 - ERROR <= ratio <= 1 + ERROR for ratio in found.values()), found
