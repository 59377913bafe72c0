"""Ledger of one run: adding, leasing, settling, cancelling, retrying and reading its jobs."""

from __future__ import annotations

import itertools
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar, cast

from ..._internal.database import Cursor, PostgresUrl, Transactions, Value
from ...errors import LedgerError, UsageError
from ...protocol._plain_text import redact_url
from .._jobs import Job, State
from ._reads import LedgerView
from ._schema import (
    COLUMNS,
    COPY_COLUMNS,
    INPUT,
    LEASED,
    VERSION,
    Added,
    Counts,
    Database,
    Leased,
    PostgresDatabase,
    Row,
    Settlement,
    SqliteDatabase,
    make_tables,
    put_value,
    row_from,
    values_of,
)
from ._writes import Addition, HostTurns, LeaseRequest, lease_jobs, settle_jobs

T = TypeVar("T")

#: Attempts after which an idempotent job of lost workers becomes ``unknown`` instead of queued.
_MAX_LOST = 10
#: Rows per page of an export, of any size.
_PAGE = 100


class Ledger:
    """Ledger of one run, in a table shared by any number of workers; made by :func:`.open_ledger`.

    Each instance is one worker. A job is leased to one worker at a time. A lease that expires before its job is settled
    makes the job ``unknown``, or ``queued`` again if it is idempotent. Every method is one transaction: its changes are
    on disk when it returns, and nothing has changed if it raises. All raise :class:`~transports.errors.LedgerError`.
    """

    def __init__(self, database: Database, run: str, *, existing: bool = False) -> None:
        self._database = database
        self._run = run
        self._existing = existing
        self._transactions = Transactions(database)
        self._turns = HostTurns()
        #: Unique name of this worker.
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"

    async def __aenter__(self) -> Self:
        try:
            values = await self._transactions.run(self._read_values, write=False)
            has_input = any(name.startswith(INPUT) for name in values)
            if self._existing and not has_input:
                raise self._no_jobs()
            if "schema" not in values:
                values = await self._transactions.run(self._begin_run)
            version = values["schema"]
            if version != VERSION:
                raise LedgerError(f"the ledger has version {version} and not {VERSION}; name another folder with --out")
        except BaseException:
            await self.aclose()
            raise
        return self

    def _read_values(self, cursor: Cursor) -> dict[str, str]:
        return values_of(self._database, cursor, self._run)

    def _begin_run(self, cursor: Cursor) -> dict[str, str]:
        """Make the tables, note the version of the schema, and return the values of the run."""
        make_tables(self._database, cursor)
        put_value(cursor, self._run, "schema", VERSION)
        return self._read_values(cursor)

    def _no_jobs(self) -> LedgerError:
        begin = "begin it with `abp batch run`, at the same place"
        if self._run:
            return LedgerError(f"the run {self._run!r} has no jobs; correct run=, or {begin}")
        return LedgerError(f"the run has no jobs; {begin}")

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the database. Jobs of this worker stay leased until their leases expire. Idempotent."""
        await self._transactions.aclose()

    async def add(
        self, source: Callable[[], Iterable[Sequence[Job]]], fingerprint: str, *, extend: bool = False
    ) -> Added:
        """Add the jobs of one input, in batches: all of them, or none if reading a job raises.

        Of several jobs with the same key the first counts; the other lines are its copies. A line that extends the run
        replaces a failed job with the same ``id``; the replaced line is kept beside the run. ``fingerprint`` identifies
        the input: an input that is in the ledger already is not read again, and a different input is refused unless
        ``extend``. ``source`` is called in the ledger's thread; more than once only if a connection was lost. Raises
        :class:`~transports.errors.UsageError`.
        """
        adding = Addition(self._database, self._run, source, fingerprint, extend)
        staged = self._database.one_writer
        if staged:
            added_before = await self._transactions.run(adding.added_before, write=False)
            if added_before is not None:
                return added_before
            await self._transactions.run(adding.stage, adding.cancelled.set, write=False)

        def work(cursor: Cursor) -> Added:
            # This is not the run's own lock, so that workers can go on meanwhile.
            self._database.lock(cursor, f"{self._run} input")
            added = adding.add(cursor, staged=staged)
            self._keep_cancelled(cursor)
            return added

        return await self._transactions.run(work, adding.cancelled.set)

    async def lease(
        self, count: int, seconds: float, *, per_host: int | None = None, closed: Collection[str] = ()
    ) -> list[Leased]:
        """Lease up to ``count`` queued jobs for ``seconds`` from now: hosts in turn, each in the order of the input.

        At most ``per_host`` jobs of each host are leased at a time, counted over all workers. ``closed`` hosts are
        skipped.
        """
        _, jobs = await self.settle_and_lease((), count, seconds, per_host=per_host, closed=closed)
        return jobs

    async def settle_and_lease(
        self,
        settlements: Sequence[Settlement],
        count: int,
        seconds: float,
        *,
        per_host: int | None = None,
        closed: Collection[str] = (),
    ) -> tuple[int, list[Leased]]:
        """Settle jobs, then lease jobs, in one transaction, so that a worker waits for the disk only once.

        See :meth:`settle` and :meth:`lease`. Return the number of settled jobs that this worker held, and the newly
        leased jobs."""
        lease = uuid.uuid4().hex
        attempts = itertools.count()

        def work(cursor: Cursor) -> tuple[int, list[Leased]]:
            self._database.begin_work(self.worker)
            # The transaction runs again after a lost connection, and may have been committed before.
            again = next(attempts) > 0
            held = self._settle(cursor, settlements)
            request = LeaseRequest(self._run, self.worker, lease, count, seconds, per_host, closed, self._turns, again)
            return held, lease_jobs(self._database, cursor, request)

        return await self._transactions.run(work)

    async def heartbeat(self, seconds: float) -> int:
        """Renew all leases of this worker to end ``seconds`` from now. Return their number."""

        def work(cursor: Cursor) -> int:
            cursor.execute(
                f"UPDATE abp_jobs SET lease_until = {self._database.now} + ? WHERE run = ? AND {LEASED} AND worker = ?",
                (seconds, self._run, self.worker),
            )
            return cursor.rowcount

        return await self._transactions.run(work)

    async def settle(self, settlements: Sequence[Settlement]) -> int:
        """Write the outcomes of jobs that this worker has leased. Return the number of jobs that it held.

        An ``unknown`` job whose lease expired counts, too, and gets its real outcome. Jobs held by other workers stay
        unchanged. A retry in a cancelled run is cancelled.
        """
        return await self._transactions.run(lambda cursor: self._settle(cursor, settlements))

    def _settle(self, cursor: Cursor, settlements: Sequence[Settlement]) -> int:
        held = settle_jobs(self._database, cursor, self._run, self.worker, settlements)
        if any(settlement.again_after is not None for settlement in settlements):
            self._keep_cancelled(cursor)
        return held

    async def expire(self) -> tuple[int, int]:
        """End expired leases and the leases of lost workers. Return the numbers of jobs that are queued again, and of
        ``unknown`` jobs."""

        return await self._transactions.run(self._end_lost_leases)

    def _end_lost_leases(self, cursor: Cursor) -> tuple[int, int]:
        """Do the work of :meth:`expire` in a transaction."""
        other_workers: list[str] = []
        if self._database.sees_workers:
            cursor.execute(f"SELECT DISTINCT worker FROM abp_jobs WHERE run = ? AND {LEASED}", (self._run,))
            other_workers = [str(worker) for (worker,) in cursor.fetchall() if worker != self.worker]

        # The time is selected, so that it is evaluated once and the index can be used.
        queued, unknown = self._end_leases(cursor, f"lease_until < (SELECT {self._database.now})")
        for worker in self._database.lost_workers(other_workers):
            queued_of_worker, unknown_of_worker = self._end_leases(cursor, "worker = ?", worker)
            queued += queued_of_worker
            unknown += unknown_of_worker

        if queued:
            self._keep_cancelled(cursor)
        return queued, unknown

    def _end_leases(self, cursor: Cursor, condition: str, *values: Value) -> tuple[int, int]:
        """End the leases that fulfil an SQL condition. Queue idempotent jobs again, and make the others ``unknown``.

        Return the numbers of both."""
        # Both statements have this condition, since a lease may expire between them.
        may_run_again = "(idempotent = 1 AND attempts < ?)"
        cursor.execute(
            "UPDATE abp_jobs SET state = ?, worker = NULL, lease = NULL, lease_until = NULL "
            f"WHERE run = ? AND {LEASED} AND {condition} AND {may_run_again}",
            (State.QUEUED.value, self._run, *values, _MAX_LOST),
        )
        queued = cursor.rowcount

        error = "its worker was lost while it had the job, which may have run; look at the app before sending it again"
        cursor.execute(
            f"UPDATE abp_jobs SET state = ?, finished = {self._database.now}, error_code = ?, error = ?, "
            f"lease = NULL, lease_until = NULL WHERE run = ? AND {LEASED} AND {condition} AND NOT {may_run_again}",
            (State.UNKNOWN.value, "LEASE_EXPIRED", error, self._run, *values, _MAX_LOST),
        )
        return queued, cursor.rowcount

    async def cancel(self) -> int:
        """Cancel all queued jobs, and jobs added or queued again later. Running jobs go on. Return the number of
        cancelled jobs."""

        def work(cursor: Cursor) -> int:
            self._database.lock(cursor, self._run)
            put_value(cursor, self._run, "cancelled", "1")
            return self._keep_cancelled(cursor)

        return await self._transactions.run(work)

    def _keep_cancelled(self, cursor: Cursor) -> int:
        """Cancel the queued jobs if the run is cancelled. Every transaction that queues jobs ends with this call: due
        to the lock, either it sees the mark or :meth:`cancel` sees its jobs."""
        self._database.lock(cursor, self._run)
        cursor.execute(
            f"UPDATE abp_jobs SET state = ?, finished = {self._database.now} WHERE run = ? AND state = ? "
            "AND EXISTS (SELECT 1 FROM abp_runs WHERE run = ? AND name = ?)",
            (State.CANCELLED.value, self._run, State.QUEUED.value, self._run, "cancelled"),
        )
        return cursor.rowcount

    async def retry_failed(self) -> int:
        """Queue the failed and the cancelled jobs again with no attempts counted. Return their number. An ``unknown``
        job stays unknown: it may have run."""

        def work(cursor: Cursor) -> int:
            self._database.lock(cursor, self._run)
            cursor.execute("DELETE FROM abp_runs WHERE run = ? AND name = ?", (self._run, "cancelled"))
            cursor.execute(
                "UPDATE abp_jobs SET state = ?, attempts = 0, worker = NULL, not_before = 0, finished = NULL, "
                "milliseconds = 0, error_code = NULL, error = NULL, artifacts = '[]' "
                "WHERE run = ? AND state IN (?, ?)",
                (State.QUEUED.value, self._run, State.FAILED.value, State.CANCELLED.value),
            )
            return cursor.rowcount

        return await self._transactions.run(work)

    async def counts(self) -> Counts:
        """Return the number of jobs in each state."""
        rows = await self._query("SELECT state, count(*) FROM abp_jobs WHERE run = ? GROUP BY state", self._run)
        return Counts({State(str(state)): cast(int, count) for state, count in rows})

    async def is_done(self) -> bool:
        """Return whether every job has a final state."""
        is_open = "SELECT 1 FROM abp_jobs WHERE run = ? AND state IN ('queued', 'leased') LIMIT 1"
        return not await self._query(is_open, self._run)

    async def _query(self, sql: str, *values: Value) -> Sequence[tuple[Value, ...]]:
        def work(cursor: Cursor) -> Sequence[tuple[Value, ...]]:
            cursor.execute(sql, values)
            return cursor.fetchall()

        return await self._transactions.run(work, write=False)

    async def rows(self, *states: State) -> AsyncIterator[Row]:
        """Yield all lines of the input, or those with jobs in ``states``, in the order of the input.

        The lines are read in pages, not in one snapshot: a job that changes meanwhile may appear in its old or new
        state."""
        after: tuple[int, str] = (0, "")
        while True:
            read_page = partial(self._read_page, states=states or tuple(State), after=after)
            page = await self._transactions.run(read_page, write=False)
            for row in page:
                yield row
            if len(page) < _PAGE:
                return
            after = page[-1].position, page[-1].key

    def _read_page(self, cursor: Cursor, *, states: Sequence[State], after: tuple[int, str]) -> list[Row]:
        """Return the next lines after a position and key: those with jobs of their own, and copies."""
        position, key = after
        is_later = "position >= ? AND (position > ? OR key > ?)"
        in_states = f"state IN ({', '.join('?' * len(states))})"
        state_values = [state.value for state in states]
        values: Sequence[Value] = (self._run, position, position, key, *state_values, _PAGE)
        cursor.execute(
            f"SELECT {COLUMNS} FROM abp_jobs WHERE run = ? AND {is_later} AND {in_states} "
            "ORDER BY position, key LIMIT ?",
            values,
        )
        rows = [row_from(*cells) for cells in cursor.fetchall()]

        cursor.execute(
            f"SELECT {COPY_COLUMNS} FROM (SELECT run, position, key, job FROM abp_copies WHERE run = ? "
            f"AND {is_later}) c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key WHERE {in_states} "
            "ORDER BY c.position, c.key LIMIT ?",
            values,
        )
        rows += [row_from(*cells, copy=True) for cells in cursor.fetchall()]
        return sorted(rows, key=lambda line: (line.position, line.key))[:_PAGE]

    async def replaced(self) -> int:
        """Return the number of failed lines with a corrected replacement."""
        return cast(int, (await self._query("SELECT count(*) FROM abp_replaced WHERE run = ?", self._run))[0][0])


def open_ledger(where: str | os.PathLike[str], *, existing: bool = False, read_only: bool = False) -> Ledger:
    """Return the ledger of a run, to be opened by ``async with``.

    ``where`` is the run's folder with its ``ledger.sqlite``, or ``postgresql://[user@]host[:port]/database?run=NAME``
    for workers on many machines; the default of ``run=`` is ``default``. With ``existing``, opening raises
    :class:`~transports.errors.LedgerError` for a run without an input, and writes nothing. A ``read_only`` ledger
    implies ``existing`` and refuses changes. Raises :class:`~transports.errors.UsageError` for another kind of address,
    or without the extra ``postgres``.
    """
    return Ledger(*_database_at(os.fspath(where), read_only=read_only), existing=existing or read_only)


def open_view(where: str | os.PathLike[str]) -> LedgerView:
    """Return a read-only view of an existing run's ledger. ``where`` and the errors are as in :func:`open_ledger`."""
    return LedgerView(*_database_at(os.fspath(where), read_only=True))


def _database_at(where: str, *, read_only: bool = False) -> tuple[Database, str]:
    """Return the database of an address, and the name of the run in the database."""
    scheme, colon, _ = where.partition("://")
    if not colon:
        return SqliteDatabase(Path(where), read_only=read_only), ""
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(f"{redact_url(where)} is not a ledger; name a folder, or postgresql://host/database?run=NAME")
    address, run = PostgresUrl.read(where).take("run")
    return PostgresDatabase(address, read_only=read_only), run or "default"
