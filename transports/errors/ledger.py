"""The error of a ledger: the table that knows what became of the jobs of a batch."""

from __future__ import annotations

from .base import ABPError

__all__ = ["LedgerError"]


class LedgerError(ABPError):
    """Raised when the ledger of a batch cannot be opened, read or written: a full disk, a database that does not
    answer, a file of another version. The session survives. ``retryable`` is set where waiting may help. Nothing is
    lost: the same command goes on where the ledger stands."""

    code = "LEDGER_ERROR"
