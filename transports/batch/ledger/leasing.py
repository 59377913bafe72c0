"""Which queued jobs a worker gets: from all hosts in turn, and of each host in the order of the input."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import cast

from ...database import Cursor, Value
from ..job_format import parse_job
from ..jobs import State
from .database import Database
from .entries import Leased
from .texts import decoded_object

__all__ = ["HostTurns", "LeaseRequest", "lease_jobs"]

#: Hosts that one statement looks up.
_HOSTS = 64
#: Seconds for which a worker that finds jobs enough goes on with the hosts it knows. To ask for them is half of what
#: leasing costs the database.
_KNOWN = 1.0


class HostTurns:
    """Whose turn it is: what one worker keeps in mind from one request to the next. Losing it costs a question."""

    def __init__(self) -> None:
        #: The host that was served last.
        self.after = ""
        self._known: tuple[str, ...] = ()
        self._until = 0.0

    def known(self) -> list[str]:
        """Return all hosts that had jobs to lease, in turn, if they were asked for not long ago; else none."""
        known = self._known if time.monotonic() < self._until else ()
        return [host for host in known if host > self.after] + [host for host in known if host <= self.after]

    def keep(self, hosts: Collection[str]) -> None:
        """Remember all hosts that have jobs to lease; none, if they are to be asked for the next time."""
        self._known, self._until = tuple(sorted(hosts)), time.monotonic() + _KNOWN


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a worker asks for. ``lease`` names this request: made ``again`` after a lost connection, it gets the same
    jobs."""

    run: str
    worker: str
    lease: str
    count: int
    seconds: float
    per_host: int | None
    closed: Collection[str]
    turns: HostTurns
    again: bool


def lease_jobs(database: Database, cursor: Cursor, asked: LeaseRequest) -> list[Leased]:
    """Return the leased jobs."""
    database.lock(cursor, asked.run)
    found: list[tuple[Value, ...]] = []
    if asked.again:  # it looks at all leases: too much for each time
        cursor.execute(
            "SELECT key, job, attempts FROM abp_jobs WHERE run = ? AND state = ? AND lease = ?",
            (asked.run, State.LEASED.value, asked.lease),
        )
        found += cursor.fetchall()
    if not found:
        found += _from_hosts(database, cursor, asked, asked.turns.known(), asked.count)
        if len(found) < asked.count:
            others = _hosts(database, cursor, asked.run, asked.turns.after)
            hosts = [*islice(others, _HOSTS)]
            found += _from_hosts(database, cursor, asked, chain(hosts, others), asked.count - len(found))
            asked.turns.keep(hosts if len(hosts) < _HOSTS and len(found) == asked.count else ())
    return [Leased(cast(str, key), parse_job(decoded_object(job)), cast(int, tries)) for key, job, tries in found]


def _from_hosts(
    database: Database, cursor: Cursor, asked: LeaseRequest, hosts: Iterable[str], count: int
) -> list[tuple[Value, ...]]:
    """Up to ``count`` jobs of the hosts, in turn."""
    found: list[tuple[Value, ...]] = []
    room = _room(database, cursor, asked, hosts, count)
    while room and len(found) < count:
        share = max(1, (count - len(found)) // len(room))
        for host, free in [*room.items()]:
            wanted = min(share, free, count - len(found))
            rows = _from_host(database, cursor, asked, host, wanted)
            found += rows
            asked.turns.after = host if rows else asked.turns.after
            room[host] = free - len(rows) if len(rows) == wanted else 0
            if not room[host]:
                del room[host]
            if len(found) >= count:
                break
    return found


def _room(database: Database, cursor: Cursor, asked: LeaseRequest, hosts: Iterable[str], count: int) -> dict[str, int]:
    """Those of the hosts of which jobs may be leased, and how many of each; ``count`` hosts are enough."""
    room: dict[str, int] = {}
    for host in hosts:
        if host in asked.closed:
            continue
        free = count
        if asked.per_host is not None:
            cursor.execute(
                "SELECT count(*) FROM abp_jobs WHERE run = ? AND state = ? AND host = ?",
                (asked.run, State.LEASED.value, host),
            )
            free = asked.per_host - cast(int, cursor.fetchall()[0][0])
        if free > 0:
            room[host] = free
        if len(room) == count:
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
