"""Changes of a ledger in SQL: leasing, settling, adding and replacing jobs, each in a transaction of the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import cast

from ..._internal.database import Cursor, Value, without_nul
from ...errors import LedgerError, UsageError
from .._jobs import Job, State, parse_job
from ._schema import (
    INPUT,
    LEASED,
    Added,
    Database,
    Leased,
    Settlement,
    decoded_object,
    encoded,
    new_row,
    number_from,
    put_value,
    values_of,
)

#: Hosts per query.
_HOSTS = 64
#: Hosts with due queued jobs after a host. Each step of the recursion finds the next host by one index lookup.
_FIND_HOSTS_AFTER = """WITH RECURSIVE hosts(host) AS (
    SELECT min(host) FROM abp_jobs WHERE run = ? AND state = 'queued' AND host > ?
    UNION ALL
    SELECT (SELECT min(host) FROM abp_jobs WHERE run = ? AND state = 'queued' AND host > hosts.host)
    FROM hosts WHERE hosts.host IS NOT NULL
)
SELECT host FROM hosts WHERE host IS NOT NULL AND EXISTS (
    SELECT 1 FROM abp_jobs WHERE run = ? AND state = 'queued' AND abp_jobs.host = hosts.host AND not_before <= {now}
) LIMIT ?"""
#: The same after one host, up to another.
_FIND_HOSTS_BETWEEN = """WITH RECURSIVE hosts(host) AS (
    SELECT min(host) FROM abp_jobs WHERE run = ? AND state = 'queued' AND host > ? AND host <= ?
    UNION ALL
    SELECT (SELECT min(host) FROM abp_jobs WHERE run = ? AND state = 'queued' AND host > hosts.host AND host <= ?)
    FROM hosts WHERE hosts.host IS NOT NULL
)
SELECT host FROM hosts WHERE host IS NOT NULL AND EXISTS (
    SELECT 1 FROM abp_jobs WHERE run = ? AND state = 'queued' AND abp_jobs.host = hosts.host AND not_before <= {now}
) LIMIT ?"""
#: Outcomes of ended jobs. A job whose lease has ended meanwhile may be ``unknown``.
_END_JOBS = """UPDATE abp_jobs SET state = ?, lease = NULL, lease_until = NULL, not_before = {now} + ?,
finished = {now}, milliseconds = milliseconds + ?, error_code = ?, error = ?, artifacts = ?
WHERE run = ? AND key = ? AND worker = ? AND state IN ('leased', 'unknown')"""
#: Outcomes of jobs that will be retried.
_QUEUE_JOBS_AGAIN = """UPDATE abp_jobs SET state = ?, worker = NULL, lease = NULL, lease_until = NULL,
not_before = {now} + ?, finished = NULL, milliseconds = milliseconds + ?, error_code = ?, error = ?, artifacts = ?
WHERE run = ? AND key = ? AND worker = ? AND state IN ('leased', 'unknown')"""
#: Ids of the new lines, with the number of lines.
_FIND_ADDED = """INSERT INTO abp_added (id, lines) SELECT id, count(*) FROM (
    SELECT id FROM abp_jobs WHERE run = ? AND position > ?
    UNION ALL SELECT id FROM abp_copies WHERE run = ? AND position > ?
) a WHERE id IS NOT NULL GROUP BY id"""
#: Ids and keys of failed lines that new lines correct.
_FIND_WRONG = """INSERT INTO abp_wrong (id, key)
WITH changed AS (
    SELECT id, key FROM abp_jobs WHERE run = ? AND state = ? AND +position <= ?
    UNION SELECT c.id, c.key FROM abp_copies c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key
    WHERE c.run = ? AND j.state = ? AND c.position <= ?
    EXCEPT SELECT id, key FROM abp_input
)
SELECT c.id, c.key FROM (SELECT id, key, count(*) OVER (PARTITION BY id) AS jobs FROM changed) c
JOIN abp_added a ON a.id = c.id WHERE c.jobs <= a.lines"""
#: New lines whose job exists already, unless an earlier input has the same job with the same id.
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


class HostTurns:
    """Round-robin position and cached hosts of one worker. Losing the cache costs one query."""

    def __init__(self) -> None:
        #: Host of the latest leased job.
        self.after = ""
        self._hosts: tuple[str, ...] = ()
        self._until = 0.0

    def cached(self) -> list[str]:
        """Return the cached hosts with jobs to lease, in turn; none if the cache has expired."""
        if time.monotonic() >= self._until:
            return []
        return sorted(self._hosts, key=lambda host: (host <= self.after, host))

    def keep(self, hosts: Collection[str]) -> None:
        """Cache all hosts with jobs to lease for a second, since finding them is half of a lease's cost. An empty
        collection makes the next request query them."""
        self._hosts = tuple(hosts)
        self._until = time.monotonic() + 1.0


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Request of a worker for jobs. ``lease`` is its id: a request that is repeated after a lost connection (``again``)
    gets the same jobs."""

    run: str
    worker: str
    lease: str
    count: int
    seconds: float
    per_host: int | None
    closed: Collection[str]
    turns: HostTurns
    again: bool


