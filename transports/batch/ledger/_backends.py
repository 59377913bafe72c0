"""Databases of a ledger: an SQLite file for the processes of one machine, or PostgreSQL for many machines."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ..._internal.database._postgres import PostgresConnection
from ..._internal.database._sqlite import SqliteConnection
from ...artifacts._files import open_file, try_lock
from ...errors import LedgerError

_PAUSE = 0.01  # seconds between two attempts to lock a file


class SqliteDatabase(SqliteConnection):
    """SQLite database ``ledger.sqlite`` in a run's folder, with a lock file for each worker.

    With ``read_only`` the file must exist and is not changed. ``file`` is another file name, and ``option`` is the
    option of the command line for the folder. Without a folder the database is private and in memory."""

    sees_workers = True
    one_writer = True

    def __init__(
        self, folder: Path | None, file: str = "ledger.sqlite", *, read_only: bool = False, option: str = "--out"
    ) -> None:
        path, advice = folder / file if folder else None, f"name another folder with {option}"
        super().__init__(path, "the ledger", LedgerError, advice, read_only=read_only)
        self._locks = folder / "workers" if folder else None
        self._own_lock: tuple[int, Path] | None = None

    def close(self) -> None:
        """Close the file and unregister this worker."""
        super().close()
        lock, self._own_lock = self._own_lock, None
        if lock is not None:
            os.close(lock[0])  # first: an open file cannot be removed on Windows
            _remove(lock[1])

    def begin_work(self, worker: str) -> None:
        """Lock this worker's file. The kernel releases the lock at any end of the process."""
        if self._own_lock is not None or self._locks is None:
            return
        path = self._locks / worker
        try:
            self._locks.mkdir(exist_ok=True)
            self.lost_workers([file.name for file in self._locks.iterdir()])  # removes files of ended workers
            while True:
                handle = open_file(path, os.O_RDWR | os.O_CREAT)
                while not try_lock(handle):  # another worker tests the lock at this moment
                    time.sleep(_PAUSE)
                with contextlib.suppress(FileNotFoundError):  # another worker removed the file before it was locked
                    if os.path.samestat(os.fstat(handle), path.stat()):
                        break
                os.close(handle)
        except OSError as error:
            raise self._failed(error) from error
        self._own_lock = handle, path

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return the workers whose lock is free, and remove their files."""
        return [worker for worker in workers if self._locks and _has_ended(self._locks / worker)]


def _has_ended(lock: Path) -> bool:
    """Return whether the worker of a lock file has ended. If so, remove the file."""
    try:
        handle = open_file(lock, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not try_lock(handle):
            return False
    except OSError:
        return False
    finally:
        os.close(handle)
    _remove(lock)
    return True


def _remove(lock: Path) -> None:
    """Remove a worker's file. On Windows an open file stays; the next check removes it."""
    with contextlib.suppress(PermissionError):
        lock.unlink(missing_ok=True)


class PostgresDatabase(PostgresConnection):
    """PostgreSQL database with the tables of all runs."""

    sees_workers = False  # the worker of an unreachable machine may still be at work
    one_writer = False

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, "the ledger", LedgerError, read_only=read_only)

    def begin_work(self, worker: str) -> None:
        """Do nothing: workers are only known by their leases."""

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return an empty list."""
        return []
