"""Records, databases and tables of a ledger: SQLite for the processes of one machine, PostgreSQL for many machines."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import urlsplit

from ..._internal.database import Connection, Cursor, PostgresConnection, SqliteConnection, Value, without_nul
from ...artifacts._files import open_file, try_lock
from ...errors import LedgerError
from ...protocol._strict_json import JSONValue, decode_json, encode_json
from .._jobs import Job, Outcome, State, job_document, parse_job

COLUMNS = "position, key, job, state, attempts, worker, started, finished, milliseconds, error_code, error, artifacts"
#: The same columns of a copy ``c`` and its job ``j``.
COPY_COLUMNS = ", ".join(f"{'c' if name in ('position', 'key', 'job') else 'j'}.{name}" for name in COLUMNS.split(", "))
#: Version of the schema. Ledgers of other versions are refused.
VERSION = "4"
#: Conditions with a literal instead of a parameter, so that both databases can match them with the partial indexes.
QUEUED = "state = 'queued'"
#: The same for jobs of all hosts: without a condition on the second column, SQLite would read all jobs of the run.
QUEUED_ANYWHERE = f"{QUEUED} AND host >= ''"
LEASED = "state = 'leased'"
#: Prefix of the names of a run's inputs.
INPUT = "input "
#: Index that the last statement of the schema creates: if it exists, all tables exist.
_LAST = "abp_jobs_ended"


@dataclass(frozen=True, slots=True)
class Added:
    """Counts of an input that was added. ``jobs`` are new in the ledger. ``copies`` counts lines with the same job as
    an earlier line of this input. ``replaced`` counts failed lines, replaced by lines of the same id. ``known`` is true
    if the whole input was in the ledger already."""

    lines: int
    jobs: int = 0
    copies: int = 0
    replaced: int = 0
    known: bool = False


@dataclass(frozen=True, slots=True)
class Leased:
    """Job that this worker may run until its lease ends. ``attempts`` includes this attempt."""

    key: str
    job: Job
    attempts: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of a leased job, or a retry in ``again_after`` seconds. A job that was not ``begun`` returns to the queue
    if its lease is still valid, and does not count as an attempt, since no part of it was sent."""

    key: str
    outcome: Outcome
    again_after: float | None = None
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of jobs in each state."""

    by_state: Mapping[State, int]

    def __getitem__(self, state: State) -> int:
        return self.by_state.get(state, 0)

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    @property
    def open(self) -> int:
        return self[State.QUEUED] + self[State.LEASED]

    @property
    def failed(self) -> int:
        """Jobs that have failed, or may have."""
        return self[State.FAILED] + self[State.UNKNOWN]

    def as_dict(self) -> dict[str, int]:
        return {**{state.value: self[state] for state in State}, "total": self.total}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the input with its job. ``position`` is the line's place in the input. Times are in seconds since 1970,
    ``None`` if not set yet. ``artifacts`` are references as JSON objects. A ``copy`` shares the job of an earlier line;
    its ``job`` has the id and the carried fields of its own line."""

    position: int
    key: str
    job: Job
    state: State
    attempts: int
    worker: str | None
    started: float | None
    finished: float | None
    milliseconds: float
    error_code: str | None
    error: str | None
    artifacts: tuple[Mapping[str, JSONValue], ...]
    copy: bool = False


def encoded(value: object) -> str:
    return encode_json(value).decode()


def decoded_object(text: Value) -> dict[str, JSONValue]:
    return cast("dict[str, JSONValue]", decode_json(str(text)))


def new_row(job: Job, line: int) -> tuple[Value, ...]:
    """Return the key, line, host, id, text, idempotence and state of a new queued job. Reads its files."""
    text = encoded(job_document(job))
    return job.key, line, host_of(job), without_nul(job.id), text, int(job.idempotent), State.QUEUED.value