def lease_jobs(database: Database, cursor: Cursor, request: LeaseRequest) -> list[Leased]:
    """Lease the requested jobs, and return them."""
    database.lock(cursor, request.run)
    # Only a repeated request looks for its jobs, since this query scans all leases.
    if request.again:
        cursor.execute(
            "SELECT key, job, attempts FROM abp_jobs WHERE run = ? AND state = ? AND lease = ?",
            (request.run, State.LEASED.value, request.lease),
        )
        jobs = [_leased_from(*cells) for cells in cursor.fetchall()]
        if jobs:
            return jobs
    return _lease_queued_jobs(database, cursor, request)


def _leased_from(key: Value, job: Value, attempts: Value) -> Leased:
    return Leased(cast(str, key), parse_job(decoded_object(job)), cast(int, attempts))


def _lease_queued_jobs(database: Database, cursor: Cursor, request: LeaseRequest) -> list[Leased]:
    """Lease the requested jobs, first from the cached hosts, then from others."""
    jobs = _lease_from_hosts(database, cursor, request, request.turns.cached(), request.count)
    if len(jobs) >= request.count:
        return jobs

    remaining_hosts = _hosts_with_jobs(database, cursor, request.run, request.turns.after)
    first_hosts = [*islice(remaining_hosts, _HOSTS)]
    hosts = chain(first_hosts, remaining_hosts)
    jobs += _lease_from_hosts(database, cursor, request, hosts, request.count - len(jobs))

    # Cache the hosts if these are all of them, and some of them may have more jobs.
    are_all_hosts = len(first_hosts) < _HOSTS
    is_request_met = len(jobs) == request.count
    if are_all_hosts and is_request_met:
        request.turns.keep(first_hosts)
    else:
        request.turns.keep(())
    return jobs


