"""Read-only view of a run: pages of jobs with filters, and incremental statistics.

The cost of both does not grow with the run: they use indexes, and the statistics only count recently ended jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

from ..._internal.database import Cursor, Transactions, Value, without_nul
from ...errors import ABPError, LedgerError, UsageError, first_line
from ...protocol._strict_json import decode_json
from .._jobs import State
from ._schema import COLUMNS, INPUT, LEASED, VERSION, Database, Row, encoded, number_from, row_from, values_of

#: Sort key of a job in a list: the time of its end, or its host; then its place in the input.
_SortKey: TypeAlias = "tuple[float | str, int]"
FINAL = tuple(state for state in State if state.is_final)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    #: Jobs that are searched for one page.
    window: int = 2000
    #: Jobs that are found by the id of a copy, and listed copies of a job.
    jobs_of_copy: int = 100
    copies: int = 20
    #: Characters of a job and of its files' references in a page. Longer values are replaced by placeholders.
    job_chars: int = 256 << 10
    files_chars: int = 64 << 10
    #: Seconds after which the count of ended jobs is permanent: by then, transactions with earlier ends are committed.
    settling: float = 10.0
    #: Seconds between full recounts, and the same as a multiple of a recount's duration.
    recount: float = 30.0
    recount_factor: float = 200.0
    #: Points of the throughput over time.
    points: int = 100
    #: Distinct codes of errors, as apps may invent any number; characters of each, and latest errors that are counted.
    distinct_codes: int = 50
    chars_of_code: int = 100
    counted_errors: int = 100_000


LIMITS = Limits()
_SHORT_COLUMNS = COLUMNS.replace(
    "job,", f'CASE WHEN length(job) <= {LIMITS.job_chars} THEN job ELSE \'{{"capability":"(large)"}}\' END,'
).replace("artifacts", f"CASE WHEN length(artifacts) <= {LIMITS.files_chars} THEN artifacts ELSE '[]' END")


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs to list. ``states`` are final states, or a single other state. ``text`` is contained in the job, or is
    the whole id of a copy. ``after`` is the ``next`` of the previous page."""

    states: Sequence[State]
    code: str | None = None
    text: str | None = None
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of a list of jobs. Ended jobs are sorted by their end, the latest first, and others by host and place in
    the input. ``copies`` are the keys of jobs that match by the id of a copy. ``next`` is ``None`` on the last page.
    For each page only 2,000 jobs are searched, so a page may have few jobs or none although another page follows."""

    rows: tuple[Row, ...]
    next: str | None
    copies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Order:
    """How a list is sorted: the first ``column`` of the sort key, the ``clause`` to sort by the key, and the operators
    that select jobs ``after`` a key and ``until`` a key."""

    column: str
    clause: str
    after: str
    until: str
    descending: bool


_LATEST_END_FIRST = _Order("finished", "ORDER BY finished DESC, position DESC", "<", ">=", descending=True)
_BY_HOST = _Order("host", "ORDER BY host, position", ">", "<=", descending=False)


def list_jobs(cursor: Cursor, run: str, query: JobQuery) -> JobPage:
    """Return a page of jobs. Raises :class:`~transports.errors.UsageError` for an invalid ``after``."""
    are_final = query.states[0].is_final
    order = _LATEST_END_FIRST if are_final else _BY_HOST
    after = _parse_sort_key(query.after, ended=are_final)
    copies = _keys_of_copies(cursor, run, query.text)
    filter_condition, filter_values = _filter_condition(query, copies)

    # A filter may match very few jobs, so only a limited window of the jobs is searched for one page.
    window_end: _SortKey | None = None
    if filter_condition:
        window_end = _end_of_window(cursor, run, query.states, order, after)
    range_condition, range_values = _range_condition(order, after, window_end)

    # One more row than the page has is read, which shows whether another page follows.
    rows: list[tuple[Value, ...]] = []
    for state in query.states:
        cursor.execute(
            f"SELECT {order.column}, {_SHORT_COLUMNS} FROM abp_jobs "
            f"WHERE run = ? AND {_in_state(state)} {range_condition} {filter_condition} {order.clause} LIMIT ?",
            (run, *range_values, *filter_values, query.limit + 1),
        )
        rows += cursor.fetchall()
    rows.sort(key=_sort_key, reverse=order.descending)

    next_after = window_end
    if len(rows) > query.limit:
        next_after = _sort_key(rows[query.limit - 1])
    return JobPage(
        rows=tuple(row_from(*cells[1:]) for cells in rows[: query.limit]),
        next=None if next_after is None else encoded(next_after),
        copies=frozenset(copies),
    )


def _end_of_window(
    cursor: Cursor, run: str, states: Sequence[State], order: _Order, after: tuple[Value, ...]
) -> _SortKey | None:
    """Return the sort key of the last job in the window. If several states are listed, each has a window, and the end
    that comes first counts. Return ``None`` if no state has more jobs than a window."""
    condition, values = _range_condition(order, after, None)
    ends: list[_SortKey] = []
    for state in states:
        cursor.execute(
            f"SELECT {order.column}, position FROM abp_jobs WHERE run = ? AND {_in_state(state)} {condition} "
            f"{order.clause} LIMIT 1 OFFSET {LIMITS.window - 1}",
            (run, *values),
        )
        ends += cast("list[_SortKey]", cursor.fetchall())
    if not ends:
        return None
    if order.descending:
        return max(ends)
    return min(ends)


def _range_condition(order: _Order, after: tuple[Value, ...], until: _SortKey | None) -> tuple[str, tuple[Value, ...]]:
    condition = f"AND {order.column} IS NOT NULL"
    values: tuple[Value, ...] = ()
    if after:
        condition += f" AND ({order.column}, position) {order.after} (?, ?)"
        values += after
    if until is not None:
        condition += f" AND ({order.column}, position) {order.until} (?, ?)"
        values += until
    return condition, values


def _in_state(state: State) -> str:
    """Write the state as a literal, so that the partial indexes match."""
    return f"state = '{state.value}'"


def _sort_key(cells: tuple[Value, ...]) -> _SortKey:
    return cast(_SortKey, cells[:2])


def _keys_of_copies(cursor: Cursor, run: str, text: str | None) -> list[str]:
    """Return the keys of jobs with a copy whose whole id is ``text``."""
    if not text:
        return []
    cursor.execute(
        "SELECT DISTINCT key FROM abp_copies WHERE run = ? AND substr(id, 1, 100) = substr(?, 1, 100) AND id = ? "
        f"LIMIT {LIMITS.jobs_of_copy}",
        (run, without_nul(text), without_nul(text)),
    )
    return [str(key) for (key,) in cursor.fetchall()]


def _filter_condition(query: JobQuery, copies: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the condition in SQL for the query's error code and text, and its values. It is empty without these."""
    condition = ""
    values: tuple[str, ...] = ()
    if query.code is not None:
        condition = "AND coalesce(error_code, '') = ?"
        values = (query.code,)
    if query.text:
        contains_text = "lower(job || ' ' || coalesce(error, '') || ' ' || key) LIKE ? ESCAPE '!'"
        values += (_like_pattern(query.text), *copies)
        if copies:
            contains_text += f" OR key IN ({', '.join('?' * len(copies))})"
        condition += f" AND ({contains_text})"
    return condition, values


