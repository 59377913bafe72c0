"""Runs that are stopped, or whose ledger fails: what is known stays known, and what was not sent stays queued."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.batch.planted import PAGE, World
from tests.support.eventually import eventually
from transports.batch._jobs import Job, Outcome, State
from transports.batch._runner import Ahead, Elapsed, Ended, Runner, RunOptions
from transports.batch.ledger._ledger import Ledger, open_ledger
from transports.batch.ledger._schema import Leased, Settlement
from transports.errors import LedgerError


class Driver:
    """Answers each job at once."""

    async def run(self, job: Job) -> Outcome:
        return Outcome(job, State.SUCCEEDED)


def jobs(count: int, capability: str = "do", target: str = "memory:") -> list[Job]:
    return [Job(capability, {"n": n}, target) for n in range(count)]


async def states(ledger: Ledger) -> list[str]:
    return [row.state.value async for row in ledger.rows()]


async def test_outcomes_that_could_not_be_written_are_written_when_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(3)], "one")
        settle_and_lease, failed = ledger.settle_and_lease, 0

        async def fail_once(settlements: Sequence[Settlement], *rest: Any, **options: Any) -> tuple[int, list[Leased]]:
            nonlocal failed
            failed += bool(settlements)
            if failed == 1:
                raise LedgerError("no space is left")
            return await settle_and_lease(settlements, *rest, **options)

        monkeypatch.setattr(ledger, "settle_and_lease", fail_once)
        told: list[Settlement] = []
        with pytest.raises(LedgerError, match="no space"):
            await Runner(ledger, Driver(), RunOptions(), told.append).run()
        assert await states(ledger) == ["succeeded"] * 3 and len(told) == 3


async def test_outcomes_that_are_written_while_the_run_is_cancelled_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(3)], "one")
        settle_and_lease, written, go_on = ledger.settle_and_lease, asyncio.Event(), asyncio.Event()

        async def slow(settlements: Sequence[Settlement], *rest: Any, **options: Any) -> tuple[int, list[Leased]]:
            done = await settle_and_lease(settlements, *rest, **options)
            if settlements:
                written.set()
                await go_on.wait()
            return done

        monkeypatch.setattr(ledger, "settle_and_lease", slow)
        told: list[Settlement] = []
        work = asyncio.create_task(Runner(ledger, Driver(), RunOptions(), told.append).run())
        await written.wait()
        work.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await states(ledger) == ["succeeded"] * 3 and len(told) == 3
        assert "another worker" not in caplog.text


async def test_jobs_that_are_leased_while_the_run_is_cancelled_stay_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(3)], "one")
        settle_and_lease, leased, go_on = ledger.settle_and_lease, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **options: Any) -> tuple[int, list[Leased]]:
            done = await settle_and_lease(*args, **options)
            leased.set()
            await go_on.wait()
            return done

        monkeypatch.setattr(ledger, "settle_and_lease", slow)
        work = asyncio.create_task(Runner(ledger, Driver(), RunOptions()).run())
        await leased.wait()
        assert await states(ledger) == ["leased"] * 3
        work.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await states(ledger) == ["queued"] * 3


async def test_jobs_that_were_leased_stay_queued_if_an_outcome_cannot_be_reported(tmp_path: Path) -> None:
    def refuse(_: Settlement) -> None:
        raise BrokenPipeError("nobody reads")

    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(6)], "one")
        with pytest.raises(BrokenPipeError):
            await Runner(ledger, Driver(), RunOptions(concurrency=2), refuse).run()
        assert sorted(await states(ledger)) == ["queued"] * 4 + ["succeeded"] * 2


async def test_short_jobs_are_leased_several_at_a_time_and_given_back_when_the_worker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        ran: ClassVar[list[object]] = []
        at_work = most = 0
        go_on = asyncio.Event()

        async def run(self, job: Job) -> Outcome:
            self.ran.append(job.params["n"])
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            await asyncio.sleep(0.005)
            if len(self.ran) >= 80:
                await self.go_on.wait()
            self.at_work -= 1
            return Outcome(job, State.SUCCEEDED, milliseconds=5.0)

    driver = Short()
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(100)], "one")
        settle_and_lease, turns = ledger.settle_and_lease, 0

        async def counted(*given: Any, **options: Any) -> tuple[int, list[Leased]]:
            nonlocal turns
            turns += 1
            return await settle_and_lease(*given, **options)

        monkeypatch.setattr(ledger, "settle_and_lease", counted)
        runner = Runner(ledger, driver, RunOptions(concurrency=8))
        work = asyncio.create_task(runner.run())
        async with asyncio.timeout(30):
            while (await states(ledger)).count("leased") < 16:
                await asyncio.sleep(0.01)
        runner.drain()
        driver.go_on.set()
        assert await work is Ended.STOPPED
        ran = len(driver.ran)
        assert driver.ran == [*range(ran)] and driver.most == 8
        assert await states(ledger) == ["succeeded"] * ran + ["queued"] * (100 - ran)
        assert turns <= ran / 2
        assert {row.attempts async for row in ledger.rows(State.QUEUED)} == {0}


@pytest.mark.load
async def test_nothing_is_begun_while_the_ledger_answers_a_worker_that_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[object] = []

    class Uneven:
        async def run(self, job: Job) -> Outcome:
            began.append(job.params["n"])
            await asyncio.sleep(0.03 + len(began) % 8 * 0.008)
            return Outcome(job, State.SUCCEEDED, milliseconds=60.0)

    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(200)], "one")
        settle_and_lease, held_up, go_on = ledger.settle_and_lease, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **options: Any) -> tuple[int, list[Leased]]:
            if len(began) > 40:
                held_up.set()
                await go_on.wait()
            return await settle_and_lease(*args, **options)

        monkeypatch.setattr(ledger, "settle_and_lease", slow)
        work = asyncio.create_task(Runner(ledger, Uneven(), RunOptions()).run())
        await held_up.wait()
        work.cancel()
        await asyncio.sleep(0)
        ran = len(began)
        await asyncio.sleep(0.1)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert len(began) == ran
        assert set(await states(ledger)) <= {"succeeded", "unknown", "queued"}


@pytest.mark.load
async def test_a_job_is_not_begun_when_its_lease_may_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased_at: dict[str, float] = {}
    waited: list[float] = []
    slept: list[Job] = []

    class HeldUp:
        async def run(self, job: Job) -> Outcome:
            waited.append(time.monotonic() - leased_at[job.key])
            await asyncio.sleep(0.002)
            if len(waited) > 8:  # the worker has seen short jobs, and leases some ahead
                while not slept and len(leased_at) - len(waited) <= 4:
                    await asyncio.sleep(0.002)
                if not slept:
                    slept.append(job)
                    time.sleep(1.2)
            return Outcome(job, State.SUCCEEDED, milliseconds=2.0)

    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(100)], "one")
        settle_and_lease = ledger.settle_and_lease

        async def timed(*args: Any, **options: Any) -> tuple[int, list[Leased]]:
            held, leased = await settle_and_lease(*args, **options)
            leased_at.update((one.key, time.monotonic()) for one in leased)
            return held, leased

        monkeypatch.setattr(ledger, "settle_and_lease", timed)
        assert await Runner(ledger, HeldUp(), RunOptions(lease_seconds=1.0)).run() is Ended.DONE
        assert slept and max(waited) < 1.0 and len(waited) == 100
        assert {row.attempts async for row in ledger.rows()} == {1}


async def test_jobs_begin_however_slowly_the_ledger_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits there is no wait behind other jobs: all would be given back, and leased as slowly again."""
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(3)], "one")
        settle_and_lease, asked = ledger.settle_and_lease, 0

        async def slow(*args: Any, **options: Any) -> tuple[int, list[Leased]]:
            nonlocal asked
            asked += 1
            assert asked < 10
            answer = await settle_and_lease(*args, **options)
            await asyncio.sleep(0.1)
            return answer

        monkeypatch.setattr(ledger, "settle_and_lease", slow)
        assert await Runner(ledger, Driver(), RunOptions(), max_wait=0.05).run() is Ended.DONE
        assert await states(ledger) == ["succeeded"] * 3


