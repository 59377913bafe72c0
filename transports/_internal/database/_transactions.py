"""Transactions on one connection (PEP 249) in a thread of its own; the protocol that hides the differences of SQL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from ...errors import ABPError
from ..tasks import backoff_delay, finished

T = TypeVar("T")
Value: TypeAlias = str | int | float | None


class Cursor(Protocol):
    """Part of a PEP 249 cursor that the kit uses. Parameters are written ``?``, for PostgreSQL too."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement changed."""

    def execute(self, sql: str, values: Sequence[Value] = ..., /) -> object:
        """Run one statement."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Value]], /) -> object:
        """Run one statement for each row of values."""

    def fetchall(self) -> Sequence[tuple[Value, ...]]:
        """Return the rows of the last statement."""


class Connection(Protocol):
    """Connection to a database, with the SQL that differs between databases. All methods block, in one thread.

    They raise errors of one type, :attr:`error`, which are ``retryable`` if waiting may help."""

    #: SQL expression of the database's clock, in seconds since 1970.
    now: str
    #: SQL type of a text that is compared and sorted by its bytes.
    text: str
    #: SQL clause after a SELECT whose rows this transaction will change.
    skip_locked: str
    #: Query that returns a row if a table or an index with the name in its parameter exists.
    find_relation: str

    @property
    def name(self) -> str:
        """Name of the connection's purpose in messages, such as ``the ledger``."""

    @property
    def error(self) -> type[ABPError]:
        """Type of the errors."""

    def connect(self) -> None:
        """Open the connection, unless it is open."""

    def close(self) -> None:
        """Close the connection. Never raises."""

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in a transaction and return its result when all changes are on the disk.

        If ``work`` raises, nothing is changed. A transaction that does not ``write`` waits for no other."""

    def lock(self, cursor: Cursor, name: str) -> None:
        """Acquire the lock ``name``, and hold it until the transaction ends."""


class Transactions:
    """Transactions of one database in a thread; after a lost connection they are retried for ``patience`` seconds.

    There are no retries for a server that was never reached."""

    def __init__(self, database: Connection, patience: float = 30.0) -> None:
        self._database = database
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="abp-database")
        self._closed = False
        self._reached = False

    async def run(
        self, work: Callable[[Cursor], T], on_cancel: Callable[[], object] = lambda: None, *, write: bool = True
    ) -> T:
        """Run ``work`` in a transaction and return its result.

        ``work`` may run more than once, each time in a new transaction; after a lost connection it is unknown whether
        the last transaction was committed. Running work ends even if the caller is cancelled, after ``on_cancel()``.
        Raises the database's error, and errors of ``work``."""
        if self._closed:
            raise self._database.error(f"{self._database.name} is closed; open it again")
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._run_with_retries, work, write)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            on_cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await finished(future)
            raise

    def _run_with_retries(self, work: Callable[[Cursor], T], write: bool) -> T:
        """Run ``work`` in a transaction; after a lost connection, in new ones until the patience ends. It blocks."""
        deadline = time.monotonic() + self._patience
        attempt = 0
        while True:
            try:
                self._database.connect()
                self._reached = True
                return self._database.transaction(work, write=write)
            except ABPError as error:
                if not isinstance(error, self._database.error):
                    raise
                attempt += 1
                delay = backoff_delay(attempt, max_delay=2.0)
                may_be_retried = error.retryable and self._reached and not self._closed
                if not may_be_retried or time.monotonic() + delay > deadline:
                    raise
                time.sleep(delay)

    async def aclose(self) -> None:
        """Close the connection after the running transaction. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
            self._thread.shutdown(wait=False)


def without_nul(text: str | None) -> str | None:
    """Return foreign text without characters that PostgreSQL refuses: NUL, and halves of surrogate pairs."""
    if text is None:
        return None
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
