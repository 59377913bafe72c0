"""What a ledger needs of a database: one connection of PEP 249 in a thread of its own, and two words of its SQL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from ...errors import LedgerError
from ...tasks import backoff_delay

__all__ = ["Cursor", "Database", "Transactions", "Value"]

T = TypeVar("T")
Value: TypeAlias = str | int | float | None

#: Seconds for which a lost connection is opened again and again.
_PATIENCE = 30.0


class Cursor(Protocol):
    """The part of a PEP 249 cursor that is used. Parameters are written ``?`` in SQLite and ``%s`` in PostgreSQL."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement changed."""

    def execute(self, sql: str, values: Sequence[Value] = ..., /) -> object:
        """Run one statement."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Value]], /) -> object:
        """Run one statement for each row of values."""

    def fetchall(self) -> Sequence[tuple[Value, ...]]:
        """Return the rows of the last statement."""


class Database(Protocol):
    """One connection. All methods block, and are called in one thread."""

    #: An expression: the database's clock, in seconds since 1970.
    now: str
    #: A query with a row if the tables of a ledger are there.
    find_tables: str
    #: What follows a SELECT whose rows this transaction will change.
    skip_locked: str
    #: Whether it can tell that another worker has ended.
    sees_workers: bool

    def connect(self) -> None:
        """Open the connection, unless it is open. Raises :class:`~transports.errors.LedgerError`, ``retryable`` where
        waiting may help."""

    def close(self) -> None:
        """Close the connection. Raises nothing."""

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Return what ``work`` returns, once all that it changed is on the disk; if it raises, nothing is changed. One
        that does not ``write`` waits for no other.
        Raises :class:`~transports.errors.LedgerError`, with ``retryable`` if the connection was lost."""

    def lock(self, cursor: Cursor, name: str) -> None:
        """Wait until no other transaction has the lock ``name``, and hold it until this one ends. That of a run is for
        leasing, where limits per host are counted and then used, and for cancelling."""

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return those of ``workers`` that are certain to have ended."""

    def begin_work(self, worker: str) -> None:
        """Note that ``worker`` is at work until this connection closes or its process ends."""


class Transactions:
    """Runs the transactions of one database in its thread, and again after a lost connection. A server that was never
    reached is not waited for."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="abp-ledger")
        self._closed = False
        self._reached = False

    async def run(
        self, work: Callable[[Cursor], T], on_cancel: Callable[[], object] = lambda: None, *, write: bool = True
    ) -> T:
        """Return what ``work`` returns. It may run more than once, each time in a new transaction: where a connection
        was lost nobody knows whether the last one counted.

        It ends even if its caller is cancelled, which ``on_cancel`` is told of. Raises
        :class:`~transports.errors.LedgerError`, and what ``work`` raises."""
        if self._closed:
            raise LedgerError("the ledger is closed; open it again")
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._repeat, work, write)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            on_cancel()
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            if not future.cancelled():
                future.exception()
            raise

    def _repeat(self, work: Callable[[Cursor], T], write: bool) -> T:
        end, attempt = time.monotonic() + _PATIENCE, 0
        while True:
            try:
                self._database.connect()
                self._reached = True
                return self._database.transaction(work, write=write)
            except LedgerError as error:
                attempt += 1
                delay = backoff_delay(attempt, 2.0)
                if not (error.retryable and self._reached) or self._closed or time.monotonic() + delay > end:
                    raise
                time.sleep(delay)

    async def aclose(self) -> None:
        """Close the connection after what is under way. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
            self._thread.shutdown(wait=False)
