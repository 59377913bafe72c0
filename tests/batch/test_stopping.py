"""Runs that are stopped, or whose ledger fails: known outcomes are kept, and unsent jobs stay queued."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.batch.planted import PAGE, World
from tests.batch.runs import Recorder, hold_up, jobs, states
from tests.support.eventually import eventually
from transports.batch import Job, Ledger, Outcome, RunOptions, State, open_ledger
from transports.batch._runner import Elapsed, PrefetchedJobs, Runner
from transports.batch.ledger._schema import Leased, Settlement
from transports.errors import LedgerError


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with open_ledger(tmp_path) as opened:
        yield opened


async def test_unwritten_outcomes_are_written_at_run_end(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await ledger.add(lambda: [jobs(3)], "one")
    failures = iter([LedgerError("no space is left")])

    async def fail_once(settlements: Sequence[Settlement]) -> None:
        if settlements:
            for failure in failures:
                raise failure

    hold_up(monkeypatch, ledger, fail_once)
    settled: list[Settlement] = []
    with pytest.raises(LedgerError, match="no space"):
        await Runner(ledger, Recorder(), RunOptions(), settled.append).run()
    assert await states(ledger) == ["succeeded"] * 3 and len(settled) == 3


@pytest.mark.parametrize(("moment", "state", "reported"), [("leased", "queued", 0), ("settled", "succeeded", 3)])
async def test_a_run_may_be_cancelled_at_any_moment(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    moment: str,
    state: str,
    reported: int,
) -> None:
    """Leased jobs return to the queue, and written outcomes are reported once."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def wait(settlements: Sequence[Settlement], leased: list[Leased]) -> None:
        if settlements if moment == "settled" else leased:
            reached.set()
            await go_on.wait()

    hold_up(monkeypatch, ledger, after=wait)
    await ledger.add(lambda: [jobs(3)], "one")
    settled: list[Settlement] = []
    work = asyncio.create_task(Runner(ledger, Recorder(), RunOptions(), settled.append).run())
    await reached.wait()
    work.cancel()
    await asyncio.sleep(0)
    go_on.set()  # the wait for the ledger is not cancelled
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await states(ledger) == [state] * 3 and len(settled) == reported
    assert "another worker" not in caplog.text


async def test_leased_jobs_stay_queued_when_reporting_outcome_fails(ledger: Ledger) -> None:
    def refuse(_: Settlement) -> None:
        raise BrokenPipeError("nobody reads")

    await ledger.add(lambda: [jobs(6)], "one")
    with pytest.raises(BrokenPipeError):
        await Runner(ledger, Recorder(), RunOptions(concurrency=2), refuse).run()
    assert sorted(await states(ledger)) == ["queued"] * 4 + ["succeeded"] * 2


