"""The tables of a ledger, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

__all__ = ["SCHEMA", "VERSION"]

#: A ledger of another version is refused.
VERSION = "1"

SCHEMA = (
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
    "CREATE INDEX IF NOT EXISTS abp_jobs_position ON abp_jobs (run, position)",
)