def _like_pattern(text: str) -> str:
    """Return the pattern of a search in JSON for a text, without regard to case. ``!`` escapes wildcards."""
    without_quotes = encoded(text.lower())[1:-1]
    escaped_text = without_quotes.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped_text}%"


def _parse_sort_key(after: str | None, *, ended: bool) -> tuple[Value, ...]:
    """Read the sort key after which a page begins; it is empty for the first page. ``ended`` is true if the key begins
    with a time and not with a host."""
    if not after:
        return ()
    # Databases accept integers of 64 bits.
    positions = range(-(2**63), 2**63)
    try:
        match decode_json(after):
            case [float() | int() as place, int(position)] if ended and position in positions:
                return float(place), position
            case [str(place), int(position)] if not ended and position in positions:
                return place, position
    except (ABPError, OverflowError):
        pass
    raise UsageError("`after` belongs to a different query; start again without it")


@dataclass(frozen=True, slots=True)
class Overview:
    """Statistics of a run at ``now``, in seconds since 1970 by the database's clock. ``codes`` counts failed and
    unknown jobs by error code, which is ``""`` if there was no code; in a long run only the latest 100,000 jobs.
    ``succeeded`` and ``others`` count the ended jobs in each interval of ``step`` seconds, starting at ``began``.
    ``recent`` counts the jobs that ended in the last ten seconds."""

    states: Mapping[State, int]
    cancelled: bool
    codes: Mapping[str, int]
    began: float | None
    step: float
    succeeded: tuple[int, ...]
    others: tuple[int, ...]
    recent: int
    now: float


