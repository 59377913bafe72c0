"""The ledger of a run as people look at it: how it stands, and its jobs in pages. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...database import Cursor, Transactions
from ...errors import LedgerError, first_line
from .columns import COLUMNS, row_from
from .database import Database
from .entries import Row
from .listing import JobPage, JobQuery, list_copies, list_jobs
from .schema import VERSION, values_of
from .tally import Overview, Tally

__all__ = ["LedgerView"]

T = TypeVar("T")


class LedgerView:
    """One run, read only; made by :func:`.open_view`. It connects with the first question.

    What a question costs does not grow with the run, except that of :meth:`overview` when it counts all jobs. All raise
    :class:`~transports.errors.LedgerError`, also for a ledger of another version.
    """

    def __init__(self, database: Database, run: str) -> None:
        self._database = database
        self._run = run
        self._transactions = Transactions(database)
        self._tally = Tally(run)

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        await self._transactions.aclose()

    async def overview(self) -> Overview:
        """Return how the run stands. All its jobs are counted the first time, and again every 30 seconds or more."""

        def work(cursor: Cursor) -> Overview:
            version = values_of(self._database, cursor, self._run).get("schema")
            if version != VERSION:
                what = "no jobs yet" if version is None else f"a ledger of version {version} and not {VERSION}"
                raise LedgerError(f"the run has {what}; `abp batch run` begins one")
            return self._tally.overview(self._database, cursor)

        return await self._ask(work)

    async def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs, without the parameters of those that are over 256 KB. Raises
        :class:`~transports.errors.UsageError` for a query that makes no sense."""
        return await self._ask(lambda cursor: list_jobs(cursor, self._run, query))

    async def job(self, key: str) -> Row | None:
        """Return the job with this key, or ``None``."""

        def work(cursor: Cursor) -> Row | None:
            cursor.execute(f"SELECT {COLUMNS} FROM abp_jobs WHERE run = ? AND key = ?", (self._run, key))
            found = cursor.fetchall()
            return row_from(*found[0]) if found else None

        return await self._ask(work)

    async def copies(self, key: str) -> list[tuple[int, str | None]]:
        """Return the places in the input and the ids of the first 20 lines that share this job with an earlier one."""
        return await self._ask(lambda cursor: list_copies(cursor, self._run, key))

    async def _ask(self, work: Callable[[Cursor], T]) -> T:
        try:
            return await self._transactions.run(work, write=False)
        except (ValueError, TypeError, AttributeError) as error:
            raise LedgerError(
                f"the ledger holds what no run has written ({first_line(error)}); look into it"
            ) from error
