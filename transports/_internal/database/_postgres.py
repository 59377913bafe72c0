"""Connection to PostgreSQL with psycopg 3 (extra ``postgres``), and addresses of PostgreSQL without passwords."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar, cast
from urllib.parse import unquote, unquote_plus

from ...errors import ABPError, UsageError, first_line
from ._transactions import Cursor, Value

if TYPE_CHECKING:
    import psycopg

_HOST = r"(?:\[[^\]@/?]*\]|[^:/,@?\[\]]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^@?]*)?")
#: A parameter; only the named parameters may have an @ in their values.
_PARAMETER = re.compile(
    r"[A-Za-z_]+=[^@]*|(?:application_name|dbname|fallback_application_name|host|options|passfile|password|run|service|"
    r"sslpassword|user)=.*"
)
T = TypeVar("T")
#: Milliseconds that one statement may take.
_STATEMENT_TIMEOUT = 120_000


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """Parts of a PostgreSQL address.

    ``head`` is the address before the parameters, with the password; ``shown`` is the same without the password. If a
    password contains ``/``, ``?`` or ``@`` unquoted, its end is ambiguous: this takes the shortest password that a
    valid place and parameters follow. ``certain`` is true if libpq reads the address in the same way."""

    head: str
    shown: str
    parameters: tuple[str, ...]
    password: str
    certain: bool

    @classmethod
    def read(cls, url: str) -> Self:
        """Parse ``url``. Never raises."""
        scheme, mark, rest = url.partition("://")
        # The place begins after one of the @, or at once if there is no user.
        starts = [0, *(at_sign.end() for at_sign in re.finditer("@", rest))]
        start = next((start for start in starts if _is_place(rest[start:])), starts[-1])
        userinfo = rest[: max(start - 1, 0)]
        place, question_mark, query = rest[start:].partition("?")

        # libpq looks for the user only here.
        libpq_userinfo = re.match("[^@/]*@", rest)
        libpq_start = libpq_userinfo.end() if libpq_userinfo else 0
        is_certain = start == libpq_start and not re.search("[/?#]", userinfo)

        head = url.removesuffix(question_mark + query)
        may_be_in_parameter = re.search("[?&][^=&]*pass", userinfo, re.IGNORECASE)
        if may_be_in_parameter:
            # The @ may be in the value of a password parameter.
            place, query, head = "…", "", url

        shown_user = re.split("[:/?#@]", userinfo)[0]
        if start:
            shown_user += "@"
        return cls(
            head=head,
            shown=f"{scheme}{mark}{shown_user}{place}",
            parameters=tuple(query.split("&")) if query else (),
            password=userinfo.partition(":")[2],
            certain=is_certain,
        )

    def take(self, name: str) -> tuple[str, str | None]:
        """Return the address without the parameter ``name``, and its last value."""
        value: str | None = None
        others: list[str] = []
        for parameter in self.parameters:
            key, _, text = parameter.partition("=")
            if key == name:
                value = unquote_plus(text)
            else:
                others.append(parameter)
        return _with_parameters(self.head, others), value

    @property
    def without_password(self) -> str:
        """The address without secrets; it works with a password from ``PGPASSWORD`` or a password file."""
        valid = [parameter for parameter in self.parameters if _PARAMETER.fullmatch(parameter)]
        return _with_parameters(self.shown, [parameter for parameter in valid if not _is_secret(parameter)])

    @property
    def secrets(self) -> set[str] | None:
        """Texts that no message may quote; ``None`` if they cannot be determined.

        In an ambiguous address libpq may take a part of the password for the port or a parameter, and quote it."""
        if not self.certain or not all(map(_PARAMETER.fullmatch, self.parameters)):
            return None
        secrets = {self.password}
        secrets.update(parameter.partition("=")[2] for parameter in self.parameters if _is_secret(parameter))
        secrets.discard("")
        return secrets | set(map(unquote, secrets))


def without_password(url: str) -> str:
    """Return an address without secrets: :attr:`PostgresUrl.without_password`."""
    return PostgresUrl.read(url).without_password


def _is_place(text: str) -> bool:
    """Return whether a text can be the hosts, the database and the parameters of an address."""
    place, _, query = text.partition("?")
    has_valid_parameters = not query or all(map(_PARAMETER.fullmatch, query.split("&")))
    return has_valid_parameters and _PLACE.fullmatch(place) is not None


def _is_secret(parameter: str) -> bool:
    return "pass" in unquote(parameter.partition("=")[0]).lower()


def _with_parameters(head: str, parameters: list[str]) -> str:
    if not parameters:
        return head
    return f"{head}?{'&'.join(parameters)}"


class _QuestionMarkCursor:
    """Cursor whose parameters are written ``?``."""

    def __init__(self, cursor: psycopg.Cursor[tuple[Value, ...]]) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, sql: str, values: Sequence[Value] = ()) -> object:
        return self._cursor.execute(_with_percent_marks(sql), values)

    def executemany(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        self._cursor.executemany(_with_percent_marks(sql), rows)

    def fetchall(self) -> Sequence[tuple[Value, ...]]:
        return self._cursor.fetchall()


def _with_percent_marks(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()


class PostgresConnection:
    """Connection to the server at ``url``. A ``read_only`` connection writes nothing.

    Messages call it ``name``, such as "the ledger"; ``error`` is the type of its errors. Raises
    :class:`~transports.errors.UsageError` without psycopg."""

    now = "(extract(epoch FROM clock_timestamp())::float8)"
    text = 'TEXT COLLATE "C"'
    skip_locked = "FOR UPDATE SKIP LOCKED"
    find_relation = "SELECT 1 WHERE to_regclass(?) IS NOT NULL"

    def __init__(self, url: str, name: str, error: type[ABPError], *, read_only: bool = False) -> None:
        self.name = name
        self.error = error
        self._url = url
        self._read_only = "on" if read_only else "off"
        address = PostgresUrl.read(url)
        self._shown, self._secrets = address.without_password, address.secrets
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

        errors = self._psycopg.errors
        try:
            connection = self._psycopg.connect(
                self._url,
                autocommit=True,
                # Seconds.
                connect_timeout=10,
                # Milliseconds without an acknowledgement of the server.
                tcp_user_timeout=20_000,
                # Waiting for an answer of a dead server ends after 20 seconds, too.
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=2,
                options=self._server_options(),
                application_name=f"abp ({self.name})",
            )
        except self._psycopg.OperationalError as error:
            is_refused = isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification)
            # Without a cause: its traceback could quote secrets, which the message leaves out.
            raise self.mapped_error(error, retryable=not is_refused) from None
        except self._psycopg.Error as error:
            raise self.mapped_error(error) from None
        self._db = cast("psycopg.Connection[tuple[Value, ...]]", connection)

    def _server_options(self) -> str:
        """Return the options of the server. Those of the user may change the first one, but not the others, which come
        last."""
        user_options = self._psycopg.conninfo.conninfo_to_dict(self._url).get("options")
        if not user_options:
            user_options = os.environ.get("PGOPTIONS", "")
        return (
            f"-c statement_timeout={_STATEMENT_TIMEOUT} {user_options} -c synchronous_commit=on "
            f"-c default_transaction_read_only={self._read_only}"
        )

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(self._psycopg.Error):
                db.close()

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in one transaction. ``write`` has no effect: in PostgreSQL, readers never wait for writers."""
        db = self._db
        if db is None:
            raise self.error(f"{self.name} is closed; open it again")
        try:
            with db.transaction(), db.cursor() as cursor:
                return work(_QuestionMarkCursor(cursor))
        except self._psycopg.Error as error:
            errors = self._psycopg.errors
            in_conflict = isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)
            raise self.mapped_error(error, retryable=in_conflict or db.broken or db.closed) from error

    def lock(self, cursor: Cursor, name: str) -> None:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"abp {name}",))

    def mapped_error(self, error: Exception, *, retryable: bool = False) -> ABPError:
        """Return the error of this connection for an error of psycopg, without secrets."""
        if self._secrets is None:
            reason = type(error).__name__
        else:
            reason = first_line(error)
            for secret in self._secrets:
                reason = reason.replace(secret, "…")
        return self.error(
            f"{self.name} {self._shown} cannot be used: {reason}; check the server and the address", retryable=retryable
        )
