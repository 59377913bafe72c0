"""Engine with one worker in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..ledger._ledger import Ledger
from ..pool._fleet import PoolStats
from ..pool._pool import Pool
from ..running._runner import OnSettled, Runner, RunOptions


@dataclass(frozen=True, slots=True)
class WorkReport:
    """Statistics of a worker: number of ``calls``, and ``recycled`` browsers by reason."""

    calls: int = 0
    recycled: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_stats(cls, stats: PoolStats) -> WorkReport:
        """Return the report for the statistics of a pool."""
        return cls(stats.calls, dict(stats.recycled))


class Engine(Protocol):
    """Protocol of an engine for the jobs of one run."""

    async def run(self) -> WorkReport:
        """Run jobs until each has a final state, the deadline passes or :meth:`drain` is called.

        If it is cancelled, running jobs are cancelled and settled. Raises :class:`~transports.errors.LedgerError`."""

    def drain(self) -> None:
        """Start no more jobs; :meth:`run` returns when the running jobs have ended."""


class LocalEngine:
    """Engine with one worker: a runner and its pool. The engine opens the pool."""

    def __init__(self, ledger: Ledger, pool: Pool, options: RunOptions, on_settled: OnSettled = lambda _: None) -> None:
        self._pool = pool
        self._runner = Runner(ledger, pool, options, on_settled)

    def drain(self) -> None:
        """Start no more jobs."""
        self._runner.drain()

    async def run(self) -> WorkReport:
        """Run jobs to the end."""
        async with self._pool as pool:
            await self._runner.run()
            return WorkReport.of_stats(pool.stats())
