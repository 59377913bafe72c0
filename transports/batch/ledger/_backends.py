"""A ledger in an SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ...artifacts import open_file, try_lock
from ...database import PostgresConnection, SqliteConnection
from ...errors import LedgerError

_PAUSE = 0.01  # seconds between two tries to lock a file


class SqliteDatabase(SqliteConnection):
    """The file ``ledger.sqlite`` of a run's folder, with a lock file beside it for each worker. One that is
    ``read_only`` must be there, and stays as it is.

    ``file`` is the name of another one, and ``option`` what names the folder on the command line. Without a folder it
    is in memory, and nobody else sees it."""

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
        """Close the file; this worker is no longer at work."""
        super().close()
        lock, self._own_lock = self._own_lock, None
        if lock is not None:
            os.close(lock[0])  # first: an open file cannot be removed on Windows
            _remove(lock[1])

    def begin_work(self, worker: str) -> None:
        """Lock this worker's file. The kernel frees the lock when the process ends, however it ends."""
        if self._own_lock is not None or self._locks is None:
            return
        path = self._locks / worker
        try:
            self._locks.mkdir(exist_ok=True)
            self.lost_workers([file.name for file in self._locks.iterdir()])  # those that had no lease left their files
            while True:
                handle = open_file(path, os.O_RDWR | os.O_CREAT)
                while not try_lock(handle):  # somebody looks whether it is free
                    time.sleep(_PAUSE)
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


def _has_ended(lock: Path) -> bool:
    """Whether the worker whose file this is has ended; then its file is removed."""
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
    """Remove a worker's file. On Windows it stays while another worker looks at it; the next look removes it."""
    with contextlib.suppress(PermissionError):
        lock.unlink(missing_ok=True)


class PostgresDatabase(PostgresConnection):
    """The tables of all runs in one database."""

    sees_workers = False  # a machine that cannot be reached may still be at work
    one_writer = False

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, "the ledger", LedgerError, read_only=read_only)

    def begin_work(self, worker: str) -> None:
        """Do nothing: a worker is known by its lease alone."""

    def lost_workers(self, workers: Sequence[str]) -> list[str]:
        """Return none."""
        return []
