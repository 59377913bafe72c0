"""Files that take the place of older ones at once, whenever their writer is killed.

The content is written to a file with another name in the same folder, which is locked meanwhile. The system frees the
lock when the writer ends, however it ends and in whichever container, so that a file without a lock is one that was
left. A process id would not tell: another container has the same ones. (Machines whose file system does not share its
locks must not write into one folder.)
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BufferedWriter
from pathlib import Path

from .system import OPEN_FILES_MOVE, open_file, replace_file, try_lock

__all__ = ["Replacement", "remove_left", "replacing", "temporary_path"]

_NAME = re.compile(r"\.abp-[0-9a-f]{16}")
#: Seconds for which a file without a lock stays where open files cannot be renamed: its writer has just closed it.
_GRACE = 60.0
#: Folders of which is remembered that this process has looked for what was left in them.
_FOLDERS = 1000


class Replacement:
    """A new file that takes the place of ``path`` at :meth:`commit`. ``fd`` is its descriptor. Every method blocks and
    raises :class:`OSError`."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        """Make an empty file in the folder of ``path``, with ``mode`` less the umask. The first one in a folder also
        removes what killed processes left there."""
        _remove_left_once(path.parent.absolute())
        self._path = path
        while True:
            self._temporary = temporary_path(path)
            self.fd = open_file(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            if self._lock():
                return
            os.close(self.fd)  # another process removes it, as one that was left

    def _lock(self) -> bool:
        try:
            return try_lock(self.fd) and os.fstat(self.fd).st_nlink > 0
        except OSError:  # no locks on this file system: nobody can tell there that a file was left, either
            return True

    def commit(self) -> None:
        """Write the content to the disk, give the file its name, in place of an older file, and close it."""
        os.fsync(self.fd)
        if not OPEN_FILES_MOVE:
            self._close()
        replace_file(self._temporary, self._path)
        self._close()

    def close(self) -> None:
        """Close the file, and remove it unless it was committed; idempotent."""
        self._close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BufferedWriter]:
    """Yield a file to write, which takes the place of ``path`` at the end of the block; an error leaves the older file.
    Raises :class:`OSError`."""
    new = Replacement(path, mode)
    try:
        with os.fdopen(new.fd, "wb", closefd=False) as file:
            yield file
        new.commit()
    finally:
        new.close()


def temporary_path(path: Path) -> Path:
    """Return a free path in the folder of ``path``, of which :func:`remove_left` knows."""
    return path.with_name(f".abp-{secrets.token_hex(8)}")


def remove_left(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder, as far as that can be done. It looks at all names."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_unlocked(Path(entry.path))


_remove_left_once = lru_cache(_FOLDERS)(remove_left)


def _remove_unlocked(path: Path) -> None:
    fd = open_file(path, os.O_RDWR)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not try_lock(fd):
            return
        if OPEN_FILES_MOVE:
            path.unlink()  # still locked: a writer that comes to lock it now knows, and makes another one
            return
    finally:
        os.close(fd)
    if time.time() - found.st_mtime > _GRACE:
        path.unlink()
