"""File primitives of all stores: safe opening, locks, atomic replacement and errors, on POSIX and Windows."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TypeVar

from .._internal.files import user_folder
from .._internal.tasks import in_thread
from ..errors import StoreError, StoreFull, spelled

#: Advice by the number of an error; ``{other}`` is replaced by advice on another place.
_ADVICE = {
    errno.EACCES: "make the folder writable, or {other}",
    errno.EPERM: "make the folder writable, or {other}",
    errno.EROFS: "the file system is read-only; {other}",
    errno.ENAMETOOLONG: "the path is too long; {other}",
    errno.EMFILE: "too many files are open in this process; raise its limit (ulimit -n) or run fewer calls at once",
    errno.ENFILE: "too many files are open on this machine; close some programs and try again",
    errno.EFBIG: "the file system or a limit (ulimit -f) forbids a file of this size",
    errno.ENOLCK: "the file system cannot lock files; {other}",
    errno.EOPNOTSUPP: "the file system cannot do this; {other}",
    errno.EIO: "the disk failed; check it",
}


def other_folder_advice() -> str:
    return f"name another folder with ABP_OUTPUT_DIR or {spelled('store=')}"


@contextmanager
def map_os_errors(action: str, folder: Path, *, other: str | None = None) -> Iterator[None]:
    """Raise a :class:`~transports.errors.StoreError` for an error of the system in the block. ``action`` and ``folder``
    are for its message, "cannot … in …"; ``other`` is advice on another place."""
    try:
        yield
    except OSError as error:
        other = other or other_folder_advice()
        code = error.errno or 0
        reason = error.strerror or str(error)
        details: dict[str, object] = {"folder": str(folder), "errno": errno.errorcode.get(code, str(code))}
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(
                f"cannot {action} in {folder}: no space is left; delete artifacts or {other}", details=details
            ) from error
        advice = _ADVICE.get(code, "check the folder, or {other}").format(other=other)
        raise StoreError(
            f"cannot {action} in {folder}: {reason}; {advice}",
            retryable=code in (errno.EMFILE, errno.ENFILE),
            details=details,
        ) from error
    except UnicodeEncodeError as error:
        if error.encoding != sys.getfilesystemencoding() or error.encoding == "utf-8":
            raise
        raise StoreError(
            f"cannot {action} in {folder}: the name {error.object!a} cannot be written in this locale, whose encoding "
            f"is {error.encoding}; set PYTHONUTF8=1"
        ) from error


def write_all(fd: int, data: memoryview) -> None:
    """Write all of ``data``: a single ``os.write`` may take only a part of it."""
    while data:
        data = data[os.write(fd, data) :]


def may_be_running(pid: int, modified: float) -> bool:
    """Return whether the process that last wrote at ``modified`` (seconds since 1970) may still run. A process that
    started later only reuses the id."""
    import psutil  # late: it takes 20 ms to load, and few programs get this far

    try:
        return bool(psutil.Process(pid).create_time() <= modified)
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OverflowError):
        return True


#: Seconds that a writer may take from its staged file to the metadata.
MAX_WRITING = 3600.0


def is_left_behind(pid: int, modified: float) -> bool:
    """Return whether a writer is gone: its process has ended, and its last write is old. The age counts because
    containers that share a folder do not see each other's processes."""
    return time.time() - modified > MAX_WRITING and not may_be_running(pid, modified)


#: True if an open file can be renamed and removed, which Windows refuses.
OPEN_FILES_MOVE = os.name == "posix"

T = TypeVar("T")

#: Seconds to wait for a file that another program has open.
_PATIENCE = 1.0

#: Flags, where the system has them: no symlinks, no inheritance, no waiting for a pipe's writer, no text mode.
_SAFE_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "CLOEXEC", "NONBLOCK", "BINARY", "NOINHERIT"))


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file for bytes, as :func:`os.open` does. A symlink raises :class:`OSError` with ``ELOOP``."""
    if not hasattr(os, "O_NOFOLLOW") and is_link(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return os.open(path, flags | _SAFE_FLAGS, mode)


def is_link(path: str | os.PathLike[str]) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    # On Windows any user may make a junction, while symlinks need a privilege.
    junction = 0xA0000003
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == junction


def retry_while_in_use(work: Callable[[], T]) -> T:
    """Run ``work``, and retry it for a second after :class:`PermissionError`: Windows refuses to change a file while
    another program has it open, as virus scanners do with new files."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except PermissionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.01)


def _read_at(fd: int, size: int, position: int) -> bytes:
    old_position = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size)
    finally:
        os.lseek(fd, old_position, os.SEEK_SET)


#: ``read_at(fd, size, position)`` returns bytes at a position of a file and does not move the file position.
read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_at)

#: Flags to open a file that is synced later: Windows cannot sync a file that is open only for reading.
TO_SYNC = os.O_RDONLY if hasattr(os, "pread") else os.O_RDWR

