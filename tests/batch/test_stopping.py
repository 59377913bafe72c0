"""Runs that are stopped, or whose ledger fails: what is known stays known, and what was not sent stays queued."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.batch.planted import PAGE, World, until
from transports.batch.jobs import Job, State
from transports.batch.ledger import Leased, Ledger, Settlement, open_ledger
from transports.batch.outcome import Outcome
from transports.batch.run import Runner, RunOptions
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
        settle, failed = ledger.settle, 0

        async def fail_once(settlements: Sequence[Settlement]) -> int:
            nonlocal failed
            failed += 1
            if failed == 1:
                raise LedgerError("no space is left")
            return await settle(settlements)

        monkeypatch.setattr(ledger, "settle", fail_once)
        told: list[Settlement] = []
        with pytest.raises(LedgerError, match="no space"):
            await Runner(ledger, Driver(), RunOptions(), told.append).run()
        assert await states(ledger) == ["succeeded"] * 3 and len(told) == 3
