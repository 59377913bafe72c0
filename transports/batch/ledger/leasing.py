"""Which queued jobs a worker gets: from all hosts in turn, and of each host in the order of the input."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import cast

from ...database import Cursor, Value
from ..job_format import parse_job
from ..jobs import State
from .database import Database
from .entries import Leased
from .texts import decoded_object

__all__ = ["LeaseRequest", "lease_jobs"]

#: Hosts that one statement looks up.
_HOSTS = 64


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a worker asks for. ``lease`` names this request: asked again after a lost connection, it gets the same jobs.
    ``after`` is the host that was served last."""

    run: str
    worker: str
    lease: str
    count: int
    seconds: float
    per_host: int | None
    closed: Collection[str]
    after: str


def lease_jobs(database: Database, cursor: Cursor, asked: LeaseRequest) -> tuple[list[Leased], str]:
    """Return the leased jobs, and the host that was served last."""
    database.lock(cursor, asked.run)
    cursor.execute(
        "SELECT key, job, attempts FROM abp_jobs WHERE run = ? AND state = ? AND lease = ?",
        (asked.run, State.LEASED.value, asked.lease),
    )
    found, after = list(cursor.fetchall()), asked.after
    if not found:
        room = _room(database, cursor, asked)
        while room and len(found) < asked.count:
            share = max(1, (asked.count - len(found)) // len(room))
            for host, free in [*room.items()]:
                wanted = min(share, free, asked.count - len(found))
                rows = _from_host(database, cursor, asked, host, wanted)
                found += rows
                after = host if rows else after
                room[host] = free - len(rows) if len(rows) == wanted else 0
                if not room[host]:
                    del room[host]
                if len(found) >= asked.count:
                    break
    jobs = [Leased(cast(str, key), parse_job(decoded_object(job)), cast(int, tries)) for key, job, tries in found]
    return jobs, after


def _room(database: Database, cursor: Cursor, asked: LeaseRequest) -> dict[str, int]:
    """The hosts that have jobs to lease, in turn, and how many jobs of each may be leased."""
    room: dict[str, int] = {}
    for host in _hosts(database, cursor, asked.run, asked.after):
        if host in asked.closed:
            continue
        free = asked.count
        if asked.per_host is not None:
            cursor.execute(
                "SELECT count(*) FROM abp_jobs WHERE run = ? AND state = ? AND host = ?",
                (asked.run, State.LEASED.value, host),
            )
            free = asked.per_host - cast(int, cursor.fetchall()[0][0])
        if free > 0:
            room[host] = free
        if len(room) == asked.count:
            break
    return room


def _hosts(database: Database, cursor: Cursor, run: str, after: str) -> Iterator[str]:
    """The hosts with queued jobs whose time has come, those behind ``after`` first. Each costs one look into the index,
    however many jobs it has."""
    queued = (run, State.QUEUED.value)
    for start, beyond, bounds in ((after, "", ()), ("", "AND host <= ?", (after,))):
        while True:
            first = f"SELECT min(host) FROM abp_jobs WHERE run = ? AND state = ? AND host > {{}} {beyond}"
            cursor.execute(
                f"WITH RECURSIVE hosts(host) AS ({first.format('?')} UNION ALL "
                f"SELECT ({first.format('hosts.host')}) FROM hosts WHERE hosts.host IS NOT NULL) "
                "SELECT host FROM hosts WHERE host IS NOT NULL AND EXISTS (SELECT 1 FROM abp_jobs WHERE run = ? "
                f"AND state = ? AND abp_jobs.host = hosts.host AND not_before <= {database.now}) LIMIT ?",
                (*queued, start, *bounds, *queued, *bounds, *queued, _HOSTS),
            )
            found = [cast(str, host) for (host,) in cursor.fetchall()]
            yield from found
            if len(found) < _HOSTS:
                break
            start = found[-1]


def _from_host(
    database: Database, cursor: Cursor, asked: LeaseRequest, host: str, count: int
) -> list[tuple[Value, ...]]:
    # chosen once and for all: PostgreSQL may run a plain subquery again for each row, and lock more of them
    cursor.execute(
        "WITH chosen AS MATERIALIZED (SELECT key FROM abp_jobs WHERE run = ? AND state = ? AND host = ? "
        f"AND not_before <= {database.now} ORDER BY position LIMIT ? {database.skip_locked}) "
        "UPDATE abp_jobs SET state = ?, attempts = attempts + 1, worker = ?, lease = ?, "
        f"lease_until = {database.now} + ?, started = {database.now} "
        "WHERE run = ? AND key IN (SELECT key FROM chosen) RETURNING position, key, job, attempts",
        (
            *(asked.run, State.QUEUED.value, host, count),
            *(State.LEASED.value, asked.worker, asked.lease, asked.seconds, asked.run),
        ),
    )
    rows = sorted(cursor.fetchall(), key=lambda row: cast(int, row[0]))
    return [row[1:] for row in rows]
