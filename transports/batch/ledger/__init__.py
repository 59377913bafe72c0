"""The table that knows what became of each job: SQLite in the run's folder, or PostgreSQL for many machines."""

from .entries import Added, Counts, Leased, Row, Settlement
from .ledger import Ledger
from .opening import open_ledger

__all__ = ["Added", "Counts", "Leased", "Ledger", "Row", "Settlement", "open_ledger"]
