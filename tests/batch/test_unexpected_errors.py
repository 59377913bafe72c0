"""A driver, a source of jobs, a browser or the system raises what nobody expects: each job and each call still ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.batch.planted import PAGE, World
from tests.batch.runs import Recorder, jobs
from tests.support.eventually import eventually
from transports import TransportError
from transports.batch import Job
from transports.batch._batch import run
from transports.batch._jobs import Outcome, State
from transports.batch._pool import free_memory


async def no_outcome(job: Job) -> Any:
    return None


async def no_exception(job: Job) -> Outcome:
    pytest.fail("the driver fails")


@pytest.mark.parametrize("answer", [no_outcome, no_exception])
async def test_contract_breaking_driver_marks_jobs_unknown_and_run_ends(
    tmp_path: Path, answer: Callable[[Job], Any]
) -> None:
    async with asyncio.timeout(20):
        report = await run(jobs(3), tmp_path, pool=Recorder(answer))
    states: Any = report["states"]
    assert states[State.UNKNOWN] == 3


async def test_cancelled_job_source_ends_outcomes(world: World) -> None:
    async def cancelled() -> AsyncIterator[Job]:
        yield Job("work", {"n": 1}, PAGE)
        raise asyncio.CancelledError

    outcomes: list[Outcome] = []
    with pytest.raises(asyncio.CancelledError):
        async with world.pool() as pool, asyncio.timeout(20):
            async for outcome in pool.map(cancelled(), concurrency=1):
                outcomes.append(outcome)
    assert [outcome.state for outcome in outcomes] == [State.SUCCEEDED]


async def test_waiting_call_gets_error_of_failed_memory_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> object:
        raise KeyError("MemAvailable")

    monkeypatch.setattr("transports.batch._pool.free_memory", free_memory)
    monkeypatch.setattr(psutil, "virtual_memory", failing)
    async with world.pool() as pool, asyncio.timeout(20):
        with pytest.raises(
            TransportError, match=r"the pool cannot open sessions: KeyError\('MemAvailable'\)"
        ) as raised:
            await pool.call(PAGE, "work")
    assert raised.value.sent is False


async def test_browser_checks_continue_after_failed_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.pool(1, 1) as pool:
        await pool.call(PAGE, "work")
        (browser,) = world.browsers
        checks: list[int] = []

        async def failing() -> int:
            checks.append(1)
            raise psutil.AccessDenied

        monkeypatch.setattr(browser, "resident_bytes", failing)
        await eventually(lambda: checks)
        browser.answers = False
        await eventually(lambda: browser.closed)
        assert pool.stats().recycled == {"unresponsive": 1}
