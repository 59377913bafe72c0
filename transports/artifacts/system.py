"""What systems do differently below the functions that all of them have, chosen by what each can do."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = [
    "OPEN_FILES_MOVE",
    "TO_SYNC",
    "belongs_to_us",
    "is_link",
    "open_file",
    "others_may_read",
    "patiently",
    "read_at",
    "read_into",
    "replace_file",
    "sync_data",
    "try_lock",
]

#: Whether a file can be renamed and removed while somebody has it open, which Windows refuses.
OPEN_FILES_MOVE = os.name == "posix"

T = TypeVar("T")

#: Seconds for which a file that is open elsewhere is waited for, and between two tries.
_PATIENCE, _PAUSE = 1.0, 0.01

#: Follow no symlink, be inherited by no child, wait for no writer of a pipe, change no bytes: where there is a flag.
_SAFE = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "CLOEXEC", "NONBLOCK", "BINARY", "NOINHERIT"))
_CAN_REFUSE_LINKS = hasattr(os, "O_NOFOLLOW")
#: Windows has symlinks, and junctions, which everybody may make.
_JUNCTION = 0xA0000003


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Return a descriptor for bytes, as :func:`os.open`. A symlink in the file's place is not followed: raises
    :class:`OSError` with ``ELOOP``. Where the system cannot promise that, it is looked at before."""
    if not _CAN_REFUSE_LINKS and is_link(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return os.open(path, flags | _SAFE, mode)


def is_link(path: str | os.PathLike[str]) -> bool:
    """Return whether a symlink or a junction has the name."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) == _JUNCTION


def patiently(work: Callable[[], T]) -> T:
    """Do what Windows refuses while some program has the file open, as virus scanners do with new ones: it is tried
    again for a second. It blocks."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except PermissionError:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def replace_file(source: Path, target: Path) -> None:
    """Rename a file, also over another one; :func:`patiently` where open files cannot be renamed."""
    if OPEN_FILES_MOVE:
        source.replace(target)
    else:
        patiently(lambda: source.replace(target))


def _read_into(fd: int, buffer: memoryview, position: int) -> int:
    data = read_at(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


def _read_at(fd: int, size: int, position: int) -> bytes:
    before = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size)
    finally:
        os.lseek(fd, before, os.SEEK_SET)


#: ``read_at(fd, size, position)`` returns bytes from a place in a file, whose own position stays.
read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_at)

if hasattr(os, "preadv"):

    def read_into(fd: int, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from a place in a file, and return how many bytes there were."""
        return os.preadv(fd, [buffer], position)

else:
    read_into = _read_into

#: How a file is opened whose content is written to the disk: on Windows not one that is open for reading alone.
TO_SYNC = os.O_RDONLY if hasattr(os, "pread") else os.O_RDWR

#: Write the content of a file to the disk, also one that is open for reading alone. macOS has no ``fdatasync``; Windows
#: cannot (:data:`TO_SYNC`).
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync if hasattr(os, "pread") else lambda _: None)

try:
    import fcntl
except ImportError:

    def try_lock(fd: int) -> bool:
        """Lock an open file against all other descriptors of it. Returns ``False`` if one has it. The system frees the
        lock when the descriptor is closed, and when the process ends, however it ends."""
        from filelock import lock_descriptor

        return lock_descriptor(fd, blocking=False)

else:

    def try_lock(fd: int) -> bool:
        """Lock an open file against all other descriptors of it. Returns ``False`` if one has it. The system frees the
        lock when the descriptor is closed, and when the process ends, however it ends."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def belongs_to_us(found: os.stat_result) -> bool:
    """Return whether a file is this user's. ``True`` where files do not tell."""
    user: Callable[[], int] | None = getattr(os, "geteuid", None)
    return user is None or found.st_uid == user()


def others_may_read(found: os.stat_result) -> bool:
    """Return whether other users may do anything with a file. ``False`` where its mode does not tell."""
    return hasattr(os, "geteuid") and found.st_mode & 0o077 != 0
