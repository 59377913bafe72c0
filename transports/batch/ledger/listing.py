"""Pages of the jobs of a run, for people: by state, newest first, each found by an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from ...database import Cursor, Value, without_nul
from ...errors import ABPError, UsageError
from ...protocol.strict_json import decode_json, encode_json
from ..jobs import State
from .columns import COLUMNS, row_from
from .entries import Row

__all__ = ["JobPage", "JobQuery", "list_copies", "list_jobs"]

#: Where a job stands in a list: the time of its end, or its host; then its place in the input.
_Position: TypeAlias = "tuple[float | str, int]"
#: Jobs that are looked through for one page.
_WINDOW = 2000
#: Jobs that are found by the id of a copy, and copies of a job that are listed.
_MAX_FOUND, _MAX_COPIES = 100, 20
#: What a database takes for a place in the input.
_POSITIONS = range(-(2**63), 2**63)
#: Characters of a job and of its files' references that a page reads; of a longer one it has neither.
_MAX_JOB, _MAX_FILES = 256 << 10, 64 << 10
_SHORT_COLUMNS = COLUMNS.replace(
    "job,", f'CASE WHEN length(job) <= {_MAX_JOB} THEN job ELSE \'{{"capability":"(large)"}}\' END,'
).replace("artifacts", f"CASE WHEN length(artifacts) <= {_MAX_FILES} THEN artifacts ELSE '[]' END")


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs: of these ``states``, all final or one that is not, with this ``code`` of an error, with this ``text``
    in them or as the whole id of a copy. ``after`` is the ``next`` of the page before."""

    states: Sequence[State]
    code: str | None = None
    text: str | None = None
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs in the order of their end, the latest first; those that have not ended by host and place in the input.

    ``copies`` are the keys of those that were found by the id of a copy. ``next`` is ``None`` on the last page. A page
    may have few jobs, or none, and a next one: 2,000 are looked through.
    """

    rows: tuple[Row, ...]
    next: str | None
    copies: frozenset[str] = frozenset()


def list_jobs(cursor: Cursor, run: str, query: JobQuery) -> JobPage:
    """Return one page. Raises :class:`~transports.errors.UsageError` for an ``after`` that is none."""
    ended = query.states[0].is_final
    place = "finished" if ended else "host"
    order = f"ORDER BY {place} DESC, position DESC" if ended else f"ORDER BY {place}, position"
    beyond, within = ("<", ">=") if ended else (">", "<=")
    where, values = f"run = ? AND state = ? AND {place} IS NOT NULL", _position(query.after, ended=ended)
    if values:
        where += f" AND ({place}, position) {beyond} (?, ?)"
    copies = _keys_of_copies(cursor, run, query.text)
    condition, wanted = _condition(query, copies)
    end: _Position | None = None
    if condition:
        for state in query.states:
            cursor.execute(
                f"SELECT {place}, position FROM abp_jobs WHERE {where} {order} LIMIT 1 OFFSET {_WINDOW - 1}",
                (run, state.value, *values),
            )
            ends = [cast(_Position, found) for found in cursor.fetchall()]
            end = (max if ended else min)([*ends, *([end] if end else [])], default=None)
        if end is not None:
            where, values = f"{where} AND ({place}, position) {within} (?, ?)", (*values, *end)
    rows: list[tuple[Value, ...]] = []
    for state in query.states:
        cursor.execute(
            f"SELECT {place}, {_SHORT_COLUMNS} FROM abp_jobs WHERE {where} {condition} {order} LIMIT ?",
            (run, state.value, *values, *wanted, query.limit + 1),
        )
        rows += cursor.fetchall()
    rows.sort(key=lambda row: cast(_Position, row[:2]), reverse=ended)
    last = rows[query.limit - 1][:2] if len(rows) > query.limit else end
    page = tuple(row_from(*row[1:]) for row in rows[: query.limit])
    return JobPage(page, None if last is None else encode_json(last).decode(), frozenset(copies))


def list_copies(cursor: Cursor, run: str, key: str) -> list[tuple[int, str | None]]:
    """Return the places in the input and the ids of the first 20 lines that share the job of an earlier one."""
    cursor.execute(
        f"SELECT position, id FROM abp_copies WHERE run = ? AND key = ? ORDER BY position LIMIT {_MAX_COPIES}",
        (run, key),
    )
    return [cast("tuple[int, str | None]", found) for found in cursor.fetchall()]


def _keys_of_copies(cursor: Cursor, run: str, text: str | None) -> list[str]:
    if not text:
        return []
    cursor.execute(
        "SELECT DISTINCT key FROM abp_copies WHERE run = ? AND substr(id, 1, 100) = substr(?, 1, 100) AND id = ? "
        f"LIMIT {_MAX_FOUND}",
        (run, without_nul(text), without_nul(text)),
    )
    return [str(key) for (key,) in cursor.fetchall()]


def _condition(query: JobQuery, copies: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The part of a statement that looks into the jobs, and its values."""
    condition = ""
    values: tuple[str, ...] = ()
    if query.code is not None:
        condition, values = "AND coalesce(error_code, '') = ?", (query.code,)
    if query.text:
        text = encode_json(query.text.lower()).decode()[1:-1]  # as the JSON of the job has it
        for character in "!%_":
            text = text.replace(character, f"!{character}")
        is_copied = f" OR key IN ({', '.join('?' * len(copies))})" if copies else ""
        condition += f" AND (lower(job || ' ' || coalesce(error, '') || ' ' || key) LIKE ? ESCAPE '!'{is_copied})"
        values += (f"%{text}%", *copies)
    return condition, values


def _position(after: str | None, *, ended: bool) -> tuple[Value, ...]:
    if not after:
        return ()
    try:
        match decode_json(after):
            case [float() | int() as place, int(position)] if ended and position in _POSITIONS:
                return float(place), position
            case [str(place), int(position)] if not ended and position in _POSITIONS:
                return place, position
    except (ABPError, OverflowError):
        pass
    raise UsageError("after is the `next` of another page; begin without one")