def test_a_job_that_was_leased_before_the_machine_slept_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock that goes on evenly stands still meanwhile."""
    clock = SimpleNamespace(monotonic=lambda: 5.0, time=lambda: 1000.0)
    monkeypatch.setattr("transports.batch._runner.time", clock)
    ahead, leased = Ahead(RunOptions()), Leased("k", jobs(1)[0], 1)
    ahead.add([leased], Elapsed(), ())
    assert ahead.seconds == 1.0 and ahead.drop((), stopped=False) == []
    clock.time = lambda: 900.0  # set back
    assert ahead.seconds == 1.0 and ahead.drop((), stopped=False) == []
    clock.time = lambda: 1600.0
    assert ahead.seconds == 0.0 and ahead.drop((), stopped=False) == [leased]


@pytest.mark.load
async def test_a_job_that_is_leased_again_while_it_ends_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was held up, another one ended its lease, and the request that is under way gets the job anew."""
    go_on, ran = asyncio.Event(), 0

    class Slow:
        async def run(self, job: Job) -> Outcome:
            nonlocal ran
            ran += 1
            await go_on.wait()
            return Outcome(job, State.SUCCEEDED)

    async with open_ledger(tmp_path) as ledger, open_ledger(tmp_path) as other:
        await ledger.add(lambda: [[Job("do", {}, "memory:", idempotent=True)]], "one")
        settle_and_lease = ledger.settle_and_lease

        async def late(*args: Any, **options: Any) -> tuple[int, list[Leased]]:
            if ran and not go_on.is_set():
                await ledger.heartbeat(-1)
                assert await other.expire() == (1, 0)
                leased = await settle_and_lease(*args, **options)
                go_on.set()
                while runner._running:
                    await asyncio.sleep(0)
                return leased
            return await settle_and_lease(*args, **options)

        monkeypatch.setattr(ledger, "settle_and_lease", late)
        runner = Runner(ledger, Slow(), RunOptions(concurrency=2))
        assert await runner.run() is Ended.DONE
        assert await states(ledger) == ["succeeded"] and ran == 1


