"""Database access (SQLite, PostgreSQL): one connection, and transactions on it (PEP 249) in a thread of its own.

:class:`Connection` hides the differences of SQL. Every SQLite file is opened by :func:`open_sqlite`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, TypeVar, cast
from urllib.parse import unquote, unquote_plus

from ..errors import ABPError, UsageError, first_line
from .files import open_regular
from .tasks import backoff_delay, wait_despite_cancel

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")
Value: TypeAlias = str | int | float | None


class Cursor(Protocol):
    """Part of a PEP 249 cursor that the kit uses. Parameters are written ``?``, for PostgreSQL too."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, sql: str, values: Sequence[Value] = ..., /) -> object: ...

    def executemany(self, sql: str, rows: Sequence[Sequence[Value]], /) -> object: ...

    def fetchall(self) -> Sequence[tuple[Value, ...]]: ...


class Connection(Protocol):
    """A connection, with the SQL that differs between databases. All methods block, in one thread. They raise errors of
    one type, :attr:`error`, which are ``retryable`` if waiting may help."""

    #: SQL expression of the database's clock, in seconds since 1970.
    now_sql: str
    #: SQL type of a text that is compared and sorted by its bytes.
    sorted_text_type: str
    #: SQL clause after a SELECT whose rows this transaction will change.
    skip_locked: str
    #: Query that returns a row if a table or an index with the name in its parameter exists.
    find_relation: str

    @property
    def name(self) -> str:
        """Name of the connection's purpose in messages, such as ``the ledger``."""

    @property
    def error(self) -> type[ABPError]: ...

    def connect(self) -> None:
        """Open the connection, unless it is open."""

    def close(self) -> None:
        """Close the connection. Never raises."""

    def cut(self) -> None:
        """Break the connection, from any thread: what waits for the server fails. Never raises."""

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in a transaction. All its changes are on the disk when this returns; if ``work`` raises, nothing
        is changed. A transaction that does not ``write`` never waits for another."""

    def lock(self, cursor: Cursor, name: str) -> None:
        """Acquire the lock ``name``, and hold it until the transaction ends."""


#: Seconds after which a transaction is cut off. PostgreSQL itself ends each statement after two minutes.
_MAX_SECONDS = 180.0
#: The same for a transaction that reads an input of any length: a day.
_MAX_SECONDS_OF_INPUT = 86400.0


class Transactions:
    """Runs the transactions of one database in a thread. After a lost connection, a transaction is tried again for
    ``patience`` seconds, but not if the server was never reached."""

    def __init__(self, database: Connection, patience: float = 30.0) -> None:
        self._database = database
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="abp-database")
        self._closed = False
        self._reached = False
        #: Event of the work that the thread is doing now; it is set once that work is given up.
        self._running: threading.Event | None = None

    async def run(
        self, work: Callable[[Cursor], T], on_cancel: Callable[[], object] | None = None, *, write: bool = True
    ) -> T:
        """Run ``work`` in a transaction, and return its result. It may run more than once, each time in a new
        transaction; after a lost connection it is unknown whether the last transaction was committed. Work with an
        ``on_cancel`` may take as long as its input does. If the caller is cancelled, ``on_cancel()`` is called and the
        work has five seconds to end. Then its connection is cut, since a connected server may never answer."""
        if self._closed:
            raise self._database.error(f"{self._database.name} is closed; open it again")
        loop = asyncio.get_running_loop()
        given_up = threading.Event()
        future = loop.run_in_executor(self._thread, self._run_with_retries, work, write, given_up)
        max_seconds = _MAX_SECONDS if on_cancel is None else _MAX_SECONDS_OF_INPUT
        cutting = loop.call_later(max_seconds, self._cut, given_up)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            given_up.set()
            if on_cancel is not None:
                on_cancel()
            cutting.cancel()
            cutting = loop.call_later(5.0, self._cut, given_up)
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await wait_despite_cancel(future)
            raise
        finally:
            cutting.cancel()

    def _cut(self, given_up: threading.Event) -> None:
        # Work that waits for the thread must not break the transaction of other work.
        if self._running is given_up:
            self._database.cut()

    def _run_with_retries(self, work: Callable[[Cursor], T], write: bool, given_up: threading.Event) -> T:
        self._running = given_up
        deadline = time.monotonic() + self._patience
        attempt = 0
        while True:
            try:
                self._database.connect()
                self._reached = True
                return self._database.transaction(work, write=write)
            except ABPError as error:
                if not isinstance(error, self._database.error):
                    raise
                attempt += 1
                delay = backoff_delay(attempt, max_delay=2.0)
                may_be_retried = error.retryable and self._reached and not self._closed
                if not may_be_retried or time.monotonic() + delay > deadline or given_up.wait(delay):
                    raise

    async def aclose(self) -> None:
        """Wait for the running transaction. Idempotent."""
        if not self._closed:
            self._closed = True
            closing = asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
            self._thread.shutdown(wait=False)
            await wait_despite_cancel(closing)


def without_nul(text: str | None) -> str | None:
    """Return a text without the characters that PostgreSQL refuses: NUL, and halves of surrogate pairs."""
    if text is None:
        return None
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


#: Seconds that a process waits for the transaction of another process.
_WAIT = 30.0


class SqliteConnection:
    """Connection to a database file, or without a path to a private database in memory. A ``read_only`` file must exist
    and is not changed; its folder may be read-only, too. Messages call the connection ``name``, such as "the ledger".
    ``advice`` is the end of the message for a file that cannot be used."""

    now_sql = "((julianday('now') - 2440587.5) * 86400.0)"
    sorted_text_type = "TEXT"
    skip_locked = ""
    find_relation = "SELECT 1 FROM sqlite_master WHERE name = ?"

    def __init__(
        self, path: Path | None, name: str, error: type[ABPError], advice: str, *, read_only: bool = False
    ) -> None:
        self.name = name
        self.error = error
        self._path = path
        self._advice = advice
        self._read_only = read_only
        self._db: sqlite3.Connection | None = None
        self._opened_file: tuple[int, ...] | None = None
        #: True if the open database does not show later writes of other processes.
        self._frozen = False
        #: Folder of the copy, if a copy is open.
        self._copy: tempfile.TemporaryDirectory[str] | None = None

    def connect(self) -> None:
        """Open the file. If it was deleted or replaced since it was opened, open it again: writes to the old file would
        be lost."""
        if self._db is not None:
            if self._opened_file == self._file_identity():
                return
            self.close()

        self._frozen = False
        try:
            self._db = db = self._open()
            if not self._read_only:
                db.execute("PRAGMA journal_mode=WAL").fetchone()
                # A lease lost in a power cut would let a call be sent twice.
                db.execute("PRAGMA synchronous=FULL")
                # A checkpoint waits for the disk twice, so it is made after each 40 MB and not after each 4 MB.
                db.execute("PRAGMA wal_autocheckpoint=10000").fetchone()
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise self.mapped_error(error) from error
        self._opened_file = self._file_identity()

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return open_sqlite(None)
        if self._read_only:
            return self._open_read_only(self._path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return open_sqlite(self._path)

    def _open_read_only(self, path: Path) -> sqlite3.Connection:
        """Open a file for reading. In a folder that cannot be written, SQLite cannot create the index of a write-ahead
        log: there, a file without such a log is opened as immutable, and a file with a log is copied first."""
        db = open_sqlite(path, "mode=ro")
        try:
            # SQLite opens the file itself only at the first query.
            db.execute("SELECT count(*) FROM sqlite_master").fetchall()
            return db
        except sqlite3.Error as error:
            db.close()
            if _primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise

        self._frozen = True
        log = _log_of(path)
        has_log = bool(_size_and_time(log))
        if not has_log:
            return open_sqlite(path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="abp-ledger-")
        copy = Path(self._copy.name, path.name)
        for source, target in ((path, copy), (log, _log_of(copy))):
            with open_regular(source) as file, target.open("xb") as out:
                shutil.copyfileobj(file, out, 1 << 20)
        return open_sqlite(copy)

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.cleanup()

    def cut(self) -> None:
        """Do nothing: a file always answers, and the wait for another process ends by itself."""

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        db = self._db
        assert db is not None  # connect() comes first
        try:
            with sqlite_transaction(db, write=write):
                return work(db.cursor())
        except sqlite3.Error as error:
            raise self.mapped_error(error) from error

    def lock(self, cursor: Cursor, name: str) -> None:
        """Do nothing: SQLite has only one writer at a time."""

    def _file_identity(self) -> tuple[int, ...] | None:
        """Return numbers that change when the file is replaced; ``None`` without a file. For a frozen database they
        also change with each write to the file, so that it is opened again then."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        identity = status.st_dev, status.st_ino
        if not self._frozen:
            return identity
        return *identity, *_size_and_time(self._path), *_size_and_time(_log_of(self._path))

    def mapped_error(self, error: Exception) -> ABPError:
        code = _primary_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            advice = "another process holds it; end that one, or wait"
        elif code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == errno.ENOSPC:
            advice = "no space is left; make room, then do the same again"
        elif code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            advice = f"it is something else, or damaged; {self._advice}"
        else:
            advice = f"check the folder, or {self._advice}"
        return self.error(f"{self.name} {self._path or 'in memory'} cannot be used: {error}; {advice}")


