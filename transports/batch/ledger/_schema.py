"""The tables of a ledger, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast
from urllib.parse import urlsplit

from ...database import Connection, Cursor, Value, without_nul
from ...protocol import JSONValue, decode_json, encode_json
from .._jobs import Job, State, job_document, parse_job
from ._entries import Row


def encoded(value: object) -> str:
    """Return a JSON value as text."""
    return encode_json(value).decode()


def decoded_object(text: Value) -> dict[str, JSONValue]:
    """Return the JSON object of a cell."""
    return cast("dict[str, JSONValue]", decode_json(str(text)))


def decoded_list(text: Value) -> list[dict[str, JSONValue]]:
    """Return the JSON objects of a cell."""
    return cast("list[dict[str, JSONValue]]", decode_json(str(text)))


#: What a row is read from.
COLUMNS = "position, key, job, state, attempts, worker, started, finished, milliseconds, error_code, error, artifacts"
#: The same of a copy ``c`` and its job ``j``.
COPY_COLUMNS = ", ".join(f"{'c' if name in ('position', 'key', 'job') else 'j'}.{name}" for name in COLUMNS.split(", "))


def new_row(job: Job, line: int) -> tuple[Value, ...]:
    """Return the key, line, host, id, text, idempotence and state of a job that is added, queued. Reads its files."""
    text = encoded(job_document(job))
    return job.key, line, host_of(job), without_nul(job.id), text, int(job.idempotent), State.QUEUED.value


def row_from(*cells: object, copy: bool = False) -> Row:
    """Return the row that the cells of :data:`COLUMNS` make, with those of a ``copy`` in their places."""
    position, key, job, state, attempts, worker, started, finished, milliseconds, code, error, artifacts = cells
    return Row(
        cast(int, position),
        str(key),
        parse_job(decoded_object(str(job))),
        State(str(state)),
        cast(int, attempts),
        cast("str | None", worker),
        cast("float | None", started),
        cast("float | None", finished),
        cast(float, milliseconds),
        cast("str | None", code),
        cast("str | None", error),
        tuple(decoded_list(str(artifacts))),
        copy,
    )


def host_of(job: Job) -> str:
    """Return what limits per host count: the host and the port of the target, else the target itself."""
    target = (job.target or "").replace("\0", "")
    try:
        return urlsplit(target).netloc.rpartition("@")[2].lower() or target[:200] or "-"
    except ValueError:
        return target[:200] or "-"


class Database(Connection, Protocol):
    """A connection that knows which workers are at work. The lock of a run is for leasing,
    where limits per host are counted and then used, and for cancelling."""

    #: Whether it can tell that another worker has ended.
    sees_workers: bool
    #: Whether a transaction that writes keeps all others from writing: an input is read before it begins.
    one_writer: bool

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return those of ``workers`` that are certain to have ended."""

    def begin_work(self, worker: str) -> None:
        """Note that ``worker`` is at work until this connection closes or its process ends."""


#: A ledger of another version is refused.
VERSION = "4"
#: A condition that is written out, so that both databases know which index has these rows.
LEASED = "state = 'leased'"
#: What the names of a run's inputs begin with.
INPUT = "input "

#: What is made last, and is there if all is.
_LAST = "abp_jobs_ended"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS abp_runs (run TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, "
    "PRIMARY KEY (run, name))",
    """CREATE TABLE IF NOT EXISTS abp_jobs (
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    position BIGINT NOT NULL,
    host TEXT NOT NULL,
    id TEXT,
    job TEXT NOT NULL,
    idempotent INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    lease TEXT,
    lease_until DOUBLE PRECISION,
    not_before DOUBLE PRECISION NOT NULL DEFAULT 0,
    started DOUBLE PRECISION,
    finished DOUBLE PRECISION,
    milliseconds DOUBLE PRECISION NOT NULL DEFAULT 0,
    error_code TEXT,
    error TEXT,
    artifacts TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (run, key)
)""",
    "CREATE INDEX IF NOT EXISTS abp_jobs_queue ON abp_jobs (run, state, host, position)",
    "CREATE INDEX IF NOT EXISTS abp_jobs_position ON abp_jobs (run, position)",
    # lines of the input whose job an earlier line brought; and lines of failed jobs whose place others of the id took
    "CREATE TABLE IF NOT EXISTS abp_copies (run TEXT NOT NULL, position BIGINT NOT NULL, key TEXT NOT NULL, id TEXT, "
    "job TEXT NOT NULL, idempotent INTEGER NOT NULL, PRIMARY KEY (run, position))",
    "CREATE INDEX IF NOT EXISTS abp_copies_key ON abp_copies (run, key)",
    # the beginning alone: an entry of PostgreSQL's indexes has 2.7 KB at most, an id as much as somebody wrote
    "CREATE INDEX IF NOT EXISTS abp_copies_id ON abp_copies (run, substr(id, 1, 100))",
    "CREATE TABLE IF NOT EXISTS abp_replaced (run TEXT NOT NULL, position BIGINT NOT NULL, job TEXT NOT NULL, "
    "error_code TEXT, error TEXT, artifacts TEXT NOT NULL, PRIMARY KEY (run, position))",
    # what a worker holds, and what ends next: however much others hold
    f"CREATE INDEX IF NOT EXISTS abp_jobs_worker ON abp_jobs (run, worker) WHERE {LEASED}",
    f"CREATE INDEX IF NOT EXISTS abp_jobs_ends ON abp_jobs (run, lease_until) WHERE {LEASED}",
    # of jobs that have ended alone: it grows at its end, with each of them once
    f"CREATE INDEX IF NOT EXISTS {_LAST} ON abp_jobs (run, state, finished, position) WHERE finished IS NOT NULL",
)


def make_tables(database: Database, cursor: Cursor) -> None:
    """Make the tables, unless they are there."""
    database.lock(cursor, "schema")  # two that begin at once must not both make them
    cursor.execute(database.find_relation, (_LAST,))
    if not cursor.fetchall():  # an index that is there is asked for under a lock that waits for all writers
        for statement in _SCHEMA:
            cursor.execute(statement)


def values_of(database: Database, cursor: Cursor, run: str) -> dict[str, str]:
    """Return the values that belong to a run by their names; none without the tables."""
    cursor.execute(database.find_relation, (_LAST,))
    if not cursor.fetchall():
        return {}
    cursor.execute("SELECT name, value FROM abp_runs WHERE run = ?", (run,))
    return {str(name): str(value) for name, value in cursor.fetchall()}


def put_value(cursor: Cursor, run: str, name: str, value: str) -> None:
    """Give a run a value, unless it has one of that name."""
    cursor.execute(
        "INSERT INTO abp_runs (run, name, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (run, name, value)
    )