@pytest.mark.load
async def test_a_worker_that_was_held_up_longer_than_a_lease_keeps_what_it_has_done(tmp_path: Path) -> None:
    class HeldUp:
        ran = 0

        async def run(self, job: Job) -> Outcome:
            self.ran += 1
            await asyncio.sleep(0.01)
            time.sleep(1.2)  # the machine slept
            return Outcome(job, State.SUCCEEDED)

    driver = HeldUp()
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [[Job("do", {}, "memory:", idempotent=True)]], "one")
        await Runner(ledger, driver, RunOptions(concurrency=1, lease_seconds=1.0)).run()
        assert await states(ledger) == ["succeeded"] and driver.ran == 1


async def test_jobs_that_wait_for_the_rate_when_the_run_is_cancelled_stay_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = asyncio.Event()

    async def take(rate: object, count: int) -> None:
        taking.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("transports.batch._runner.Rate.take", take)
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(3)], "one")
        work = asyncio.create_task(Runner(ledger, Driver(), RunOptions()).run())
        await taking.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await states(ledger) == ["queued"] * 3


async def test_a_job_that_waits_for_a_session_when_the_run_is_cancelled_stays_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job is in the app, the others wait for its session."""
    world = World(monkeypatch)
    async with open_ledger(tmp_path) as ledger, world.pool(1, 1) as pool:
        await ledger.add(lambda: [jobs(3, "wait", PAGE)], "one")
        work = asyncio.create_task(Runner(ledger, pool, RunOptions(concurrency=3)).run())
        await eventually(lambda: world.waiting == 1 and pool.stats().waiting == 2)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert sorted(await states(ledger)) == ["queued", "queued", "unknown"]
