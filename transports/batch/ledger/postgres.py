"""A ledger in PostgreSQL, for workers on many machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from ...errors import LedgerError, UsageError, first_line
from ...protocol.urls import redact_url
from .database import Cursor, Value

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresDatabase"]

T = TypeVar("T")

#: Seconds for opening a connection; milliseconds for one statement and for a server that does not answer.
_CONNECT_TIMEOUT = 10
_STATEMENT_TIMEOUT = 120_000
_SILENCE = 20_000


class _Percent:
    """A cursor whose parameters are written ``?``."""

    def __init__(self, cursor: psycopg.Cursor[tuple[Value, ...]]) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, sql: str, values: Sequence[Value] = ()) -> object:
        return self._cursor.execute(_percent(sql), values)

    def executemany(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        self._cursor.executemany(_percent(sql), rows)

    def fetchall(self) -> Sequence[tuple[Value, ...]]:
        return self._cursor.fetchall()


def _percent(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()


class PostgresDatabase:
    """One connection to a PostgreSQL server. Raises :class:`~transports.errors.UsageError` without psycopg."""

    now = "(extract(epoch FROM clock_timestamp())::float8)"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    sees_workers = False  # a machine that cannot be reached may still be at work
    find_tables = "SELECT 1 WHERE to_regclass('abp_jobs_position') IS NOT NULL"

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise UsageError(
                f"a ledger in PostgreSQL needs psycopg ({error}); install it: pip install 'abp-transports[postgres]'"
            ) from error
        self._psycopg = psycopg
        self._url = url
        self._db: psycopg.Connection[tuple[Value, ...]] | None = None

    def connect(self) -> None:
        """Open the connection, unless it is open."""
        if self._db is not None and not self._db.broken and not self._db.closed:
            return
        self.close()
        try:
            self._db = cast(
                "psycopg.Connection[tuple[Value, ...]]",
                self._psycopg.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=_CONNECT_TIMEOUT,
                    tcp_user_timeout=_SILENCE,
                    keepalives_idle=10,  # a connection that only waits for an answer is given up as soon
                    keepalives_interval=5,
                    keepalives_count=2,
                    options=f"-c statement_timeout={_STATEMENT_TIMEOUT} -c synchronous_commit=on",
                    application_name="abp batch",
                ),
            )
        except self._psycopg.OperationalError as error:
            refused = isinstance(
                error, self._psycopg.errors.InvalidPassword | self._psycopg.errors.InvalidAuthorizationSpecification
            )
            raise self._failed(error, retryable=not refused) from error
        except self._psycopg.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the connection."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(self._psycopg.Error):
                db.close()

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in one transaction. Here reading waits for nobody anyway."""
        db = self._db
        if db is None:
            raise LedgerError("the ledger is closed; open it again")
        try:
            with db.transaction(), db.cursor() as cursor:
                return work(_Percent(cursor))
        except self._psycopg.Error as error:
            again = isinstance(error, self._psycopg.errors.DeadlockDetected | self._psycopg.errors.SerializationFailure)
            raise self._failed(error, retryable=again or db.broken or db.closed) from error

    def lock(self, cursor: Cursor, name: str) -> None:
        """Take an advisory lock."""
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"abp {name}",))

    def begin_work(self, worker: str) -> None:
        """Do nothing: a worker is known by its lease alone."""

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return none."""
        return []

    def _failed(self, error: Exception, *, retryable: bool = False) -> LedgerError:
        return LedgerError(
            f"the ledger {redact_url(self._url)} cannot be used: {first_line(error)}; check the server and the address",
            retryable=retryable,
        )
