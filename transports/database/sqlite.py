"""A connection to an SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import ABPError
from .transactions import Cursor

__all__ = ["SqliteConnection"]

T = TypeVar("T")

#: Seconds that one process waits for another's transaction.
_WAIT = 30.0


class SqliteConnection:
    """The file at ``path``, for what messages call ``name``; ``error`` is the type that it raises. ``advice`` says what
    to do about a file that cannot be used. One that is ``read_only`` must be there, and stays as it is. Without a path
    it is in memory, and nobody else sees it."""

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
        self._opened: tuple[int, int] | None = None

    def connect(self) -> None:
        """Open the file, and make it if there is none and it may be written. One that was deleted or replaced since it
        was opened is opened anew: what is written to the old one is lost."""
        if self._db is not None:
            if self._opened == self._identity():
                return
            self.close()
        uri = self._path.absolute().as_uri() + "?mode=ro" * self._read_only if self._path else ":memory:"
        try:
            if self._path and not self._read_only:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error
        try:
            if not self._read_only:
                db.execute("PRAGMA journal_mode=WAL").fetchone()
                db.execute("PRAGMA synchronous=FULL")  # a lease that a power cut takes back would be a call sent twice
        except sqlite3.Error as error:
            db.close()
            raise self._failed(error) from error
        self._db, self._opened = db, self._identity()

    def close(self) -> None:
        """Close the file."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in one transaction; of those that write there is one at a time."""
        db = self._db
        if db is None:
            raise self.error(f"{self.name} is closed; open it again")
        try:
            db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                done = work(db.cursor())
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return done

    def lock(self, cursor: Cursor, name: str) -> None:
        """Do nothing: there is one writer at a time."""

    def _identity(self) -> tuple[int, int] | None:
        """Which file is at the path now; ``None`` for none, and in memory."""
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _failed(self, error: Exception) -> ABPError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            advice = "another process holds it; end that one, or wait"
        elif code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == errno.ENOSPC:
            advice = "no space is left; make room, then do the same again"
        elif code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            advice = f"it is something else, or damaged; {self._advice}"
        else:
            advice = f"check the folder, or {self._advice}"
        return self.error(f"{self.name} {self._path or 'in memory'} cannot be used: {error}; {advice}")