def open_sqlite(path: Path | None, *options: str, wait: float | None = None) -> sqlite3.Connection:
    """Open a file, or without a path a private database in memory. Any thread may use the connection, but only one at a
    time. ``options`` are those of SQLite's URIs; ``wait`` is the time in seconds to wait for a transaction of another
    process, 30 by default. Transactions begin only with :func:`sqlite_transaction`. Raises ``sqlite3.Error``."""
    uri = ":memory:"
    if path:
        uri = "?".join((path.absolute().as_uri(), *options))
    if wait is None:
        wait = _WAIT
    return sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)


@contextlib.contextmanager
def sqlite_transaction(db: sqlite3.Connection, *, write: bool = True) -> Iterator[None]:
    # With IMMEDIATE a writer waits for other writers here, and not in the middle of its work.
    db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _primary_code(error: Exception) -> int:
    """Return the code without the bits of SQLite's extended codes; 0 if it is not an error of SQLite."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size_and_time(path: Path) -> tuple[int, ...]:
    """Return the size of a file and the time of its last change; nothing for an empty or missing file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    if status.st_size == 0:
        return ()
    return status.st_size, status.st_mtime_ns


_HOST = r"(?:\[[^\]@/?]*\]|[^:/,@?\[\]]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^@?]*)?")
#: A parameter; only the named parameters may have an @ in their values.
_PARAMETER = re.compile(
    r"[A-Za-z_]+=[^@]*|(?:application_name|dbname|fallback_application_name|host|options|passfile|password|run|service|"
    r"sslpassword|user)=.*"
)
#: Begin of each transaction: poolers refuse most settings of a connection. One statement may take two minutes, unless
#: the user or the database has another limit.
_READ_ONLY, _READ_WRITE = b"SET TRANSACTION READ ONLY;", b"SET TRANSACTION READ WRITE;"
_SETTINGS = b"""
    SET LOCAL synchronous_commit = on;
    SELECT set_config('statement_timeout', '2min', true) WHERE current_setting('statement_timeout') = '0'
"""


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The parts of a ``postgresql://`` address. ``head`` is the address before the parameters, with the password;
    ``shown`` is the same without the password. If a password contains ``/``, ``?`` or ``@`` unquoted, its end is
    ambiguous: this takes the shortest password that a valid place and parameters follow. ``certain`` is true if libpq
    reads the address in the same way."""

    head: str
    shown: str
    parameters: tuple[str, ...]
    password: str
    certain: bool

    @classmethod
    def read(cls, url: str) -> Self:
        """Split an address into its parts. Never raises."""
        scheme, mark, rest = url.partition("://")
        # The host begins after one of the @, or at once if the address has no user.
        possible_starts = [0, *(at_sign.end() for at_sign in re.finditer("@", rest))]
        valid_starts = [start for start in possible_starts if _is_place(rest[start:])]
        start = min(valid_starts, default=possible_starts[-1])
        userinfo = rest[: max(start - 1, 0)]
        place, question_mark, query = rest[start:].partition("?")

        # libpq takes only this part for the user.
        libpq_userinfo = re.match("[^@/]*@", rest)
        libpq_start = libpq_userinfo.end() if libpq_userinfo else 0
        is_certain = start == libpq_start and not re.search("[/?#]", userinfo)

        head = url.removesuffix(question_mark + query)
        may_be_in_parameter = re.search("[?&][^=&]*pass", userinfo, re.IGNORECASE)
        if may_be_in_parameter:
            # The @ may be in the value of a password parameter, so nothing after the user is shown.
            place = "…"
            query = ""
            head = url

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

    def split_off_parameter(self, name: str) -> tuple[str, str | None]:
        """Return the address without a parameter, and the parameter's last value, decoded; ``None`` if it is
        missing."""
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
        """The address without secrets. It works with a password from ``PGPASSWORD`` or a password file."""
        valid = [parameter for parameter in self.parameters if _PARAMETER.fullmatch(parameter)]
        return _with_parameters(self.shown, [parameter for parameter in valid if not _is_secret(parameter)])

    @property
    def secrets(self) -> set[str] | None:
        """Texts that no message may quote; ``None`` if they cannot be determined: in an ambiguous address libpq may
        take a part of the password for the port or a parameter, and quote it."""
        if not self.certain or not all(map(_PARAMETER.fullmatch, self.parameters)):
            return None
        secrets = {self.password}
        secrets.update(parameter.partition("=")[2] for parameter in self.parameters if _is_secret(parameter))
        secrets.discard("")
        return secrets | set(map(unquote, secrets))


def without_password(url: str) -> str:
    return PostgresUrl.read(url).without_password


def _is_place(text: str) -> bool:
    """Whether a text can be the rest of an address after the user: hosts, a database and parameters."""
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
    """A cursor of psycopg that takes ``?`` for parameters, as SQLite does, in place of ``%s``."""

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
    """Connection to a PostgreSQL server. A ``read_only`` connection writes nothing. Messages call it ``name``, such as
    "the ledger"; ``error`` is the type of its errors. Raises :class:`~transports.errors.UsageError` without psycopg."""

    now_sql = "(extract(epoch FROM clock_timestamp())::float8)"
    sorted_text_type = 'TEXT COLLATE "C"'
    skip_locked = "FOR UPDATE SKIP LOCKED"
    find_relation = "SELECT 1 WHERE to_regclass(?) IS NOT NULL"

    def __init__(self, url: str, name: str, error: type[ABPError], *, read_only: bool = False) -> None:
        self.name = name
        self.error = error
        self._url = url
        self._settings = (_READ_ONLY if read_only else _READ_WRITE) + _SETTINGS
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
        if self._db is not None and not self._db.broken and not self._db.closed:
            return
        self.close()

        errors = self._psycopg.errors
        try:
            connection = self._psycopg.connect(
                self._url,
                autocommit=True,
                # Otherwise the database or PGCLIENTENCODING may choose an encoding that cannot hold all text.
                client_encoding="utf8",
                # No prepared statements: a pooler (PgBouncer, RDS Proxy) may give each transaction another connection.
                prepare_threshold=None,
                connect_timeout=10,  # seconds
                # Milliseconds that the server may take to acknowledge what was sent.
                tcp_user_timeout=20_000,
                # Waiting for an answer of a dead server ends after 20 seconds, too.
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=2,
                application_name=f"abp ({self.name})",
            )
        except self._psycopg.OperationalError as error:
            is_refused = isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification)
            # The error gets no cause: the cause's traceback could quote secrets, which the message leaves out.
            raise self.mapped_error(error, retryable=not is_refused) from None
        except self._psycopg.Error as error:
            raise self.mapped_error(error) from None
        self._db = cast("psycopg.Connection[tuple[Value, ...]]", connection)

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(self._psycopg.Error):
                db.close()

    def cut(self) -> None:
        if self._db is None:
            return
        with (
            contextlib.suppress(OSError, self._psycopg.Error),
            socket.fromfd(self._db.fileno(), socket.AF_INET, socket.SOCK_STREAM) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in a transaction. ``write`` has no effect: in PostgreSQL, readers never wait for writers."""
        db = self._db
        assert db is not None  # connect() comes first
        try:
            with db.transaction(), db.cursor() as cursor:
                cursor.execute(self._settings)
                return work(_QuestionMarkCursor(cursor))
        except self._psycopg.Error as error:
            errors = self._psycopg.errors
            in_conflict = isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)
            raise self.mapped_error(error, retryable=in_conflict or db.broken or db.closed) from error

    def lock(self, cursor: Cursor, name: str) -> None:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"abp {name}",))

    def mapped_error(self, error: Exception, *, retryable: bool = False) -> ABPError:
        """Return the connection's own error for an error of psycopg. Its message holds no secrets."""
        if self._secrets is None:
            reason = type(error).__name__
        else:
            reason = first_line(error)
            for secret in self._secrets:
                reason = reason.replace(secret, "…")
        return self.error(
            f"{self.name} {self._shown} cannot be used: {reason}; check the server and the address", retryable=retryable
        )
