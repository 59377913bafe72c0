"""How a run stands, added up from what is new since the last read: a refresh does not read all jobs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ...database import Cursor
from ..jobs import State
from .database import Database
from .schema import INPUT, values_of

__all__ = ["FINAL", "Overview", "Tally"]

FINAL = tuple(state for state in State if state.is_final)
#: Seconds after which a job that ended is counted for good: by then the transaction that says so is over.
_SETTLING = 10.0
#: All jobs are counted again after so many seconds, and after so many times the time that it takes.
_RECOUNT, _RECOUNT_FACTOR = 30.0, 200.0
#: Points of the throughput over time.
_POINTS = 100
#: Codes that are told apart, characters of each, and the latest errors whose codes are counted.
_CODES, _CODE_CHARS, _CODED = 50, 100, 100_000


@dataclass(frozen=True, slots=True)
class Overview:
    """How a run stands at ``now``, in seconds since 1970 by the database's clock.

    ``codes`` counts the jobs that ended with an error by its code, ``""`` for none; those of a long run, of the latest
    100,000. ``succeeded`` and ``others`` are how many jobs ended in each ``step`` seconds from ``began`` on, ``recent``
    how many in the last ten seconds.
    """

    states: Mapping[State, int]
    cancelled: bool
    codes: Mapping[str, int]
    began: float | None
    step: float
    succeeded: tuple[int, ...]
    others: tuple[int, ...]
    recent: int
    now: float


@dataclass(slots=True)
class _Ended:
    """Jobs that have ended: by state, by code, and by time in parts of ``step`` seconds from ``began`` on."""

    states: Counter[State] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)
    began: float | None = None
    step: float = 1.0

    def copy(self) -> _Ended:
        return replace(
            self,
            states=self.states.copy(),
            codes=self.codes.copy(),
            succeeded=self.succeeded.copy(),
            others=self.others.copy(),
        )

    def add(self, cursor: Cursor, run: str, after: float, until: float) -> None:
        """Count the jobs that ended after one time and not after another. Reads their entries in the index."""
        where = "FROM abp_jobs WHERE run = ? AND state = ? AND finished > ? AND finished <= ?"
        for state in FINAL:
            range_ = (run, state.value, after, until)
            cursor.execute(f"SELECT min(finished), max(finished) {where}", range_)
            first, last = cursor.fetchall()[0]
            if first is None:
                continue
            if self.began is None:
                self.began = self._first(cursor, run)
            while (cast(float, last) - self.began) / self.step >= _POINTS:
                self._widen()
            times = self.succeeded if state is State.SUCCEEDED else self.others
            # rounding half down: databases differ in what a cast does
            cursor.execute(f"SELECT round((finished - ?) / ? - 0.5), count(*) {where} GROUP BY 1",
                           (self.began, self.step, *range_))  # fmt: skip
            for part, count in cursor.fetchall():
                times[max(int(cast(float, part)), 0)] += cast(int, count)
                self.states[state] += cast(int, count)
            if state in (State.FAILED, State.UNKNOWN):
                self._add_codes(cursor, where, range_)

    def _add_codes(self, cursor: Cursor, where: str, range_: tuple[str | float, ...]) -> None:
        cursor.execute(
            f"SELECT substr(coalesce(code, ''), 1, {_CODE_CHARS}), count(*) FROM (SELECT error_code AS code {where} "
            f"ORDER BY finished DESC LIMIT {_CODED}) AS latest GROUP BY 1 ORDER BY 2 DESC LIMIT {_CODES}",
            range_,
        )
        for code, count in cursor.fetchall():
            if str(code) in self.codes or len(self.codes) < 2 * _CODES:  # an app chooses its codes
                self.codes[str(code)] += cast(int, count)

    def _first(self, cursor: Cursor, run: str) -> float:
        firsts = []
        for state in FINAL:
            cursor.execute(
                "SELECT min(finished) FROM abp_jobs WHERE run = ? AND state = ? AND finished > 0", (run, state.value)
            )
            firsts.append(cursor.fetchall()[0][0])
        return min(float(first) for first in firsts if first is not None)

    def _widen(self) -> None:
        self.step *= 2
        for times in (self.succeeded, self.others):
            halved = Counter[int]()
            for part, count in times.items():
                halved[part // 2] += count
            times.clear()
            times.update(halved)


class Tally:
    """What was counted of a run so far. All jobs are counted at the first look, when an input was added, and now and
    then, since jobs may be queued again; else only what has ended in the last seconds."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._inputs: frozenset[str] | None = None
        self._total = 0
        self._ended = _Ended()
        self._until = 0.0
        self._recount_at = 0.0

    def overview(self, database: Database, cursor: Cursor) -> Overview:
        """Return how the run stands; call it in a transaction."""
        values = values_of(database, cursor, self._run)
        inputs = frozenset(name for name in values if name.startswith(INPUT))
        now = _number(cursor, f"SELECT {database.now}")
        recounting = inputs != self._inputs or now >= self._recount_at
        if recounting:
            self._inputs, self._ended, self._until = inputs, _Ended(), 0.0
            self._total = int(_number(cursor, "SELECT count(*) FROM abp_jobs WHERE run = ?", self._run))
        if (until := now - _SETTLING) > self._until:
            self._ended.add(cursor, self._run, self._until, until)
            self._until = until
        ended = self._ended.copy()
        before = ended.states.total()
        ended.add(cursor, self._run, self._until, now + _SETTLING)
        leased = int(_number(cursor, "SELECT count(*) FROM abp_jobs WHERE run = ? AND state = ?",
                             self._run, State.LEASED.value))  # fmt: skip
        queued = self._total - leased - ended.states.total()
        if recounting:
            cost = _number(cursor, f"SELECT {database.now}") - now
            self._recount_at = now + max(_RECOUNT, cost * _RECOUNT_FACTOR)
        elif queued < 0:  # jobs were queued again
            self._recount_at = 0.0
        parts = range(max([*ended.succeeded, *ended.others], default=-1) + 1)
        return Overview(
            states={**{s: ended.states[s] for s in State}, State.LEASED: leased, State.QUEUED: max(queued, 0)},
            cancelled="cancelled" in values,
            codes=dict(ended.codes.most_common(_CODES)),
            began=ended.began,
            step=ended.step,
            succeeded=tuple(ended.succeeded[part] for part in parts),
            others=tuple(ended.others[part] for part in parts),
            recent=ended.states.total() - before,
            now=now,
        )


def _number(cursor: Cursor, sql: str, *values: str) -> float:
    cursor.execute(sql, values)
    return cast(float, cursor.fetchall()[0][0])
