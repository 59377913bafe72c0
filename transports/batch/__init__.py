"""Batches of calls: jobs, a pool of sessions and browsers to run them, and the ledger of their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._consent import Consent as Consent
    from ._jobs import Job, Outcome, State
    from .ledger._backends import SqliteDatabase as SqliteDatabase
    from .ledger._ledger import Ledger, open_ledger
    from .ledger._schema import decoded_object as decoded_object, encoded as encoded
    from .pool._fleet import BrowserStats, Endpoint, PoolStats
    from .pool._leases import Reuse
    from .pool._pool import Pool
    from .running._batch import Source as Source, ignore as ignore, run
    from .running._outputs import Report
    from .running._runner import OnSettled as OnSettled, RunOptions
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_consent": ("Consent",),
            "_jobs": (
                "Job",
                "Outcome",
                "State",
            ),
            "ledger._backends": ("SqliteDatabase",),
            "ledger._ledger": (
                "Ledger",
                "open_ledger",
            ),
            "ledger._schema": (
                "decoded_object",
                "encoded",
            ),
            "pool._fleet": (
                "BrowserStats",
                "Endpoint",
                "PoolStats",
            ),
            "pool._leases": ("Reuse",),
            "pool._pool": ("Pool",),
            "running._batch": (
                "Source",
                "ignore",
                "run",
            ),
            "running._outputs": ("Report",),
            "running._runner": (
                "OnSettled",
                "RunOptions",
            ),
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
