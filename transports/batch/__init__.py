"""Many calls: jobs that run over a pool of apps and browsers, and the ledger that knows what became of each."""

from __future__ import annotations

from .jobs import Job, State
from .outcome import Outcome
from .pool import BrowserStats, Endpoint, Pool, PoolStats, Reuse

__all__ = ["BrowserStats", "Endpoint", "Job", "Outcome", "Pool", "PoolStats", "Reuse", "State"]