#: Rest of a query for the jobs of a state that ended in a period. Its values: run, state, after and until.
_ENDED_BETWEEN = "FROM abp_jobs WHERE run = ? AND state = ? AND finished > ? AND finished <= ?"


@dataclass(slots=True)
class _Ended:
    """Counts of ended jobs: by state, by code, and by time in intervals of ``step`` seconds from ``began`` on."""

    states: Counter[State] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)
    began: float | None = None
    step: float = 1.0

    def add(self, cursor: Cursor, run: str, after: float, until: float) -> None:
        """Count the jobs that ended after ``after`` and not later than ``until``. Only the index is read for this."""
        for state in FINAL:
            values = (run, state.value, after, until)
            cursor.execute(f"SELECT min(finished), max(finished) {_ENDED_BETWEEN}", values)
            first, last = cursor.fetchall()[0]
            if first is None:
                continue
            if self.began is None:
                self.began = self._first_end(cursor, run)
            while (cast(float, last) - self.began) / self.step >= LIMITS.points:
                self._double_step()

            self._add_times(cursor, state, self.began, values)
            if state in (State.FAILED, State.UNKNOWN):
                self._add_codes(cursor, values)

    def _add_times(self, cursor: Cursor, state: State, began: float, values: tuple[str | float, ...]) -> None:
        times = self.succeeded if state is State.SUCCEEDED else self.others
        # round(x - 0.5) rounds down. Databases differ in their casts.
        cursor.execute(
            f"SELECT round((finished - ?) / ? - 0.5), count(*) {_ENDED_BETWEEN} GROUP BY 1",
            (began, self.step, *values),
        )
        for interval, count in cursor.fetchall():
            times[max(int(cast(float, interval)), 0)] += cast(int, count)
            self.states[state] += cast(int, count)

    def _add_codes(self, cursor: Cursor, values: tuple[str | float, ...]) -> None:
        cursor.execute(
            f"SELECT substr(coalesce(code, ''), 1, {LIMITS.chars_of_code}), count(*) FROM (SELECT error_code AS code "
            f"{_ENDED_BETWEEN} ORDER BY finished DESC LIMIT {LIMITS.counted_errors}) AS latest GROUP BY 1 "
            f"ORDER BY 2 DESC LIMIT {LIMITS.distinct_codes}",
            values,
        )
        for code, count in cursor.fetchall():
            if str(code) in self.codes or len(self.codes) < 2 * LIMITS.distinct_codes:
                self.codes[str(code)] += cast(int, count)

    def _first_end(self, cursor: Cursor, run: str) -> float:
        """Return the time at which the first job of the run ended."""
        first = "SELECT min(finished) FROM abp_jobs WHERE run = ? AND state = ? AND finished > 0"
        ends = [number_from(cursor, first, run, state.value) for state in FINAL]
        return min(end for end in ends if end)

    def _double_step(self) -> None:
        """Merge each two intervals, so that the number of points stays limited."""
        self.step *= 2
        for times in (self.succeeded, self.others):
            counts = Counter[int]()
            for interval, count in times.items():
                counts[interval // 2] += count
            times.clear()
            times.update(counts)


class Tally:
    """Counts the jobs of a run. All jobs are counted at the first read, after an input was added, and from time to
    time, since ended jobs may be queued again. Otherwise only jobs that ended since the last read are counted."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._inputs: frozenset[str] | None = None
        self._total = 0
        self._ended = _Ended()
        self._until = 0.0
        self._recount_at = 0.0

    def overview(self, database: Database, cursor: Cursor) -> Overview:
        values = values_of(database, cursor, self._run)
        inputs = frozenset(name for name in values if name.startswith(INPUT))
        now = number_from(cursor, f"SELECT {database.now_sql}")
        recounting = inputs != self._inputs or now >= self._recount_at
        if recounting:
            self._begin_recount(cursor, inputs)

        ended, recent = self._count_ended(cursor, now)
        leased = int(number_from(cursor, f"SELECT count(*) FROM abp_jobs WHERE run = ? AND {LEASED}", self._run))
        queued = self._total - leased - ended.states.total()
        were_queued_again = queued < 0
        if recounting:
            seconds_of_recount = number_from(cursor, f"SELECT {database.now_sql}") - now
            self._recount_at = now + max(LIMITS.recount, seconds_of_recount * LIMITS.recount_factor)
        elif were_queued_again:
            # Jobs counted as ended are open now, so the next call counts all.
            self._recount_at = 0.0

        states = {state: ended.states[state] for state in State}
        states[State.LEASED] = leased
        states[State.QUEUED] = max(queued, 0)
        intervals = range(max([*ended.succeeded, *ended.others], default=-1) + 1)
        return Overview(
            states=states,
            cancelled="cancelled" in values,
            codes=dict(ended.codes.most_common(LIMITS.distinct_codes)),
            began=ended.began,
            step=ended.step,
            succeeded=tuple(ended.succeeded[interval] for interval in intervals),
            others=tuple(ended.others[interval] for interval in intervals),
            recent=recent,
            now=now,
        )

    def _begin_recount(self, cursor: Cursor, inputs: frozenset[str]) -> None:
        self._inputs = inputs
        self._ended = _Ended()
        self._until = 0.0
        self._total = int(number_from(cursor, "SELECT count(*) FROM abp_jobs WHERE run = ?", self._run))

    def _count_ended(self, cursor: Cursor, now: float) -> tuple[_Ended, int]:
        """Return the counts of all ended jobs, and the number of those that ended in the last ten seconds."""
        # Jobs that ended some time ago are counted for good.
        until = now - LIMITS.settling
        if until > self._until:
            self._ended.add(cursor, self._run, self._until, until)
            self._until = until

        # Jobs that ended just now are counted anew each time: transactions with earlier ends may still be committed.
        ended = deepcopy(self._ended)
        ended.add(cursor, self._run, self._until, now + LIMITS.settling)
        return ended, ended.states.total() - self._ended.states.total()


class LedgerView:
    """Read-only view of a run. The first query opens the connection. The cost of a query does not grow with the run,
    except for an :meth:`overview` that counts all jobs. All methods raise :class:`~transports.errors.LedgerError`, also
    for a ledger of another version."""

    def __init__(self, database: Database, run: str) -> None:
        self._database = database
        self._run = run
        self._transactions = Transactions(database)
        self._tally = Tally(run)

    async def aclose(self) -> None:
        await self._transactions.aclose()

    async def overview(self) -> Overview:
        """Return the statistics of the run. All jobs are counted the first time, and again every 30 seconds or more."""

        def work(cursor: Cursor) -> Overview:
            version = values_of(self._database, cursor, self._run).get("schema")
            if version != VERSION:
                fault = f"a ledger of version {version} and not {VERSION}"
                if version is None:
                    fault = "no jobs yet"
                raise LedgerError(f"the run has {fault}; `abp batch run` begins one")
            return self._tally.overview(self._database, cursor)

        return await self._query(work)

    async def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs. Jobs over 256 KB come without their parameters."""
        return await self._query(lambda cursor: list_jobs(cursor, self._run, query))

    async def job(self, key: str) -> Row | None:
        """Return the job with this key, or ``None`` if the run does not have it."""

        def work(cursor: Cursor) -> Row | None:
            cursor.execute(f"SELECT {COLUMNS} FROM abp_jobs WHERE run = ? AND key = ?", (self._run, key))
            rows = cursor.fetchall()
            return row_from(*rows[0]) if rows else None

        return await self._query(work)

    async def copies(self, key: str) -> list[tuple[int, str | None]]:
        """Return the places in the input and the ids of the first 20 copies of a job."""

        def work(cursor: Cursor) -> list[tuple[int, str | None]]:
            copies = "SELECT position, id FROM abp_copies WHERE run = ? AND key = ? ORDER BY position LIMIT ?"
            cursor.execute(copies, (self._run, key, LIMITS.copies))
            return [cast("tuple[int, str | None]", copy) for copy in cursor.fetchall()]

        return await self._query(work)

    async def _query(self, work: Callable[[Cursor], T]) -> T:
        try:
            return await self._transactions.run(work, write=False)
        except (ValueError, TypeError, AttributeError) as error:
            raise LedgerError(
                f"the ledger holds data that no run has written ({first_line(error)}); inspect the database"
            ) from error
