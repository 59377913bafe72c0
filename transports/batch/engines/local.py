"""The engine that is this process."""

from __future__ import annotations

from ..ledger import Ledger
from ..pool import Pool
from ..running import Runner, RunOptions
from ..running.runner import OnSettled
from .report import WorkReport

__all__ = ["LocalEngine"]


class LocalEngine:
    """One worker: a pool, which this opens, and a runner."""

    def __init__(self, ledger: Ledger, pool: Pool, options: RunOptions, on_settled: OnSettled = lambda _: None) -> None:
        self._pool = pool
        self._runner = Runner(ledger, pool, options, on_settled)

    def drain(self) -> None:
        """Begin no more jobs."""
        self._runner.drain()

    async def run(self) -> WorkReport:
        """Run jobs to the end."""
        async with self._pool as pool:
            await self._runner.run()
            return WorkReport.of_stats(pool.stats())
