"""The table that knows what became of each job: SQLite in the run's folder, or PostgreSQL for many machines."""

from ._entries import Added, Counts, Leased, Row, Settlement
from ._ledger import Ledger, open_ledger, open_view
from ._reads import FINAL, JobPage, JobQuery, LedgerView, Overview

__all__ = [
    "FINAL",
    "Added",
    "Counts",
    "JobPage",
    "JobQuery",
    "Leased",
    "Ledger",
    "LedgerView",
    "Overview",
    "Row",
    "Settlement",
    "open_ledger",
    "open_view",
]
