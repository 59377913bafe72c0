"""One connection of PEP 249 in a thread of its own, and the words in which SQLite and PostgreSQL differ."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from ..errors import ABPError
from ..tasks import backoff_delay

T = TypeVar("T")
Value: TypeAlias = str | int | float | None


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


class Connection(Protocol):
    """One connection. All methods block, and are called in one thread.

    They raise errors of one type, :attr:`error`, which are ``retryable`` where waiting may help."""

    #: An expression: the database's clock, in seconds since 1970.
    now: str
    #: The type of a text that is compared and sorted by its bytes.
    text: str
    #: What follows a SELECT whose rows this transaction will change.
    skip_locked: str
    #: A query with a row if there is a table or an index of the name that is its parameter.
    find_relation: str

    @property
    def name(self) -> str:
        """What the connection is for, as messages say it: ``the ledger``."""

    @property
    def error(self) -> type[ABPError]:
        """The type of the errors."""

    def connect(self) -> None:
        """Open the connection, unless it is open."""

    def close(self) -> None:
        """Close the connection. Raises nothing."""

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Return what ``work`` returns, once all that it changed is on the disk; if it raises, nothing is changed. One
        that does not ``write`` waits for no other."""

    def lock(self, cursor: Cursor, name: str) -> None:
        """Wait until no other transaction has the lock ``name``, and hold it until this one ends."""


class Transactions:
    """Runs the transactions of one database in its thread, and again after a lost connection, for ``patience`` seconds.
    A server that was never reached is not waited for."""

    def __init__(self, database: Connection, patience: float = 30.0) -> None:
        self._database = database
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="abp-database")
        self._closed = False
        self._reached = False

    async def run(
        self, work: Callable[[Cursor], T], on_cancel: Callable[[], object] = lambda: None, *, write: bool = True
    ) -> T:
        """Return what ``work`` returns. It may run more than once, each time in a new transaction: where a connection
        was lost nobody knows whether the last one counted.

        It ends even if its caller is cancelled, which ``on_cancel`` is told of. Raises
        the database's error, and what ``work`` raises."""
        if self._closed:
            raise self._database.error(f"{self._database.name} is closed; open it again")
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
        end, attempt = time.monotonic() + self._patience, 0
        while True:
            try:
                self._database.connect()
                self._reached = True
                return self._database.transaction(work, write=write)
            except ABPError as error:
                if not isinstance(error, self._database.error):
                    raise
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


def without_nul(text: str | None) -> str | None:
    """Return foreign text without what PostgreSQL refuses: NUL, and halves of surrogate pairs."""
    return None if text is None else text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