async def test_short_jobs_are_leased_in_batches_and_returned_on_stop(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, turns = asyncio.Event(), 0

    async def short(job: Job) -> Outcome:
        await asyncio.sleep(0.005)
        if len(driver.jobs) >= 80:
            await go_on.wait()
        return Outcome(job, State.SUCCEEDED, milliseconds=5.0)

    async def count(_: Sequence[Settlement]) -> None:
        nonlocal turns
        turns += 1

    driver = Recorder(short)
    await ledger.add(lambda: [jobs(100)], "one")
    hold_up(monkeypatch, ledger, count)
    runner = Runner(ledger, driver, RunOptions(concurrency=8))
    work = asyncio.create_task(runner.run())
    async with asyncio.timeout(30):
        while (await states(ledger)).count("leased") < 16:
            await asyncio.sleep(0.01)
    runner.drain()
    go_on.set()
    await work
    ran = len(driver.jobs)
    assert [job.params["n"] for job in driver.jobs] == [*range(ran)] and driver.most[None] == 8
    assert await states(ledger) == ["succeeded"] * ran + ["queued"] * (100 - ran)
    assert turns <= ran / 2
    assert {row.attempts async for row in ledger.rows(State.QUEUED)} == {0}


@pytest.mark.load
async def test_cancelled_worker_starts_no_job_while_ledger_answers(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_up, go_on = asyncio.Event(), asyncio.Event()

    async def uneven(job: Job) -> Outcome:
        await asyncio.sleep(0.03 + len(driver.jobs) % 8 * 0.008)
        return Outcome(job, State.SUCCEEDED, milliseconds=60.0)

    async def wait(_: Sequence[Settlement]) -> None:
        if len(driver.jobs) > 40:
            held_up.set()
            await go_on.wait()

    driver = Recorder(uneven)
    await ledger.add(lambda: [jobs(200)], "one")
    hold_up(monkeypatch, ledger, wait)
    work = asyncio.create_task(Runner(ledger, driver, RunOptions()).run())
    await held_up.wait()
    work.cancel()
    await asyncio.sleep(0)
    ran = len(driver.jobs)
    await asyncio.sleep(0.1)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert len(driver.jobs) == ran
    assert set(await states(ledger)) <= {"succeeded", "unknown", "queued"}


@pytest.mark.load
async def test_job_is_not_started_when_its_lease_may_have_expired(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased_at: dict[str, float] = {}
    waited: list[float] = []
    slept: list[Job] = []

    async def held_up(job: Job) -> Outcome:
        waited.append(time.monotonic() - leased_at[job.key])
        await asyncio.sleep(0.002)
        if len(waited) > 8:  # the worker has seen short jobs, and leases some ahead
            while not slept and len(leased_at) - len(waited) <= 4:
                await asyncio.sleep(0.002)
            if not slept:
                slept.append(job)
                time.sleep(1.2)
        return Outcome(job, State.SUCCEEDED, milliseconds=2.0)

    async def note(_: Sequence[Settlement], leased: list[Leased]) -> None:
        leased_at.update((job.key, time.monotonic()) for job in leased)

    await ledger.add(lambda: [jobs(100)], "one")
    hold_up(monkeypatch, ledger, after=note)
    await Runner(ledger, Recorder(held_up), RunOptions(lease_seconds=1.0)).run()
    assert slept and max(waited) < 1.0 and len(waited) == 100
    assert {row.attempts async for row in ledger.rows()} == {1}


async def test_slow_ledger_does_not_prevent_jobs_from_starting(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """That time does not count as waiting: all jobs would be given back, and leased as slowly again."""
    requests = 0

    async def be_slow(_: Sequence[Settlement], leased: list[Leased]) -> None:
        nonlocal requests
        requests += 1
        assert requests < 10
        await asyncio.sleep(0.1)

    await ledger.add(lambda: [jobs(3)], "one")
    hold_up(monkeypatch, ledger, after=be_slow)
    await Runner(ledger, Recorder(), RunOptions(), max_wait=0.05).run()
    assert await states(ledger) == ["succeeded"] * 3


def test_job_leased_long_ago_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before the machine slept: the monotonic clock does not count that time."""
    clock = SimpleNamespace(monotonic=lambda: 5.0, time=lambda: 1000.0)
    monkeypatch.setattr("transports.batch._runner.time", clock)
    prefetched, since_request, leased = PrefetchedJobs(RunOptions()), Elapsed(), Leased("k", jobs(1)[0], 1)
    prefetched.add([leased], since_request, ())
    for now, seconds, dropped in ((1000.0, 1.0, []), (900.0, 1.0, []), (1600.0, 0.0, [leased])):
        clock.time = lambda now=now: now
        assert prefetched.seconds_left == seconds and prefetched.remove_unstartable((), stopped=False) == dropped
    later = PrefetchedJobs(RunOptions(lease_seconds=60.0))
    clock.time = lambda: 1029.5
    later.add([leased], since_request, ())
    assert later.seconds_left == 0.5  # half of the lease is certain, and counts from its request


@pytest.mark.load
async def test_job_leased_again_while_ending_is_not_rerun(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was held up, another one ended its lease, and the request that is under way gets the job anew."""
    go_on = asyncio.Event()
    lost = False

    async def slow(job: Job) -> Outcome:
        await go_on.wait()
        return Outcome(job, State.SUCCEEDED)

    async def lose_lease(_: Sequence[Settlement]) -> None:
        nonlocal lost
        if driver.jobs and not lost:
            await ledger.heartbeat(-1)
            assert await other.expire() == (1, 0)
            lost = True

    async def end_job(_: Sequence[Settlement], leased: list[Leased]) -> None:
        if lost and not go_on.is_set():
            go_on.set()
            while runner._running:
                await asyncio.sleep(0)

    driver = Recorder(slow)
    async with open_ledger(tmp_path) as other:
        await ledger.add(lambda: [jobs(1, idempotent=True)], "one")
        hold_up(monkeypatch, ledger, lose_lease, end_job)
        runner = Runner(ledger, driver, RunOptions(concurrency=2))
        await runner.run()
        assert lost and await states(ledger) == ["succeeded"] and len(driver.jobs) == 1


@pytest.mark.load
async def test_worker_stalled_longer_than_lease_keeps_its_results(ledger: Ledger) -> None:
    async def held_up(job: Job) -> Outcome:
        await asyncio.sleep(0.01)
        time.sleep(1.2)  # the machine slept
        return Outcome(job, State.SUCCEEDED)

    driver = Recorder(held_up)
    await ledger.add(lambda: [jobs(1, idempotent=True)], "one")
    await Runner(ledger, driver, RunOptions(concurrency=1, lease_seconds=1.0)).run()
    assert await states(ledger) == ["succeeded"] and len(driver.jobs) == 1


async def test_job_waiting_for_session_stays_queued_when_run_is_cancelled(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job is in the app, the others wait for its session."""
    world = World(monkeypatch)
    async with world.pool(1, 1) as pool:
        await ledger.add(lambda: [[Job("wait", {"n": n}, PAGE) for n in range(3)]], "one")
        work = asyncio.create_task(Runner(ledger, pool, RunOptions(concurrency=3)).run())
        await eventually(lambda: world.waiting == 1 and pool.stats().waiting == 2)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert sorted(await states(ledger)) == ["queued", "queued", "unknown"]
