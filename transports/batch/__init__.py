"""Batches of calls: jobs, a pool of sessions and browsers to run them, and the ledger of their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from ._consent import Consent as Consent
    from ._jobs import Job, Outcome, State
    from .ledger import Ledger, open_ledger
    from .ledger._backends import SqliteDatabase as SqliteDatabase
    from .ledger._schema import decoded_object as decoded_object, encoded as encoded
    from .pool import BrowserStats, Endpoint, Pool, PoolStats, Reuse
    from .running import Report, RunOptions, run
    from .running._batch import Source as Source, ignore as ignore
    from .running._runner import OnSettled as OnSettled
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_consent": ("Consent",),
            "_jobs": ("Job", "Outcome", "State"),
            "ledger": ("Ledger", "open_ledger"),
            "ledger._backends": ("SqliteDatabase",),
            "ledger._schema": ("decoded_object", "encoded"),
            "pool": ("BrowserStats", "Endpoint", "Pool", "PoolStats", "Reuse"),
            "running": ("Report", "RunOptions", "run"),
            "running._batch": ("Source", "ignore"),
            "running._runner": ("OnSettled",),
        },
    )

__all__ = [
    "BrowserStats",
    "Endpoint",
    "Job",
    "Ledger",
    "Outcome",
    "Pool",
    "PoolStats",
    "Report",
    "Reuse",
    "RunOptions",
    "State",
    "open_ledger",
    "run",
]
