"""The tables of a ledger, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

from ...database import Cursor
from .database import Database

__all__ = ["INPUT", "LEASED", "VERSION", "make_tables", "put_value", "values_of"]

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
