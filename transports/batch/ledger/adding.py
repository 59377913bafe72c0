"""Adding the jobs of an input to a run: all of them, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from ...database import Cursor, Value
from ...errors import LedgerError, UsageError
from ..jobs import Job
from .columns import new_row
from .corrections import replace_failed
from .database import Database
from .entries import Added
from .schema import INPUT, put_value, values_of

__all__ = ["Addition"]


@dataclass(frozen=True, slots=True)
class Addition:
    """The input that ``source`` reads in batches, known by its ``fingerprint``. One that is ``cancelled`` ends with the
    batch that is read."""

    database: Database
    run: str
    source: Callable[[], Iterable[Sequence[Job]]]
    fingerprint: str
    extend: bool
    cancelled: threading.Event = field(default_factory=threading.Event)

    def known(self, cursor: Cursor) -> Added | None:
        """Return what there is of the input already. Raises :class:`~transports.errors.UsageError` if the run has
        another one, unless this one extends it."""
        known = values_of(self.database, cursor, self.run)
        if INPUT + self.fingerprint in known:
            return Added(int(known[INPUT + self.fingerprint]), known=True)
        if not self.extend and any(name.startswith(INPUT) for name in known):
            raise UsageError(
                "this run has another input; add this one to it with --extend, or name another folder with --out"
            )
        return None

    def stage(self, cursor: Cursor) -> None:
        """Read the input into a table of this connection's own, so that no other one waits meanwhile."""
        cursor.execute("DROP TABLE IF EXISTS abp_input")
        cursor.execute(
            "CREATE TEMP TABLE abp_input (key TEXT, line INTEGER PRIMARY KEY, host TEXT, id TEXT, job TEXT, "
            "idempotent INTEGER, state TEXT)"
        )
        line = 0
        for batch in self.source():
            if self.cancelled.is_set():
                raise LedgerError("adding the jobs was cancelled; none of them is in the ledger")
            rows = [new_row(job, line + at) for at, job in enumerate(batch, 1)]
            cursor.executemany("INSERT INTO abp_input VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            line += len(rows)

    def add(self, cursor: Cursor, *, staged: bool) -> Added:
        """Add the jobs, which are read now unless they are ``staged``."""
        if (known := self.known(cursor)) is not None:
            return known
        if not staged:
            self.stage(cursor)
        last = max(_number(cursor, f"SELECT max(position) FROM {table} WHERE run = ?", self.run) for table in _LINES)
        lines = _number(cursor, "SELECT count(*) FROM abp_input")
        jobs = before = 0
        for first in range(0, lines, _CHUNK):
            cursor.execute(
                "INSERT INTO abp_jobs (run, key, position, host, id, job, idempotent, state) "
                "SELECT ?, key, line + ?, host, id, job, idempotent, state FROM abp_input "
                "WHERE line > ? AND line <= ? ORDER BY line ON CONFLICT DO NOTHING",
                (self.run, last, first, first + _CHUNK),
            )
            jobs += cursor.rowcount
            if cursor.rowcount < min(_CHUNK, lines - first):
                before += self._add_copies(cursor, last, first)
        put_value(cursor, self.run, INPUT + self.fingerprint, str(lines))
        replaced = replace_failed(self.database, cursor, self.run, last) if last else 0
        cursor.execute("DROP TABLE abp_input")
        return Added(lines, jobs, lines - jobs - before, replaced)

    def _add_copies(self, cursor: Cursor, last: int, first: int) -> int:
        """Add those lines behind ``first`` whose job is there already, and return how many of these jobs other inputs
        brought. A line of an earlier input with the same job and the same id is not added again."""
        lines = "abp_input i JOIN abp_jobs j ON j.key = i.key WHERE j.run = ? AND i.line > ? AND i.line <= ?"
        chosen = (self.run, first, first + _CHUNK)
        # a "+" keeps a database from beginning with the positions, which nearly all rows match
        same = "+position <= ? AND coalesce(id, '') = coalesce(i.id, '')"
        cursor.execute(
            "INSERT INTO abp_copies (run, position, key, id, job, idempotent) "
            f"SELECT j.run, i.line + ?, i.key, i.id, i.job, i.idempotent FROM {lines} AND j.position <> i.line + ? "
            f"AND NOT EXISTS (SELECT 1 FROM abp_jobs WHERE run = ? AND key = i.key AND {same}) "
            f"AND NOT EXISTS (SELECT 1 FROM abp_copies WHERE run = ? AND key = i.key AND {same})",
            (last, *chosen, last, self.run, last, self.run, last),
        )
        return _number(cursor, f"SELECT count(*) FROM {lines} AND +j.position <= ?", *chosen, last)


#: Lines that one statement adds: each ends long before the database's time for one.
_CHUNK = 20_000
#: The tables whose rows are lines of inputs.
_LINES = ("abp_jobs", "abp_copies")


def _number(cursor: Cursor, sql: str, *values: Value) -> int:
    cursor.execute(sql, values)
    return cast(int, cursor.fetchall()[0][0] or 0)