def row_from(*cells: object, copy: bool = False) -> Row:
    """Return the row for the cells of :data:`COLUMNS`, or of :data:`COPY_COLUMNS` with ``copy``."""
    position, key, job, state, attempts, worker, started, finished, milliseconds, code, error, artifacts = cells
    return Row(
        position=cast(int, position),
        key=str(key),
        job=parse_job(decoded_object(str(job))),
        state=State(str(state)),
        attempts=cast(int, attempts),
        worker=cast("str | None", worker),
        started=cast("float | None", started),
        finished=cast("float | None", finished),
        milliseconds=cast(float, milliseconds),
        error_code=cast("str | None", code),
        error=cast("str | None", error),
        artifacts=tuple(cast("list[dict[str, JSONValue]]", decode_json(str(artifacts)))),
        copy=copy,
    )


def host_of(job: Job) -> str:
    """Return the unit of limits per host: the host and port of the target, or the target itself if it has none."""
    target = (job.target or "").replace("\0", "")
    host = ""
    # A target may be no URL at all.
    with contextlib.suppress(ValueError):
        host = urlsplit(target).netloc.rpartition("@")[2].lower()
    return host or target[:200] or "-"


class Database(Connection, Protocol):
    """A database for ledgers. The lock of a run is needed for leasing, where limits per host are counted and then used,
    and for cancelling."""

    #: True if it can detect that another worker has ended.
    sees_workers: bool
    #: True if a writing transaction blocks all other writers. Inputs are then read before the transaction begins.
    one_writer: bool

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return those of the ``workers`` that have ended, as far as this can be detected."""

    def begin_work(self, worker: str) -> None:
        """Register ``worker`` as live until this connection closes or its process ends."""


class SqliteDatabase(SqliteConnection):
    """SQLite database in a run's folder, with a lock file for each worker. With ``read_only`` the file must exist and
    is not changed. ``option`` is the option of the command line for the folder. Without a folder the database is
    private and in memory."""

    sees_workers = True
    one_writer = True

    def __init__(
        self, folder: Path | None, file: str = "ledger.sqlite", *, read_only: bool = False, option: str = "--out"
    ) -> None:
        path = folder / file if folder else None
        super().__init__(path, "the ledger", LedgerError, f"name another folder with {option}", read_only=read_only)
        #: Folder with a lock file for each worker.
        self._locks = folder / "workers" if folder else None
        self._own_lock: tuple[int, Path] | None = None

    def close(self) -> None:
        super().close()
        lock = self._own_lock
        self._own_lock = None
        if lock is not None:
            handle, path = lock
            # Close it first: an open file cannot be removed on Windows. It is closed even after an error.
            with contextlib.suppress(OSError):
                os.close(handle)
            _remove(path)

    def begin_work(self, worker: str) -> None:
        """Lock the file of this worker. The kernel releases the lock however the process ends."""
        if self._own_lock is not None or self._locks is None:
            return
        path = self._locks / worker
        try:
            self._locks.mkdir(exist_ok=True)
            # This removes the files of ended workers.
            self.lost_workers([file.name for file in self._locks.iterdir()])
            self._own_lock = _create_lock(path), path
        except OSError as error:
            raise self.mapped_error(error) from error

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return the workers whose lock is free, and remove their files."""
        return [worker for worker in workers if self._locks and _remove_if_ended(self._locks / worker)]


def _create_lock(path: Path) -> int:
    """Create and lock the file of a worker, and return its descriptor."""
    while True:
        handle = open_file(path, os.O_RDWR | os.O_CREAT)
        # Another worker may be testing the lock at this moment.
        while not try_lock(handle):
            time.sleep(0.01)

        # Another worker may have removed the file before it was locked. Then the lock is worthless: try again.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


def _remove_if_ended(lock: Path) -> bool:
    """Return whether a worker has ended, and remove its lock file then. If the file cannot be opened or locked, the
    worker counts as living."""
    try:
        handle = open_file(lock, os.O_RDWR)
        try:
            if not try_lock(handle):
                return False
        finally:
            os.close(handle)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    _remove(lock)
    return True


