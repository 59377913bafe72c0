"""The tables of a ledger, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

from ...database import Cursor
from .database import Database

__all__ = ["INPUT", "VERSION", "make_tables", "put_value", "values_of"]

#: A ledger of another version is refused.
VERSION = "1"
#: What the names of a run's inputs begin with.
INPUT = "input "

#: What is made last, and is there if all is.
_LAST = "abp_jobs_position"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS abp_runs (run TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, "
    "PRIMARY KEY (run, name))",
    """CREATE TABLE IF NOT EXISTS abp_jobs (
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    position BIGINT NOT NULL,
    host TEXT NOT NULL,
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
    f"CREATE INDEX IF NOT EXISTS {_LAST} ON abp_jobs (run, position)",
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
