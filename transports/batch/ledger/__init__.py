"""The table that knows what became of each job: SQLite in the run's folder, or PostgreSQL for many machines."""

from .entries import Added, Counts, Leased, Row, Settlement
from .ledger import Ledger, open_ledger, open_view
from .reads import FINAL, JobPage, JobQuery, LedgerView, Overview

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
