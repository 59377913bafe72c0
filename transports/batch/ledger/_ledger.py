"""Ledger of one run: adding, leasing, settling, cancelling, retrying and reading its jobs."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, TypeVar, cast

from ..._internal.database import Cursor, PostgresUrl, Transactions, Value, without_nul
from ...errors import LedgerError, UsageError
from ...protocol._plain_text import redact_url
from .._jobs import Job, State, parse_job
from ._reads import LedgerView
from ._schema import (
    COLUMNS,
    COPY_COLUMNS,
    INPUT,
    LEASED,
    QUEUED,
    QUEUED_ANYWHERE,
    VERSION,
    Added,
    Counts,
    Database,
    Leased,
    PostgresDatabase,
    Row,
    Settlement,
    SqliteDatabase,
    decoded_object,
    encoded,
    host_of,
    make_tables,
    new_row,
    number_from,
    put_value,
    row_from,
    values_of,
)

T = TypeVar("T")

#: Rows per page of an export, of any size.
_PAGE = 100


class Ledger:
    """Ledger of one run, in a table shared by any number of workers; made by :func:`.open_ledger`.

    Each instance is one worker. A job is leased to one worker at a time. A lease that expires before its job is settled
    makes the job ``unknown``, or ``queued`` again if it is idempotent. Every method is one transaction: its changes are
    on disk when it returns, and nothing has changed if it raises. All raise :class:`~transports.errors.LedgerError`."""

    def __init__(self, database: Database, run: str, *, existing: bool = False) -> None:
        self._database = database
        self._run = run
        self._existing = existing
        self._transactions = Transactions(database)
        self._last_host = ""
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"

    async def __aenter__(self) -> Self:
        """Open the ledger, and begin its run if it has none."""
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
        """Return the facts about the run, such as the version of its schema, by their names."""
        return values_of(self._database, cursor, self._run)

    def _begin_run(self, cursor: Cursor) -> dict[str, str]:
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
        :class:`~transports.errors.UsageError`."""
        adding = Addition(self._database, self._run, source, fingerprint, extend)
        # In a database where a writer blocks all others, the input is read before the writing transaction.
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
        skipped."""
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
        """Settle jobs (:meth:`settle`), then lease jobs (:meth:`lease`), in one transaction, so that a worker waits for
        the disk only once. Return the number of settled jobs that this worker held, and the newly leased jobs."""
        lease = uuid.uuid4().hex
        attempts = itertools.count()

        def work(cursor: Cursor) -> tuple[int, list[Leased]]:
            self._database.begin_work(self.worker)
            # After a lost connection this runs again, although the first transaction may have been committed.
            again = next(attempts) > 0
            written_count = self._settle(cursor, settlements)
            request = LeaseRequest(
                self._run, self.worker, lease, count, seconds, per_host, closed, self._last_host, again
            )
            return written_count, lease_jobs(self._database, cursor, request)

        written_count, jobs = await self._transactions.run(work)
        if jobs:
            self._last_host = host_of(jobs[-1].job)
        return written_count, jobs

    async def heartbeat(self, seconds: float) -> int:
        """Renew all leases of this worker to end ``seconds`` from now. Return their number."""

        def work(cursor: Cursor) -> int:
            cursor.execute(
                f"UPDATE abp_jobs SET lease_until = {self._database.now_sql} + ? "
                f"WHERE run = ? AND {LEASED} AND worker = ?",
                (seconds, self._run, self.worker),
            )
            return cursor.rowcount

        return await self._transactions.run(work)

    async def settle(self, settlements: Sequence[Settlement]) -> int:
        """Write the outcomes of jobs that this worker has leased. Return the number of jobs that it held.

        An ``unknown`` job whose lease expired counts, too, and gets its real outcome. Jobs held by other workers stay
        unchanged. A retry in a cancelled run is cancelled."""
        return await self._transactions.run(lambda cursor: self._settle(cursor, settlements))

    def _settle(self, cursor: Cursor, settlements: Sequence[Settlement]) -> int:
        written_count = settle_jobs(self._database, cursor, self._run, self.worker, settlements)
        if any(settlement.again_after is not None for settlement in settlements):
            self._keep_cancelled(cursor)
        return written_count

    async def expire(self) -> tuple[int, int]:
        """End expired leases and the leases of lost workers. Return the numbers of jobs that are queued again, and of
        ``unknown`` jobs."""
        return await self._transactions.run(self._end_lost_leases)

    def _end_lost_leases(self, cursor: Cursor) -> tuple[int, int]:
        other_workers: list[str] = []
        if self._database.sees_workers:
            cursor.execute(f"SELECT DISTINCT worker FROM abp_jobs WHERE run = ? AND {LEASED}", (self._run,))
            other_workers = [str(worker) for (worker,) in cursor.fetchall() if worker != self.worker]

        # The time is selected, so that it is evaluated once and the index can be used.
        queued, unknown = self._end_leases(cursor, f"lease_until < (SELECT {self._database.now_sql})")
        for worker in self._database.lost_workers(other_workers):
            queued_of_worker, unknown_of_worker = self._end_leases(cursor, "worker = ?", worker)
            queued += queued_of_worker
            unknown += unknown_of_worker

        if queued:
            self._keep_cancelled(cursor)
        return queued, unknown

    def _end_leases(self, cursor: Cursor, condition: str, *values: Value) -> tuple[int, int]:
        """End the leases that fulfil an SQL condition: queue idempotent jobs again, and make the others ``unknown``, as
        well as jobs that were lost again and again. Return the numbers of both."""
        max_attempts = 10
        # This condition is in both statements, since a lease may expire between them.
        may_run_again = "(idempotent = 1 AND attempts < ?)"
        cursor.execute(
            "UPDATE abp_jobs SET state = ?, worker = NULL, lease = NULL, lease_until = NULL "
            f"WHERE run = ? AND {LEASED} AND {condition} AND {may_run_again}",
            (State.QUEUED.value, self._run, *values, max_attempts),
        )
        queued = cursor.rowcount

        error = "its worker was lost while it had the job, which may have run; look at the app before sending it again"
        cursor.execute(
            f"UPDATE abp_jobs SET state = ?, finished = {self._database.now_sql}, error_code = ?, error = ?, "
            f"lease = NULL, lease_until = NULL WHERE run = ? AND {LEASED} AND {condition} AND NOT {may_run_again}",
            (State.UNKNOWN.value, "LEASE_EXPIRED", error, self._run, *values, max_attempts),
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
        """If the run is cancelled, cancel its queued jobs. Every transaction that queues jobs ends with this call.
        Thanks to the lock, either the transaction sees the mark of :meth:`cancel`, or :meth:`cancel` sees its jobs."""
        self._database.lock(cursor, self._run)
        cursor.execute(
            f"UPDATE abp_jobs SET state = ?, finished = {self._database.now_sql} WHERE run = ? AND {QUEUED_ANYWHERE} "
            "AND EXISTS (SELECT 1 FROM abp_runs WHERE run = ? AND name = ?)",
            (State.CANCELLED.value, self._run, self._run, "cancelled"),
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
                "WHERE run = ? AND state IN (?, ?) AND finished IS NOT NULL",
                (State.QUEUED.value, self._run, State.FAILED.value, State.CANCELLED.value),
            )
            return cursor.rowcount

        return await self._transactions.run(work)

    async def counts(self) -> Counts:
        """Return the number of jobs in each state."""
        # Each part reads only an index.
        rows = await self._query(
            f"SELECT 'queued', count(*) FROM abp_jobs WHERE run = ? AND {QUEUED_ANYWHERE} "
            f"UNION ALL SELECT 'leased', count(*) FROM abp_jobs WHERE run = ? AND {LEASED} "
            "UNION ALL SELECT state, count(*) FROM abp_jobs WHERE run = ? AND finished IS NOT NULL GROUP BY state",
            *(self._run, self._run, self._run),
        )
        return Counts({State(str(state)): cast(int, count) for state, count in rows})

    async def is_done(self) -> bool:
        """Return whether every job has a final state."""
        is_open = (
            f"SELECT 1 FROM abp_jobs WHERE run = ? AND {QUEUED_ANYWHERE} "
            f"UNION ALL SELECT 1 FROM abp_jobs WHERE run = ? AND {LEASED} LIMIT 1"
        )
        return not await self._query(is_open, self._run, self._run)

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
        """Return the next page of lines after a position and key. A line with the same job as an earlier line is a
        copy: it has its own row, with the state of that job."""
        position, key = after
        is_later = "position >= ? AND (position > ? OR key > ?)"
        in_states = f"state IN ({', '.join('?' * len(states))})"
        state_values = [state.value for state in states]
        select_jobs = (
            f"SELECT {COLUMNS} FROM abp_jobs WHERE run = ? AND {is_later} AND {in_states} "
            "ORDER BY position, key LIMIT ?"
        )
        select_copies = (
            f"SELECT {COPY_COLUMNS} FROM (SELECT run, position, key, job FROM abp_copies WHERE run = ? "
            f"AND {is_later}) c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key WHERE {in_states} "
            "ORDER BY c.position, c.key LIMIT ?"
        )
        # For the marks of both queries, in their order.
        values: Sequence[Value] = (self._run, position, position, key, *state_values, _PAGE)

        cursor.execute(select_jobs, values)
        lines = [row_from(*cells) for cells in cursor.fetchall()]
        cursor.execute(select_copies, values)
        lines += [row_from(*cells, copy=True) for cells in cursor.fetchall()]
        lines.sort(key=lambda line: (line.position, line.key))
        return lines[:_PAGE]

    async def replaced(self) -> int:
        """Return the number of failed lines with a corrected replacement."""
        return cast(int, (await self._query("SELECT count(*) FROM abp_replaced WHERE run = ?", self._run))[0][0])


def open_ledger(where: str | os.PathLike[str], *, existing: bool = False, read_only: bool = False) -> Ledger:
    """Return the ledger of a run, to be opened by ``async with``.

    ``where`` is the run's folder with its ``ledger.sqlite``, or ``postgresql://[user@]host[:port]/database?run=NAME``
    for workers on many machines; the default of ``run=`` is ``default``. With ``existing``, opening raises
    :class:`~transports.errors.LedgerError` for a run without an input, and writes nothing. A ``read_only`` ledger
    implies ``existing`` and refuses changes. Raises :class:`~transports.errors.UsageError` for another kind of address,
    or without the extra ``postgres``."""
    return Ledger(*_database_at(os.fspath(where), read_only=read_only), existing=existing or read_only)


def open_view(where: str | os.PathLike[str]) -> LedgerView:
    """Return a read-only view of a run. ``where`` and the errors are as in :func:`open_ledger`."""
    return LedgerView(*_database_at(os.fspath(where), read_only=True))


def _database_at(where: str, *, read_only: bool = False) -> tuple[Database, str]:
    """Return the database of an address, and the name of the run in it."""
    scheme, colon, _ = where.partition("://")
    if not colon:
        return SqliteDatabase(Path(where), read_only=read_only), ""
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(f"{redact_url(where)} is not a ledger; name a folder, or postgresql://host/database?run=NAME")
    address, run = PostgresUrl.read(where).split_off_parameter("run")
    return PostgresDatabase(address, read_only=read_only), run or "default"


# --- leasing and settling ---------------------------------------------------------------------------------------------

#: Finds the hosts with due queued jobs that sort after a host, and optionally not after another. Each step of the
#: recursion finds the next host by one look into the index.
_FIND_HOSTS = """WITH RECURSIVE hosts(host) AS (
    SELECT min(host) FROM abp_jobs WHERE run = ? AND state = 'queued' AND host > ? {until}
    UNION ALL
    SELECT (SELECT min(host) FROM abp_jobs WHERE run = ? AND state = 'queued' AND host > hosts.host {until})
    FROM hosts WHERE hosts.host IS NOT NULL
)
SELECT host FROM hosts WHERE host IS NOT NULL AND EXISTS (
    SELECT 1 FROM abp_jobs WHERE run = ? AND state = 'queued' AND abp_jobs.host = hosts.host AND not_before <= {now}
) LIMIT ?"""
#: Writes the outcomes of jobs. For ended jobs ``finished`` is the time now, and they keep their worker; for jobs that
#: will be retried it is NULL. A job whose lease has ended meanwhile may be ``unknown``.
_SETTLE_JOBS = """UPDATE abp_jobs SET state = ?, worker = {worker}, lease = NULL, lease_until = NULL,
not_before = {now} + ?, finished = {finished}, milliseconds = milliseconds + ?, error_code = ?, error = ?, artifacts = ?
WHERE run = ? AND key = ? AND worker = ? AND state IN ('leased', 'unknown')"""
#: Collects the ids of the new lines, with the number of lines for each id.
_FIND_ADDED = """INSERT INTO abp_added (id, lines) SELECT id, count(*) FROM (
    SELECT id FROM abp_jobs WHERE run = ? AND position > ?
    UNION ALL SELECT id FROM abp_copies WHERE run = ? AND position > ?
) a WHERE id IS NOT NULL GROUP BY id"""
#: Collects the ids and keys of failed lines that new lines correct.
_FIND_WRONG = """INSERT INTO abp_wrong (id, key)
WITH changed AS (
    SELECT id, key FROM abp_jobs WHERE run = ? AND state = ? AND finished IS NOT NULL AND +position <= ?
    UNION SELECT c.id, c.key FROM abp_copies c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key
    WHERE c.run = ? AND j.state = ? AND c.position <= ?
    EXCEPT SELECT id, key FROM abp_input
)
SELECT c.id, c.key FROM (SELECT id, key, count(*) OVER (PARTITION BY id) AS jobs FROM changed) c
JOIN abp_added a ON a.id = c.id WHERE c.jobs <= a.lines"""
#: Adds the new lines whose job exists already, unless an earlier input has the same job with the same id.
#: A "+" keeps the database from using the index of positions, which nearly all rows match.
_ADD_COPIES = """INSERT INTO abp_copies (run, position, key, id, job, idempotent)
SELECT j.run, i.line + ?, i.key, i.id, i.job, i.idempotent
FROM abp_input i JOIN abp_jobs j ON j.key = i.key
WHERE j.run = ? AND i.line > ? AND i.line <= ? AND j.position <> i.line + ?
AND NOT EXISTS (
    SELECT 1 FROM abp_jobs
    WHERE run = ? AND key = i.key AND +position <= ? AND coalesce(id, '') = coalesce(i.id, '')
)
AND NOT EXISTS (
    SELECT 1 FROM abp_copies
    WHERE run = ? AND key = i.key AND +position <= ? AND coalesce(id, '') = coalesce(i.id, '')
)"""
_COUNT_EXISTING = """SELECT count(*) FROM abp_input i JOIN abp_jobs j ON j.key = i.key
WHERE j.run = ? AND i.line > ? AND i.line <= ? AND +j.position <= ?"""
#: Lines per INSERT, so that each statement ends long before the database's statement timeout.
_CHUNK = 20_000


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A worker's request for jobs. ``lease`` is an id: a request that is repeated after a lost connection (``again``)
    gets the same jobs. Hosts after ``last_host`` come first."""

    run: str
    worker: str
    lease: str
    count: int
    seconds: float
    per_host: int | None
    closed: Collection[str]
    last_host: str
    again: bool


