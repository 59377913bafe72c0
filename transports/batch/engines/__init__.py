"""Engines for the workers of a batch. The ledger holds the state of the run; an engine holds none.

* :mod:`._local` — one worker in this process.
* :mod:`._ray_engine` — workers in Ray actors, scaled with the ledger's backlog.
"""

from __future__ import annotations

from typing import Protocol

from ._local import LocalEngine, WorkReport
from ._ray_engine import RayEngine, require_ray

__all__ = ["Engine", "LocalEngine", "RayEngine", "WorkReport", "require_ray"]


class Engine(Protocol):
    """Protocol of an engine for the jobs of one run."""

    async def run(self) -> WorkReport:
        """Run jobs until each has a final state, the deadline passes or :meth:`drain` is called.

        If it is cancelled, running jobs are cancelled and settled. Raises :class:`~transports.errors.LedgerError`."""

    def drain(self) -> None:
        """Start no more jobs; :meth:`run` returns when the running jobs have ended."""