#: Sync the content of a file to the disk, also of one that is open only for reading. macOS has no ``fdatasync``; on
#: Windows this does nothing (:data:`TO_SYNC`).
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync if hasattr(os, "pread") else lambda _: None)

try:
    import fcntl
except ImportError:

    def try_lock(fd: int) -> bool:
        from filelock import lock_descriptor

        return lock_descriptor(fd, blocking=False)

    def unlock(fd: int) -> None:
        from filelock import unlock_descriptor

        unlock_descriptor(fd)

else:

    def try_lock(fd: int) -> bool:
        """Lock an open file against all other descriptors of the file. Return ``False`` if it is locked. The system
        frees the lock when the descriptor is closed or the process ends, in any way."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Free the lock of an open file, also if a forked process has a copy of the descriptor."""
        fcntl.flock(fd, fcntl.LOCK_UN)


def belongs_to_us(status: os.stat_result) -> bool:
    user: Callable[[], int] | None = getattr(os, "geteuid", None)
    return user is None or status.st_uid == user()


def foreign_owner(path: Path) -> str | None:
    """Return the name of the user who owns a file; ``None`` if that is this user, or unknown."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return None if belongs_to_us(status) else user_name(status.st_uid)


def user_name(uid: int) -> str:
    try:
        import pwd  # POSIX only

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"


def others_may_read(status: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and status.st_mode & 0o077 != 0


def state_folder(*below: str) -> Path:
    """Create the user's state folder, or a folder below it, with mode 0700."""
    import platformdirs  # late: few programs need it

    state = user_folder(partial(platformdirs.user_state_path, "abp-transports", appauthor=False))
    folder = state.joinpath(*below)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


class Replacement:
    """A new file, open as ``fd``, that takes the place of ``path`` at :meth:`commit`. Every method blocks. The file is
    locked while it is written, so that another process does not remove it as a leftover."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        """Create the new file. The first one in a folder also removes the leftovers of killed processes there."""
        _remove_left_once(path.parent.absolute())
        self._path = path

        # Make another file if another process removes this one as a leftover before it is locked.
        while True:
            self._temporary = temporary_path(path)
            self.fd = open_file(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            if self._lock_new_file():
                return
            os.close(self.fd)

    def _lock_new_file(self) -> bool:
        """Lock the file. Return ``False`` if another process is removing it, or has removed it."""
        try:
            return try_lock(self.fd) and os.fstat(self.fd).st_nlink > 0
        except OSError:
            # The file system has no locks, so no process removes leftovers there.
            return True

    def commit(self) -> None:
        os.fsync(self.fd)
        if OPEN_FILES_MOVE:
            self._temporary.replace(self._path)
            self._close_file()
        else:
            self._close_file()
            retry_while_in_use(lambda: self._temporary.replace(self._path))

    def close(self) -> None:
        """Close the file, and remove it unless it was committed; idempotent."""
        self._close_file()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BufferedWriter]:
    """Yield a file that takes the place of ``path`` at the end of the block; an error leaves the older file."""
    new = Replacement(path, mode)
    try:
        with os.fdopen(new.fd, "wb", closefd=False) as file:
            yield file
        new.commit()
    finally:
        new.close()


def temporary_path(path: Path) -> Path:
    """Return a free path in the folder of ``path``, with a name that :func:`remove_abandoned_files` recognises."""
    return path.with_name(f".abp-{secrets.token_hex(8)}")


def remove_abandoned_files(folder: Path) -> None:
    """Remove the half-written files of killed processes in a folder, as far as possible. It reads all names there."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if re.fullmatch(r"\.abp-[0-9a-f]{16}", entry.name):
                with suppress(OSError):
                    _remove_unlocked(Path(entry.path))


_remove_left_once = lru_cache(1000)(remove_abandoned_files)


def _remove_unlocked(path: Path) -> None:
    """Remove a half-written file, unless its writer still has it locked."""
    fd = open_file(path, os.O_RDWR)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or not try_lock(fd):
            return
        if OPEN_FILES_MOVE:
            # Remove the file while it is locked: a writer that cannot lock its new file makes another one.
            path.unlink()
            return
    finally:
        os.close(fd)

    # Windows removes no open file, and a writer there closes its file just before it renames it.
    seconds_since_write = time.time() - status.st_mtime
    max_renaming = 60
    if seconds_since_write > max_renaming:
        path.unlink()


#: Bytes read or written at a time.
PIECE = 1 << 20


async def pieces_of(opened: FileIO) -> AsyncGenerator[bytes, None]:
    """Yield pieces of at most :data:`PIECE` bytes, read in a thread. The file stays open."""
    while True:
        with map_os_errors("read a file", Path(str(opened.name)).parent):
            piece = await in_thread(opened.read, PIECE)
        if not piece:
            return
        yield piece
