"""A connection to PostgreSQL, with psycopg 3 (extra ``postgres``)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlencode

from ..errors import ABPError, UsageError, first_line
from .transactions import Cursor, Value

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresConnection", "without_password"]

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


class PostgresConnection:
    """One connection to the server at ``url``, for what messages call ``name``; ``error`` is the type that it raises.

    Raises :class:`~transports.errors.UsageError` without psycopg."""

    now = "(extract(epoch FROM clock_timestamp())::float8)"
    text = 'TEXT COLLATE "C"'
    skip_locked = "FOR UPDATE SKIP LOCKED"
    find_relation = "SELECT 1 WHERE to_regclass(?) IS NOT NULL"

    def __init__(self, url: str, name: str, error: type[ABPError]) -> None:
        self.name = name
        self.error = error
        self._shown = without_password(url)
        self._url = url
        self._secrets = _secrets(url)
        try:
            import psycopg
        except ImportError as missing:
            raise UsageError(
                f"{name} in PostgreSQL needs psycopg ({missing}); install it: pip install 'abp-transports[postgres]'"
            ) from missing
        self._psycopg = psycopg
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
                    application_name=f"abp ({self.name})",
                ),
            )
        except self._psycopg.OperationalError as error:
            refused = isinstance(
                error, self._psycopg.errors.InvalidPassword | self._psycopg.errors.InvalidAuthorizationSpecification
            )
            raise self._failed(error, retryable=not refused) from None
        except self._psycopg.Error as error:
            raise self._failed(error) from None  # a traceback would quote what the message does not

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
            raise self.error(f"{self.name} is closed; open it again")
        try:
            with db.transaction(), db.cursor() as cursor:
                return work(_Percent(cursor))
        except self._psycopg.Error as error:
            again = isinstance(error, self._psycopg.errors.DeadlockDetected | self._psycopg.errors.SerializationFailure)
            raise self._failed(error, retryable=again or db.broken or db.closed) from error

    def lock(self, cursor: Cursor, name: str) -> None:
        """Take an advisory lock."""
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"abp {name}",))

    def _failed(self, error: Exception, *, retryable: bool = False) -> ABPError:
        told = type(error).__name__ if self._secrets is None else first_line(error)
        for secret in self._secrets or ():
            told = told.replace(secret, "…")
        return self.error(
            f"{self.name} {self._shown} cannot be used: {told}; check the server and the address", retryable=retryable
        )


def without_password(url: str) -> str:
    """Return an address that leads to the same database where the password comes from ``PGPASSWORD`` or a password
    file."""
    scheme, mark, rest = url.partition("://")
    userinfo, at, rest = rest.rpartition("@")
    rest, question, query = rest.partition("?")
    given = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if "pass" not in name]
    return f"{scheme}{mark}{userinfo.partition(':')[0]}{at}{rest}{question * bool(given)}{urlencode(given, safe='/')}"


def _secrets(url: str) -> set[str] | None:
    """Return what no message may quote of a URL; ``None`` where that cannot be told, as with a ``/`` in a password:
    libpq quotes what it then takes for the port."""
    userinfo, _, rest = url.partition("://")[2].rpartition("@")
    if any(mark in userinfo for mark in "/?#"):
        return None
    given = [value for name, value in parse_qsl(rest.partition("?")[2]) if "pass" in name]
    return {secret for one in (userinfo.partition(":")[2], *given) if one for secret in (one, unquote(one))}
