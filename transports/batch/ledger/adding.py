"""Adding the jobs of an input to a run: all of them, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from ...database import Cursor, Value
from ...errors import LedgerError, UsageError
from ..jobs import Job
from .columns import new_row
from .database import Database
from .entries import Added
from .schema import INPUT, put_value, values_of

__all__ = ["Addition"]

_INSERT = "INSERT INTO abp_jobs (run, key, position, host, job, idempotent, state) "


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
            return Added(int(known[INPUT + self.fingerprint]), 0, known=True)
        if not self.extend and any(name.startswith(INPUT) for name in known):
            raise UsageError(
                "this run has another input; add this one to it with --extend, or name another folder with --out"
            )
        return None

    def stage(self, cursor: Cursor) -> None:
        """Read the input into a table of this connection's own, so that no other one waits meanwhile."""
        cursor.execute("DROP TABLE IF EXISTS temp.abp_input")
        cursor.execute("CREATE TEMP TABLE abp_input (key, line INTEGER PRIMARY KEY, host, job, idempotent, state)")
        for rows in self._rows():
            cursor.executemany("INSERT INTO temp.abp_input VALUES (?, ?, ?, ?, ?, ?)", rows)

    def add(self, cursor: Cursor, *, staged: bool) -> Added:
        """Add the jobs, which are read now unless they are ``staged``."""
        if (known := self.known(cursor)) is not None:
            return known
        cursor.execute("SELECT coalesce(max(position), 0), count(*) FROM abp_jobs WHERE run = ?", (self.run,))
        last, before = (cast(int, value) for value in cursor.fetchall()[0])
        if staged:
            cursor.execute(
                f"{_INSERT} SELECT ?, key, line + ?, host, job, idempotent, state FROM temp.abp_input WHERE true "
                "ORDER BY line ON CONFLICT DO NOTHING",
                (self.run, last),
            )
            cursor.execute("SELECT count(*) FROM temp.abp_input")
            lines = cast(int, cursor.fetchall()[0][0])
            cursor.execute("DROP TABLE temp.abp_input")
        else:
            lines = 0
            for rows in self._rows(last):
                jobs = [(self.run, *row) for row in rows]
                cursor.executemany(f"{_INSERT} VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", jobs)
                lines += len(rows)
        put_value(cursor, self.run, INPUT + self.fingerprint, str(lines))
        cursor.execute("SELECT count(*) FROM abp_jobs WHERE run = ?", (self.run,))
        return Added(lines, cast(int, cursor.fetchall()[0][0]) - before)

    def _rows(self, last: int = 0) -> Iterator[Sequence[tuple[Value, ...]]]:
        """The jobs as rows, which are placed behind ``last``."""
        for batch in self.source():
            if self.cancelled.is_set():
                raise LedgerError("adding the jobs was cancelled; none of them is in the ledger")
            yield [new_row(job, last + at) for at, job in enumerate(batch, 1)]
            last += len(batch)
