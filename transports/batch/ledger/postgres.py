"""A ledger in PostgreSQL, for workers on many machines."""

from __future__ import annotations

from collections.abc import Sequence

from ...database import PostgresConnection
from ...errors import LedgerError

__all__ = ["PostgresDatabase"]


class PostgresDatabase(PostgresConnection):
    """The tables of all runs in one database."""

    sees_workers = False  # a machine that cannot be reached may still be at work
    one_writer = False

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, "the ledger", LedgerError, read_only=read_only)

    def begin_work(self, worker: str) -> None:
        """Do nothing: a worker is known by its lease alone."""

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return none."""
        return []
