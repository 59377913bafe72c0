"""Jobs, drivers and ledgers for tests of runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from transports.artifacts import ArtifactRef
from transports.batch import Job, Ledger, Outcome, State, open_ledger
from transports.batch.ledger._schema import Counts, Leased, Settlement

#: For tests whose statements `make test` runs in PostgreSQL, too; `make slow` runs the others.
both_databases = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("postgresql", marks=pytest.mark.load)], indirect=True
)
REF = ArtifactRef("a1", "artifact://a1", None, "a.pdf", "application/pdf", 3, "0" * 64, {})


class Recorder:
    """Answers each job by a function, and notes what ran and how much at once."""

    def __init__(self, answer: Callable[[Job], Awaitable[Outcome]] | None = None) -> None:
        self.jobs: list[Job] = []
        self.most: Counter[str | None] = Counter()
        self._at_once: Counter[str | None] = Counter()
        self._answer = answer

    @property
    def ran(self) -> Counter[object]:
        """How often jobs ran, by their parameter ``n``."""
        return Counter(job.params.get("n") for job in self.jobs)

    async def run(self, job: Job, /) -> Outcome:
        self.jobs.append(job)
        for name in (job.target, None):
            self._at_once[name] += 1
            self.most[name] = max(self.most[name], self._at_once[name])
        try:
            await asyncio.sleep(0)
            if self._answer is None:
                return Outcome(job, State.SUCCEEDED, artifacts=(REF,))
            return await self._answer(job)
        finally:
            for name in (job.target, None):
                self._at_once[name] -= 1


def jobs(count: int, target: str = "http://a.test/", *, idempotent: bool = False, first: int = 0) -> list[Job]:
    return [Job("do", {"n": n}, target, idempotent=idempotent) for n in range(first, first + count)]


async def filled(place: str, added: Sequence[Job], fingerprint: str = "one") -> Ledger:
    ledger = await open_ledger(place).__aenter__()
    await ledger.add(lambda: [added], fingerprint)
    return ledger


def done(leased: Leased, state: State = State.SUCCEEDED, **fields: object) -> Settlement:
    return Settlement(leased.key, Outcome(leased.job, state, milliseconds=2.5, **fields))  # type: ignore[arg-type]


def numbers(counts: Counts) -> dict[str, int]:
    return {state.value: counts[state] for state in State if counts[state]}


async def states(ledger: Ledger) -> list[str]:
    return [row.state.value async for row in ledger.rows()]


def hold_up(
    patch: pytest.MonkeyPatch,
    ledger: Ledger,
    before: Callable[[Sequence[Settlement]], Awaitable[None]] | None = None,
    after: Callable[[Sequence[Settlement], list[Leased]], Awaitable[None]] | None = None,
) -> None:
    """Call ``before`` each request of a worker to the ledger, and ``after`` it."""
    settle_and_lease = ledger.settle_and_lease

    async def held_up(settlements: Sequence[Settlement], *rest: Any, **options: Any) -> tuple[int, list[Leased]]:
        if before is not None:
            await before(settlements)
        held, leased = await settle_and_lease(settlements, *rest, **options)
        if after is not None:
            await after(settlements, leased)
        return held, leased

    patch.setattr(ledger, "settle_and_lease", held_up)
