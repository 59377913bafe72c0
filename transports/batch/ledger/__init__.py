"""Ledger of a run: the state and outcome of each job, in SQLite in the run's folder, or in PostgreSQL for workers on
many machines.

* :mod:`.ledger` — the :class:`Ledger` of a worker; :mod:`.reads` — :class:`LedgerView`: lists and statistics.
* :mod:`.writes` — adding, leasing and settling jobs; :mod:`.schema` — tables; :mod:`.entries` — records.
* :mod:`.backends` — the databases.
"""

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