def _lease_from_hosts(
    database: Database, cursor: Cursor, request: LeaseRequest, hosts: Iterable[str], count: int
) -> list[Leased]:
    """Lease up to ``count`` jobs of the hosts, in turn, an equal share of each as long as it has jobs."""
    jobs: list[Leased] = []
    room_by_host = _room_by_host(cursor, request, hosts, count)
    while room_by_host and len(jobs) < count:
        share = max(1, (count - len(jobs)) // len(room_by_host))
        for host, room in [*room_by_host.items()]:
            limit = min(share, room, count - len(jobs))
            jobs_of_host = _lease_from_host(database, cursor, request, host, limit)
            jobs += jobs_of_host
            if jobs_of_host:
                request.turns.after = host

            room_by_host[host] -= len(jobs_of_host)
            has_no_more_jobs = len(jobs_of_host) < limit
            if has_no_more_jobs or not room_by_host[host]:
                del room_by_host[host]
            if len(jobs) >= count:
                break
    return jobs


def _room_by_host(cursor: Cursor, request: LeaseRequest, hosts: Iterable[str], count: int) -> dict[str, int]:
    """Return the number of jobs that may be leased for each host; at most ``count`` hosts."""
    room: dict[str, int] = {}
    for host in hosts:
        if host in request.closed:
            continue
        free = count
        if request.per_host is not None:
            held = "SELECT count(*) FROM abp_jobs WHERE run = ? AND state = ? AND host = ?"
            free = request.per_host - int(number_from(cursor, held, request.run, State.LEASED.value, host))
        if free > 0:
            room[host] = free
        if len(room) == count:
            break
    return room


def _hosts_with_jobs(database: Database, cursor: Cursor, run: str, after: str) -> Iterator[str]:
    """Yield the hosts with due queued jobs, starting after the host ``after``. Each host costs one index lookup,
    independent of its number of jobs."""
    yield from _hosts_between(database, cursor, run, after)
    yield from _hosts_between(database, cursor, run, "", after)


def _hosts_between(database: Database, cursor: Cursor, run: str, after: str, until: str | None = None) -> Iterator[str]:
    """Yield the hosts with due queued jobs after the host ``after``, up to ``until`` if that is given."""
    while True:
        if until is None:
            cursor.execute(_FIND_HOSTS_AFTER.format(now=database.now), (run, after, run, run, _HOSTS))
        else:
            values = (run, after, until, run, until, run, _HOSTS)
            cursor.execute(_FIND_HOSTS_BETWEEN.format(now=database.now), values)
        hosts = [cast(str, host) for (host,) in cursor.fetchall()]
        yield from hosts
        if len(hosts) < _HOSTS:
            return
        after = hosts[-1]


def _lease_from_host(database: Database, cursor: Cursor, request: LeaseRequest, host: str, count: int) -> list[Leased]:
    """Lease up to ``count`` jobs of a host, and return them in the order of the input."""
    # Without MATERIALIZED, PostgreSQL may run the subquery again for each row, and lock more rows.
    cursor.execute(
        "WITH chosen AS MATERIALIZED (SELECT key FROM abp_jobs WHERE run = ? AND state = ? AND host = ? "
        f"AND not_before <= {database.now} ORDER BY position LIMIT ? {database.skip_locked}) "
        "UPDATE abp_jobs SET state = ?, attempts = attempts + 1, worker = ?, lease = ?, "
        f"lease_until = {database.now} + ?, started = {database.now} "
        "WHERE run = ? AND key IN (SELECT key FROM chosen) RETURNING position, key, job, attempts",
        (
            *(request.run, State.QUEUED.value, host, count),
            *(State.LEASED.value, request.worker, request.lease, request.seconds, request.run),
        ),
    )
    rows = sorted(cursor.fetchall(), key=lambda row: cast(int, row[0]))
    return [_leased_from(key, job, attempts) for _, key, job, attempts in rows]


def settle_jobs(database: Database, cursor: Cursor, run: str, worker: str, settlements: Sequence[Settlement]) -> int:
    """Write the outcomes of jobs leased by ``worker``, and return the number of jobs that it held."""
    ended = [settlement for settlement in settlements if settlement.begun and settlement.again_after is None]
    retried = [settlement for settlement in settlements if settlement.begun and settlement.again_after is not None]
    not_begun = [settlement for settlement in settlements if not settlement.begun]
    held = 0
    if ended:
        end_jobs = _END_JOBS.format(now=database.now)
        cursor.executemany(end_jobs, [_settled_row(run, worker, settlement) for settlement in ended])
        held += cursor.rowcount
    if retried:
        queue_jobs = _QUEUE_JOBS_AGAIN.format(now=database.now)
        cursor.executemany(queue_jobs, [_settled_row(run, worker, settlement) for settlement in retried])
        held += cursor.rowcount

    # Jobs that were not begun return to the queue, as if they had not been leased.
    if not_begun:
        cursor.executemany(
            "UPDATE abp_jobs SET state = ?, attempts = attempts - 1, worker = NULL, lease = NULL, lease_until = NULL "
            f"WHERE run = ? AND key = ? AND worker = ? AND {LEASED}",
            [(State.QUEUED.value, run, settlement.key, worker) for settlement in not_begun],
        )
        held += cursor.rowcount
    return held


def _settled_row(run: str, worker: str, settlement: Settlement) -> tuple[Value, ...]:
    """Return the values of :data:`_END_JOBS` and :data:`_QUEUE_JOBS_AGAIN`, in their order."""
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
    """Replace failed lines up to the position ``last`` by later lines with the same id, and return the number of
    replaced lines.

    Replaced lines are kept beside the run. A failed job stays while another line has it. If an id has more failed jobs
    than the addition (``abp_input``) has new lines, all of them stay, since it is unclear which one is corrected. Lines
    that the addition repeats unchanged do not count."""
    # The jobs must not be queued again meanwhile.
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
    """Move the wrong copies up to the position ``last`` to the replaced lines, and return their number."""
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
    """Copy the wrong lines with jobs of their own, up to the position ``last``, to the replaced lines. Return their
    number."""
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
    """Addition of an input that ``source`` reads in batches. ``fingerprint`` identifies the input. Setting
    ``cancelled`` ends the addition after the current batch."""

    database: Database
    run: str
    source: Callable[[], Iterable[Sequence[Job]]]
    fingerprint: str
    extend: bool
    cancelled: threading.Event = field(default_factory=threading.Event)

    def added_before(self, cursor: Cursor) -> Added | None:
        """Return the counts of the input if the run has it already. Raises :class:`~transports.errors.UsageError` if
        the run has a different input, unless this one extends it."""
        values = values_of(self.database, cursor, self.run)
        if INPUT + self.fingerprint in values:
            return Added(int(values[INPUT + self.fingerprint]), known=True)
        if not self.extend and any(name.startswith(INPUT) for name in values):
            raise UsageError(
                "this run has another input; add this one to it with --extend, or name another folder with --out"
            )
        return None

    def stage(self, cursor: Cursor) -> None:
        """Read the input into a temporary table of this connection, without blocking other connections."""
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
        """Add the jobs. Read the input first unless it is ``staged``."""
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
            cursor.execute(
                "INSERT INTO abp_jobs (run, key, position, host, id, job, idempotent, state) "
                "SELECT ?, key, line + ?, host, id, job, idempotent, state FROM abp_input "
                "WHERE line > ? AND line <= ? ORDER BY line ON CONFLICT DO NOTHING",
                (self.run, last, first, first + _CHUNK),
            )
            jobs += cursor.rowcount
            lines_of_chunk = min(_CHUNK, lines - first)
            if cursor.rowcount < lines_of_chunk:
                existing += self._add_copies(cursor, last, first)

        put_value(cursor, self.run, INPUT + self.fingerprint, str(lines))
        replaced = 0
        if last:
            replaced = replace_failed(self.database, cursor, self.run, last)
        cursor.execute("DROP TABLE abp_input")
        return Added(lines, jobs, copies=lines - jobs - existing, replaced=replaced)

    def _add_copies(self, cursor: Cursor, last: int, first: int) -> int:
        """Add the lines after ``first`` whose job exists already, and return the number of lines whose job came from an
        earlier input. A line with the same job and the same id as one of an earlier input is not added again."""
        run = self.run
        end = first + _CHUNK
        cursor.execute(_ADD_COPIES, (last, run, first, end, last, run, last, run, last))
        return int(number_from(cursor, _COUNT_EXISTING, run, first, end, last))
