"""SQLite files, which the processes of one machine may share: opening, transactions, and the connection of a room."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import ABPError
from ..files import open_regular

if TYPE_CHECKING:
    from ._transactions import Cursor

T = TypeVar("T")

#: Seconds that one process waits for another's transaction.
_WAIT = 30.0


class SqliteConnection:
    """Connection to the SQLite file at ``path``; without a path, to a private database in memory.

    A ``read_only`` file must exist and is not changed; its folder may be read-only, too. Messages call the connection
    ``name``, such as "the ledger"; ``error`` is the type of its errors, and ``advice`` their end for a file that cannot
    be used."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"
    text = "TEXT"
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
        self._opened: tuple[int, ...] | None = None
        #: True if the open database does not show later writes of other processes.
        self._frozen = False
        #: Folder of the copy, if a copy is open.
        self._copy: tempfile.TemporaryDirectory[str] | None = None

    def connect(self) -> None:
        """Open the file; create it if it is missing and not ``read_only``.

        A file that was deleted or replaced since it was opened is opened again: writes to the old file would be
        lost."""
        if self._db is not None:
            if self._opened == self._file_identity():
                return
            self.close()

        self._frozen = False
        try:
            db = self._open()
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise self.mapped_error(error) from error
        try:
            if not self._read_only:
                db.execute("PRAGMA journal_mode=WAL").fetchone()
                # A lease lost in a power cut would let a call be sent twice.
                db.execute("PRAGMA synchronous=FULL")
                # A checkpoint waits for the disk twice, so there is one for each 40 MB, not for each 4.
                db.execute("PRAGMA wal_autocheckpoint=10000").fetchone()
        except sqlite3.Error as error:
            db.close()
            raise self.mapped_error(error) from error
        self._db, self._opened = db, self._file_identity()

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return open_sqlite(None)
        if self._read_only:
            return self._open_read_only(self._path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return open_sqlite(self._path)

    def _open_read_only(self, path: Path) -> sqlite3.Connection:
        """Open a file read-only.

        In a folder that cannot be written, SQLite cannot create the index of a write-ahead log. There a file without
        such a log is opened as immutable, and a file with a log is copied first."""
        db = open_sqlite(path, "mode=ro")
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchall()
            return db
        except sqlite3.Error as error:
            db.close()
            if _primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise

        self._frozen = True
        log = _log_of(path)
        if not _size_and_time(log):
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

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in one transaction; writing transactions run one at a time."""
        db = self._db
        if db is None:
            raise self.error(f"{self.name} is closed; open it again")
        try:
            with sqlite_transaction(db, write=write):
                return work(db.cursor())
        except sqlite3.Error as error:
            raise self.mapped_error(error) from error

    def lock(self, cursor: Cursor, name: str) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def _file_identity(self) -> tuple[int, ...] | None:
        """Return the identity of the file at the path; ``None`` without a file, and in memory.

        For a frozen database it includes sizes and times, so that a later write leads to a new opening."""
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
        """Return the error of this connection for an error of SQLite or of the disk, with advice."""
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
    """Open a file, or a private database in memory, for any thread, but one at a time. ``options`` are those of
    SQLite's URIs; ``wait`` is the time in seconds to wait for a transaction of another process, 30 by default.

    No transaction is begun implicitly, see :func:`sqlite_transaction`. Raises ``sqlite3.Error``."""
    uri = ":memory:"
    if path:
        uri = "?".join((path.absolute().as_uri(), *options))
    if wait is None:
        wait = _WAIT
    return sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)


@contextlib.contextmanager
def sqlite_transaction(db: sqlite3.Connection, *, write: bool = True) -> Iterator[None]:
    """Run the block in one transaction, which is rolled back if the block raises."""
    # A writer waits at its start, not in the middle.
    db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _primary_code(error: Exception) -> int:
    """Return the code of an error without the bits of SQLite's extended codes; 0 if it is not an error of SQLite."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size_and_time(path: Path) -> tuple[int, ...]:
    """Return the size of a file and the time of its last change; nothing for a missing or empty file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    if status.st_size == 0:
        return ()
    return status.st_size, status.st_mtime_ns
