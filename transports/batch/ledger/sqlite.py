"""A ledger in an SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from ...database import SqliteConnection
from ...errors import LedgerError

__all__ = ["SqliteDatabase"]


class SqliteDatabase(SqliteConnection):
    """The file ``jobs.sqlite`` of a run's folder, with a lock file beside it for each worker."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "jobs.sqlite", "the ledger", LedgerError, "name another folder with --out")
        self._locks = folder / "workers"
        self._own_lock: tuple[int, Path] | None = None

    def close(self) -> None:
        """Close the file; this worker is no longer at work."""
        super().close()
        lock, self._own_lock = self._own_lock, None
        if lock is not None:
            lock[1].unlink(missing_ok=True)
            os.close(lock[0])

    def begin_work(self, worker: str) -> None:
        """Lock this worker's file. The kernel frees the lock when the process ends, however it ends."""
        if self._own_lock is not None:
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
        return [worker for worker in workers if self._has_ended(worker)]

    def _has_ended(self, worker: str) -> bool:
        try:
            handle = os.open(self._locks / worker, os.O_RDWR | os.O_CLOEXEC)
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
        (self._locks / worker).unlink(missing_ok=True)
        return True
