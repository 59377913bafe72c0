"""Many calls: jobs that run over a pool of apps and browsers, and the ledger that knows what became of each."""

from __future__ import annotations

from ._jobs import Job, Outcome, State
from .ledger import Ledger, open_ledger
from .pool import BrowserStats, Endpoint, Pool, PoolStats, Reuse
from .running import RunOptions, run

__all__ = [
    "BrowserStats",
    "Endpoint",
    "Job",
    "Ledger",
    "Outcome",
    "Pool",
    "PoolStats",
    "Reuse",
    "RunOptions",
    "State",
    "open_ledger",
    "run",
]