def _remove(lock: Path) -> None:
    """Remove a lock file. If that fails, as for an open file on Windows, the next check removes it."""
    with contextlib.suppress(OSError):
        lock.unlink(missing_ok=True)


class PostgresDatabase(PostgresConnection):
    """PostgreSQL database with the tables of all runs. Workers are only known by their leases."""

    sees_workers = False  # the worker of an unreachable machine may still be at work
    one_writer = False

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, "the ledger", LedgerError, read_only=read_only)

    def begin_work(self, worker: str) -> None:
        pass

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        return []


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
    # partial indexes: an ended job is in neither of them, so ending a job only removes it from one
    f"CREATE INDEX IF NOT EXISTS abp_jobs_queued ON abp_jobs (run, host, position) WHERE {QUEUED}",
    f"CREATE INDEX IF NOT EXISTS abp_jobs_held ON abp_jobs (run, host, position) WHERE {LEASED}",
    "CREATE INDEX IF NOT EXISTS abp_jobs_position ON abp_jobs (run, position)",
    # lines of the input with the job of an earlier line, and failed lines that were replaced by lines of the same id
    "CREATE TABLE IF NOT EXISTS abp_copies (run TEXT NOT NULL, position BIGINT NOT NULL, key TEXT NOT NULL, id TEXT, "
    "job TEXT NOT NULL, idempotent INTEGER NOT NULL, PRIMARY KEY (run, position))",
    "CREATE INDEX IF NOT EXISTS abp_copies_key ON abp_copies (run, key)",
    # only a prefix: an entry of PostgreSQL's indexes has at most 2.7 KB, while an id has any length
    "CREATE INDEX IF NOT EXISTS abp_copies_id ON abp_copies (run, substr(id, 1, 100))",
    "CREATE TABLE IF NOT EXISTS abp_replaced (run TEXT NOT NULL, position BIGINT NOT NULL, job TEXT NOT NULL, "
    "error_code TEXT, error TEXT, artifacts TEXT NOT NULL, PRIMARY KEY (run, position))",
    # leases of a worker, and leases by expiry, at a cost independent of other workers' leases
    f"CREATE INDEX IF NOT EXISTS abp_jobs_worker ON abp_jobs (run, worker) WHERE {LEASED}",
    f"CREATE INDEX IF NOT EXISTS abp_jobs_ends ON abp_jobs (run, lease_until) WHERE {LEASED}",
    # partial index of ended jobs: each job is added once, at the end of the index
    f"CREATE INDEX IF NOT EXISTS {_LAST} ON abp_jobs (run, state, finished, position) WHERE finished IS NOT NULL",
)


def make_tables(database: Database, cursor: Cursor) -> None:
    # The lock keeps two workers from creating the tables at the same time.
    database.lock(cursor, "schema")
    cursor.execute(database.find_relation, (_LAST,))
    exists = bool(cursor.fetchall())
    # Even if an index exists, CREATE INDEX IF NOT EXISTS would wait for all writers.
    if not exists:
        for statement in _SCHEMA:
            cursor.execute(statement)


def values_of(database: Database, cursor: Cursor, run: str) -> dict[str, str]:
    """Return the facts about a run by their names: the version of the schema, its inputs, and whether it is cancelled.
    They are empty if the database has no tables yet."""
    cursor.execute(database.find_relation, (_LAST,))
    if not cursor.fetchall():
        return {}
    cursor.execute("SELECT name, value FROM abp_runs WHERE run = ?", (run,))
    return {str(name): str(value) for name, value in cursor.fetchall()}


def number_from(cursor: Cursor, sql: str, *values: Value) -> float:
    cursor.execute(sql, values)
    return cast(float, cursor.fetchall()[0][0] or 0)


def put_value(cursor: Cursor, run: str, name: str, value: str) -> None:
    cursor.execute(
        "INSERT INTO abp_runs (run, name, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (run, name, value)
    )
