"""What a ledger needs of its database besides transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...database import Connection

__all__ = ["Database"]


class Database(Connection, Protocol):
    """A connection that knows which workers are at work. The lock of a run is for leasing,
    where limits per host are counted and then used, and for cancelling."""

    #: Whether it can tell that another worker has ended.
    sees_workers: bool
    #: Whether a transaction that writes keeps all others from writing: an input is read before it begins.
    one_writer: bool

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return those of ``workers`` that are certain to have ended."""

    def begin_work(self, worker: str) -> None:
        """Note that ``worker`` is at work until this connection closes or its process ends."""
