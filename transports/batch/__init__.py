"""Batches of calls: jobs, a pool of sessions and browsers to run them, and the ledger of their outcomes."""

from __future__ import annotations

from .jobs import Job, Outcome, State
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
