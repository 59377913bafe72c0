"""Where the jobs of a run are run: in this process, or in Ray actors. The ledger owns the truth; an engine only lends
workers.

* :mod:`.local` — a pool in this process. :mod:`.ray_engine` — as many Ray actors as the ledger's backlog asks for.
* :mod:`.ray_cluster` — Ray itself. :mod:`.ray_worker` — what runs in an actor.
"""

from __future__ import annotations

from typing import Protocol

from ._local import LocalEngine, WorkReport
from ._ray_engine import RayEngine, require_ray

__all__ = ["Engine", "LocalEngine", "RayEngine", "WorkReport", "require_ray"]


class Engine(Protocol):
    """What works off the jobs of one run."""

    async def run(self) -> WorkReport:
        """Run jobs until each has a final state, the deadline passes or :meth:`drain` is called. If it is cancelled,
        the jobs that run are cancelled and settled. Raises :class:`~transports.errors.LedgerError`."""

    def drain(self) -> None:
        """Begin no more jobs; :meth:`run` returns when those that run have ended."""
