"""A ledger in an SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ...errors import LedgerError
from .database import Cursor

__all__ = ["SqliteDatabase"]

T = TypeVar("T")

#: Seconds that one process waits for another's transaction.
_WAIT = 30.0


class SqliteDatabase:
    """The file ``jobs.sqlite`` of a run's folder, with a lock file beside it for each worker.

    ``name`` is that of another file; ``option`` is what names the folder, for error messages. Without a folder it is in
    memory, and nobody else sees it."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"
    skip_locked = ""
    find_tables = "SELECT 1 FROM sqlite_master WHERE name = 'abp_jobs_position'"

    def __init__(self, folder: Path | None, name: str = "jobs.sqlite", *, option: str = "--out") -> None:
        self._folder = folder
        self._path = folder / name if folder else ":memory:"
        self._locks = folder / "workers" if folder else None
        self._option = option
        self._db: sqlite3.Connection | None = None
        self._own_lock: tuple[int, Path] | None = None

    def connect(self) -> None:
        """Open the file, and make it if there is none."""
        if self._db is not None:
            return
        try:
            if self._folder:
                self._folder.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            db.execute("PRAGMA synchronous=FULL")  # a lease that a power cut takes back would be a call sent twice
        except sqlite3.Error as error:
            db.close()
            raise self._failed(error) from error
        self._db = db

    def close(self) -> None:
        """Close the file; this worker is no longer at work."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()
        lock, self._own_lock = self._own_lock, None
        if lock is not None:
            lock[1].unlink(missing_ok=True)
            os.close(lock[0])

    def transaction(self, work: Callable[[Cursor], T], *, write: bool) -> T:
        """Run ``work`` in one transaction; of those that write there is one at a time."""
        db = self._db
        if db is None:
            raise LedgerError("the ledger is closed; open it again")
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

    def begin_work(self, worker: str) -> None:
        """Lock this worker's file. The kernel frees the lock when the process ends, however it ends."""
        if self._own_lock is not None or self._locks is None:
            return
        path = self._locks / worker
        try:
            self._locks.mkdir(exist_ok=True)
            self.lost_workers([file.name for file in self._locks.iterdir()])  # those that had no lease left their files
            while True:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(handle, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):  # taken away before it was locked
                    if os.path.samestat(os.fstat(handle), path.stat()):
                        break
                os.close(handle)
        except OSError as error:
            raise self._failed(error) from error
        self._own_lock = handle, path

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return the workers whose lock is free, and remove their files."""
        return [worker for worker in workers if self._locks and _has_ended(self._locks / worker)]

    def _failed(self, error: Exception) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            advice = "another process holds it; end that one, or wait"
        elif code & 0xFF == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == errno.ENOSPC:
            advice = "no space is left; make room, then run the same command again"
        elif code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            advice = f"it is no ledger or damaged; name another folder with {self._option}"
        else:
            advice = f"check the folder, or name another one with {self._option}"
        return LedgerError(f"the ledger {self._path} cannot be used: {error}; {advice}")


def _has_ended(lock: Path) -> bool:
    """Whether the worker whose file this is has ended; then its file is removed."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    lock.unlink(missing_ok=True)
    return True
