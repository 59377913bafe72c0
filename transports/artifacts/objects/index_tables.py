"""The tables of an index, which may be lost at any time: they are made where they are not, and stores get numbers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from ...database import Connection, Cursor, Transactions
from ...errors import StoreUnavailable
from .index_rows import tables

__all__ = ["IndexTables", "NotBuilt"]

T = TypeVar("T")

#: Seconds for which a lost connection is opened again, and for which the index is left alone after that.
_PATIENCE, _PAUSE = 3.0, 10.0
#: Made last of what belongs to a table: where both are there, all is.
_RELATIONS = ("abp_artifacts_1_session", "abp_artifact_changes_2")


class NotBuilt(Exception):
    """The index was not compared with the metadata yet: it cannot answer a question about all artifacts."""


class IndexTables:
    """The tables in one database, for the store at ``url``."""

    def __init__(self, database: Connection, url: str) -> None:
        self._url = url
        self._database = database
        self._transactions: Transactions | None = None
        self._prepared = False
        self._turn = asyncio.Lock()
        self._failed: tuple[float, str] | None = None

    async def aclose(self) -> None:
        """Close the connection. The next transaction opens another one."""
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            await transactions.aclose()

    async def run(self, work: Callable[[Cursor, int], T], *, write: bool = True, built: bool = False) -> T:
        """Run ``work`` with the number of this store, in tables that are made if they are not there (any more). Raises
        :class:`NotBuilt` if what it asks needs an index that is ``built``."""
        async with self._turn:  # so that who waits while the database is found to be down need not ask it, too
            if self._failed and time.monotonic() < self._failed[0]:
                raise StoreUnavailable(self._failed[1], retryable=True)
            if self._transactions is None:
                self._transactions = Transactions(self._database, _PATIENCE)
            numbered = partial(self._numbered, work, built)
            try:
                if not self._prepared:
                    await self._transactions.run(self._prepare)
                    self._prepared = True
                try:
                    result = await self._transactions.run(numbered, write=write)
                except StoreUnavailable as error:
                    if error.retryable or not await self._transactions.run(self._prepare):
                        raise
                    result = await self._transactions.run(numbered, write=write)  # it was deleted meanwhile
            except StoreUnavailable as error:
                self._prepared = False
                message = f"{error.message}, or leave out ?index= to have every object read for a list"
                self._failed = time.monotonic() + _PAUSE, message
                raise StoreUnavailable(message, retryable=error.retryable) from error.__cause__
            self._failed = None
            return result

    def _prepare(self, cursor: Cursor) -> bool:
        """Make the tables and the number of this store, unless they are there. Returns whether they were not."""
        self._database.lock(cursor, "artifact index")
        if not (there := all(self._is_there(cursor, name) for name in _RELATIONS)):
            for statement in tables(self._database.text):
                cursor.execute(statement)
            cursor.execute("DELETE FROM abp_artifact_stores_1")  # the rows may have been lost alone
        cursor.execute("SELECT 1 FROM abp_artifact_stores_1 WHERE url = ?", (self._url,))
        if cursor.fetchall():
            return not there
        cursor.execute(
            # neither a number nor a change token comes again in an index that is made anew
            "INSERT INTO abp_artifact_stores_1 (url, number, changes) VALUES (?, ?, ?)",
            (self._url, secrets.randbelow(1 << 31), time.time_ns() // 1000),
        )
        return True

    def _is_there(self, cursor: Cursor, name: str) -> bool:
        cursor.execute(self._database.find_relation, (name,))
        return bool(cursor.fetchall())

    def _numbered(self, work: Callable[[Cursor, int], T], built: bool, cursor: Cursor) -> T:
        # asked each time: tables that were made anew have other numbers
        cursor.execute("SELECT number, built FROM abp_artifact_stores_1 WHERE url = ?", (self._url,))
        found = cursor.fetchall()
        if not found:
            raise self._database.error(f"{self._database.name} does not know the store any more")
        if built and found[0][1] is None:
            raise NotBuilt
        return work(cursor, cast(int, found[0][0]))