def lease_jobs(database: Database, cursor: Cursor, request: LeaseRequest) -> list[Leased]:
    """Lease jobs for a request, or return the jobs that the request has leased already, if its transaction runs
    again."""
    database.lock(cursor, request.run)
    # Only a repeated request looks for its jobs, since this query scans all leases.
    if request.again:
        cursor.execute(
            f"SELECT key, job, attempts FROM abp_jobs WHERE run = ? AND {LEASED} AND lease = ?",
            (request.run, request.lease),
        )
        jobs = [_leased_from(*cells) for cells in cursor.fetchall()]
        if jobs:
            return jobs
    return _lease_from_hosts(database, cursor, request)


def _leased_from(key: Value, job: Value, attempts: Value) -> Leased:
    return Leased(cast(str, key), parse_job(decoded_object(job)), cast(int, attempts))


def _lease_from_hosts(database: Database, cursor: Cursor, request: LeaseRequest) -> list[Leased]:
    """Lease jobs from all hosts in turn. Each turn takes an equal share of every host that still has jobs."""
    jobs: list[Leased] = []
    missing = request.count
    hosts = itertools.chain(
        _hosts_between(database, cursor, request.run, request.last_host),
        _hosts_between(database, cursor, request.run, "", request.last_host),
    )
    room_by_host = _room_by_host(cursor, request, hosts, missing)
    while room_by_host and missing > 0:
        share = max(1, missing // len(room_by_host))
        for host, room in [*room_by_host.items()]:
            limit = min(share, room, missing)
            jobs_of_host = _lease_from_host(database, cursor, request, host, limit)
            jobs += jobs_of_host
            missing -= len(jobs_of_host)

            room_by_host[host] -= len(jobs_of_host)
            has_no_more_jobs = len(jobs_of_host) < limit
            if has_no_more_jobs or not room_by_host[host]:
                del room_by_host[host]
            if missing <= 0:
                break
    return jobs


def _room_by_host(cursor: Cursor, request: LeaseRequest, hosts: Iterable[str], count: int) -> dict[str, int]:
    """Return the first ``count`` hosts that may run jobs, with the number of jobs that may be leased of each."""
    room: dict[str, int] = {}
    for host in hosts:
        if host in request.closed:
            continue
        free = count
        if request.per_host is not None:
            leased_sql = f"SELECT count(*) FROM abp_jobs WHERE run = ? AND {LEASED} AND host = ?"
            free = request.per_host - int(number_from(cursor, leased_sql, request.run, host))
        if free > 0:
            room[host] = free
        if len(room) == count:
            break
    return room


def _hosts_between(database: Database, cursor: Cursor, run: str, after: str, until: str | None = None) -> Iterator[str]:
    """Yield the hosts with due jobs that sort after ``after``, and not after ``until`` if that is set."""
    condition = ""
    end: tuple[str, ...] = ()
    if until is not None:
        condition = "AND host <= ?"
        end = (until,)
    find_hosts = _FIND_HOSTS.format(now=database.now_sql, until=condition)
    hosts_per_query = 64
    while True:
        cursor.execute(find_hosts, (run, after, *end, run, *end, run, hosts_per_query))
        hosts = [cast(str, host) for (host,) in cursor.fetchall()]
        yield from hosts
        if len(hosts) < hosts_per_query:
            return
        after = hosts[-1]


def _lease_from_host(database: Database, cursor: Cursor, request: LeaseRequest, host: str, count: int) -> list[Leased]:
    """Lease up to ``count`` due jobs of a host, in the order of the input."""
    cursor.execute(
        f"SELECT key, job, attempts FROM abp_jobs WHERE run = ? AND {QUEUED} AND host = ? "
        f"AND not_before <= {database.now_sql} ORDER BY position LIMIT ? {database.skip_locked}",
        (request.run, host, count),
    )
    rows = cursor.fetchall()
    if not rows:
        return []

    keys = [key for key, _, _ in rows]
    marks = ", ".join("?" * len(keys))
    cursor.execute(
        "UPDATE abp_jobs SET state = ?, attempts = attempts + 1, worker = ?, lease = ?, "
        f"lease_until = {database.now_sql} + ?, started = {database.now_sql} WHERE run = ? AND key IN ({marks})",
        (State.LEASED.value, request.worker, request.lease, request.seconds, request.run, *keys),
    )
    return [_leased_from(key, job, cast(int, attempts) + 1) for key, job, attempts in rows]


def settle_jobs(database: Database, cursor: Cursor, run: str, worker: str, settlements: Sequence[Settlement]) -> int:
    """Write the outcomes of jobs, queue the jobs to retry, and return jobs that were not begun to the queue. Return the
    number of jobs that ``worker`` still held."""
    begun = [settlement for settlement in settlements if settlement.begun]
    not_begun = [settlement for settlement in settlements if not settlement.begun]

    end_jobs = _SETTLE_JOBS.format(now=database.now_sql, worker="worker", finished=database.now_sql)
    ended_rows = [_settled_row(run, worker, settlement) for settlement in begun if settlement.again_after is None]
    written_count = _update_jobs(cursor, end_jobs, ended_rows)

    retry_jobs = _SETTLE_JOBS.format(now=database.now_sql, worker="NULL", finished="NULL")
    retried_rows = [_settled_row(run, worker, settlement) for settlement in begun if settlement.again_after is not None]
    written_count += _update_jobs(cursor, retry_jobs, retried_rows)

    # Jobs that were not begun return to the queue, as if they had not been leased.
    return_jobs = (
        "UPDATE abp_jobs SET state = ?, attempts = attempts - 1, worker = NULL, lease = NULL, lease_until = NULL "
        f"WHERE run = ? AND key = ? AND worker = ? AND {LEASED}"
    )
    returned_rows = [(State.QUEUED.value, run, settlement.key, worker) for settlement in not_begun]
    return written_count + _update_jobs(cursor, return_jobs, returned_rows)


def _update_jobs(cursor: Cursor, statement: str, rows: Sequence[tuple[Value, ...]]) -> int:
    if not rows:
        return 0
    cursor.executemany(statement, rows)
    return cursor.rowcount


def _settled_row(run: str, worker: str, settlement: Settlement) -> tuple[Value, ...]:
    outcome = settlement.outcome
    state = outcome.state if settlement.again_after is None else State.QUEUED
    return (
        state.value,
        settlement.again_after or 0.0,
        outcome.milliseconds,
        without_nul(outcome.error_code),
        without_nul(outcome.error),
        without_nul(encoded(outcome.files())),
        run,
        settlement.key,
        worker,
    )


def replace_failed(database: Database, cursor: Cursor, run: str, last: int) -> int:
    """Replace failed lines up to the position ``last`` by later lines with the same id, and return their number.
    Replaced lines are kept beside the run. A failed job stays as long as another line has the same job. If an id has
    more failed jobs than new lines, all of them stay, since it is unclear which of them is corrected. Lines that the
    new input (``abp_input``) repeats unchanged do not count."""
    # The lock keeps the jobs from being queued again meanwhile.
    database.lock(cursor, run)
    cursor.execute("CREATE TEMP TABLE abp_added (id TEXT PRIMARY KEY, lines BIGINT)")
    cursor.execute(_FIND_ADDED, (run, last, run, last))
    cursor.execute("CREATE TEMP TABLE abp_wrong (id TEXT, key TEXT, PRIMARY KEY (id, key))")
    cursor.execute(_FIND_WRONG, (run, State.FAILED.value, last, run, State.FAILED.value, last))

    replaced_copies = _replace_wrong_copies(cursor, run, last)
    replaced_lines = _replace_wrong_lines(cursor, run, last)

    cursor.execute("DROP TABLE abp_added")
    cursor.execute("DROP TABLE abp_wrong")
    return replaced_copies + replaced_lines


def _replace_wrong_copies(cursor: Cursor, run: str, last: int) -> int:
    """Replace wrong lines that are copies of earlier lines, and return their number."""
    cursor.execute(
        """INSERT INTO abp_replaced (run, position, job, error_code, error, artifacts)
        SELECT c.run, c.position, c.job, j.error_code, j.error, '[]'
        FROM abp_copies c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key
        WHERE c.run = ? AND c.position <= ? AND (c.id, c.key) IN (SELECT id, key FROM abp_wrong)""",
        (run, last),
    )
    count = cursor.rowcount
    cursor.execute(
        """DELETE FROM abp_copies
        WHERE run = ? AND position <= ? AND (id, key) IN (SELECT id, key FROM abp_wrong)""",
        (run, last),
    )
    return count


def _replace_wrong_lines(cursor: Cursor, run: str, last: int) -> int:
    """Replace wrong lines with jobs of their own, up to the position ``last``, and return their number."""
    cursor.execute(
        """INSERT INTO abp_replaced (run, position, job, error_code, error, artifacts)
        SELECT run, position, job, error_code, error, artifacts FROM abp_jobs
        WHERE run = ? AND position <= ? AND (id, key) IN (SELECT id, key FROM abp_wrong)""",
        (run, last),
    )
    count = cursor.rowcount

    # Delete the jobs without another line. For the other jobs, their first copy becomes their line.
    cursor.execute(
        """DELETE FROM abp_jobs
        WHERE run = ? AND position <= ? AND (id, key) IN (SELECT id, key FROM abp_wrong)
        AND key NOT IN (SELECT key FROM abp_copies WHERE run = ?)""",
        (run, last, run),
    )
    cursor.execute(
        """UPDATE abp_jobs SET (position, id, job, idempotent) = (
            SELECT position, id, job, idempotent FROM abp_copies c
            WHERE c.run = abp_jobs.run AND c.key = abp_jobs.key ORDER BY c.position LIMIT 1
        )
        WHERE run = ? AND position <= ? AND (id, key) IN (SELECT id, key FROM abp_wrong)""",
        (run, last),
    )
    cursor.execute(
        """DELETE FROM abp_copies WHERE run = ? AND EXISTS (
            SELECT 1 FROM abp_jobs j
            WHERE j.run = abp_copies.run AND j.key = abp_copies.key AND j.position = abp_copies.position
        )""",
        (run,),
    )
    return count


@dataclass(frozen=True, slots=True)
class Addition:
    """An input that is being added to a run. ``source`` reads the input in batches, and ``fingerprint`` identifies it.
    Setting ``cancelled`` ends the addition after the current batch."""

    database: Database
    run: str
    source: Callable[[], Iterable[Sequence[Job]]]
    fingerprint: str
    extend: bool
    cancelled: threading.Event = field(default_factory=threading.Event)

    def added_before(self, cursor: Cursor) -> Added | None:
        """Return the counts of the input if the run has it already. A different input is refused, unless this one
        extends it."""
        values = values_of(self.database, cursor, self.run)
        if INPUT + self.fingerprint in values:
            return Added(int(values[INPUT + self.fingerprint]), known=True)
        if not self.extend and any(name.startswith(INPUT) for name in values):
            raise UsageError(
                "this run has another input; add this one to it with --extend, or name another folder with --out"
            )
        return None

    def stage(self, cursor: Cursor) -> None:
        """Read the input into a temporary table, without blocking other connections."""
        cursor.execute("DROP TABLE IF EXISTS abp_input")
        cursor.execute(
            "CREATE TEMP TABLE abp_input (key TEXT, line INTEGER PRIMARY KEY, host TEXT, id TEXT, job TEXT, "
            "idempotent INTEGER, state TEXT)"
        )
        line = 0
        for batch in self.source():
            if self.cancelled.is_set():
                raise LedgerError("adding the jobs was cancelled; none of them is in the ledger")
            rows = [new_row(job, number) for number, job in enumerate(batch, line + 1)]
            cursor.executemany("INSERT INTO abp_input VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            line += len(rows)

    def add(self, cursor: Cursor, *, staged: bool) -> Added:
        """Add the input to the run, or nothing if the run has it already. The input is read first unless it is
        ``staged``."""
        added_before = self.added_before(cursor)
        if added_before is not None:
            return added_before
        if not staged:
            self.stage(cursor)

        last = max(
            int(number_from(cursor, f"SELECT max(position) FROM {table} WHERE run = ?", self.run))
            for table in ("abp_jobs", "abp_copies")
        )
        lines = int(number_from(cursor, "SELECT count(*) FROM abp_input"))
        jobs = existing = 0
        for first in range(0, lines, _CHUNK):
            new_jobs = self._add_jobs(cursor, last, first)
            jobs += new_jobs
            lines_of_chunk = min(_CHUNK, lines - first)
            has_existing_jobs = new_jobs < lines_of_chunk
            if has_existing_jobs:
                existing += self._add_copies(cursor, last, first)

        put_value(cursor, self.run, INPUT + self.fingerprint, str(lines))
        replaced = 0
        if last:
            replaced = replace_failed(self.database, cursor, self.run, last)
        cursor.execute("DROP TABLE abp_input")
        return Added(lines, jobs, copies=lines - jobs - existing, replaced=replaced)

    def _add_jobs(self, cursor: Cursor, last: int, first: int) -> int:
        cursor.execute(
            "INSERT INTO abp_jobs (run, key, position, host, id, job, idempotent, state) "
            "SELECT ?, key, line + ?, host, id, job, idempotent, state FROM abp_input "
            "WHERE line > ? AND line <= ? ORDER BY line ON CONFLICT DO NOTHING",
            (self.run, last, first, first + _CHUNK),
        )
        return cursor.rowcount

    def _add_copies(self, cursor: Cursor, last: int, first: int) -> int:
        """Add the lines of a chunk whose job exists already. A line with the same job and id as a line of an earlier
        input is not added again. Return the number of lines whose job came from an earlier input."""
        run = self.run
        end = first + _CHUNK
        cursor.execute(_ADD_COPIES, (last, run, first, end, last, run, last, run, last))
        return int(number_from(cursor, _COUNT_EXISTING, run, first, end, last))
