"""Folders that nobody can redirect, what a disk's refusals mean, and blocking work off the event loop.

Every access below a store's root goes through file descriptors of folders that were opened one by one without following
symlinks. POSIX only.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..errors import StoreError, StoreFull

__all__ = [
    "Tree",
    "alive",
    "in_thread",
    "lstat",
    "reporting",
    "temporary_name",
    "unlink",
    "write_all",
    "write_file",
]

P = ParamSpec("P")
T = TypeVar("T")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_SECONDS = 60.0  # whoever has a lock reads one blob at most
_OTHER = "name another folder with ABP_OUTPUT_DIR (--out, store=)"
_ADVICE = {
    errno.EACCES: f"make the folder writable, or {_OTHER}",
    errno.EPERM: f"make the folder writable, or {_OTHER}",
    errno.EROFS: f"the file system is read-only; {_OTHER}",
    errno.ENAMETOOLONG: f"the path is too long; {_OTHER}",
    errno.EMFILE: "too many files are open in this process; raise its limit (ulimit -n) or run fewer calls at once",
    errno.ENFILE: "too many files are open on this machine; close some programs and try again",
    errno.EFBIG: "the file system or a limit (ulimit -f) forbids a file of this size",
    errno.ENOLCK: f"the file system cannot lock files; {_OTHER}",
    errno.EOPNOTSUPP: f"the file system cannot do this; {_OTHER}",
    errno.EIO: "the disk failed; check it",
}


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """:func:`asyncio.to_thread` that returns only when the thread has: a cancelled caller may then remove what the
    thread was using."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # one is raised below, whatever their number
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what the caller gets
        raise


@contextmanager
def reporting(action: str, folder: Path) -> Iterator[None]:
    """Turn an :class:`OSError` into a :class:`~transports.errors.StoreError` that says what to do; ``action`` follows
    "cannot"."""
    try:
        yield
    except OSError as error:
        code, reason = error.errno or 0, error.strerror or str(error)
        details: dict[str, object] = {"folder": str(folder), "errno": errno.errorcode.get(code, str(code))}
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(
                f"cannot {action} in {folder}: no space is left; delete artifacts or {_OTHER}", details=details
            ) from error
        advice = _ADVICE.get(code, f"check the folder, or {_OTHER}")
        raise StoreError(
            f"cannot {action} in {folder}: {reason}; {advice}",
            retryable=code in (errno.EMFILE, errno.ENFILE),
            details=details,
        ) from error


class Tree:
    """The folders of one store. ``own``: refuse a root that belongs to another user."""

    def __init__(self, root: Path, *, own: bool) -> None:
        self.root = root
        self._own = own

    @contextmanager
    def folder(self, *parts: str, create: bool = False) -> Iterator[int]:
        """Descriptor of ``root/part/part…``. Raises :class:`FileNotFoundError` if it is missing and not to be made, and
        :class:`~transports.errors.StoreError` if something else stands in its place."""
        fd = self._open_root(create)
        try:
            for depth, part in enumerate(parts, 1):
                below = self._open(part, fd, self.root.joinpath(*parts[:depth]), create)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude every other thread and process that asks for the same name; the system frees the lock of one that
        dies."""
        with self.folder(".abp", "locks", create=True) as folder:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            _flock(fd, self.root)
            yield
        finally:
            os.close(fd)

    def _open_root(self, create: bool) -> int:
        fd = self._open(str(self.root), None, self.root, create)
        owner = os.fstat(fd).st_uid
        if self._own and owner != os.geteuid():
            os.close(fd)
            raise StoreError(f"the folder {self.root} belongs to another user (uid {owner}) and is not used; {_OTHER}")
        return fd

    def _open(self, name: str, parent: int | None, shown: Path, create: bool) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise _in_the_way(shown) from error
            raise
        if parent is None:
            shown.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(name, 0o700, dir_fd=parent)
        if parent is not None:
            os.fsync(parent)
        return self._open(name, parent, shown, create=False)


def _flock(fd: int, root: Path) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    pause = 0.0005
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:  # a stopped process must not hold up everybody for ever
                raise StoreError(
                    f"another process keeps a lock in {root}; end it (fuser {root}/.abp/locks/*) and try again",
                    retryable=True,
                ) from None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def _in_the_way(path: Path) -> StoreError:
    if path.is_symlink():
        return StoreError(
            f"{path} is a symlink and is not followed: remove it, or name the real folder "
            f"({path.resolve()}) with ABP_OUTPUT_DIR (--out, store=)"
        )
    return StoreError(f"{path} is not a folder; remove it, or {_OTHER}")


def temporary_name() -> str:
    """A name in ``staging/``: the writer's process id, so that a sweep can tell whether it lives, and chance."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def create(name: str, folder: int) -> int:
    """Descriptor of a new, empty file that can be written and read."""
    return os.open(name, _NEW | os.O_RDWR, 0o600, dir_fd=folder)


def write_all(fd: int, data: memoryview) -> None:
    """Write all of ``data``; one call may take less than it is given."""
    while data:
        data = data[os.write(fd, data) :]


def write_file(folder: int, name: str, data: bytes) -> None:
    """A new file with its content on the disk (fsync). Nothing is left of it after an error."""
    fd = create(name, folder)
    try:
        write_all(fd, memoryview(data))
        os.fsync(fd)
    except BaseException:
        unlink(name, folder)
        raise
    finally:
        os.close(fd)


def unlink(name: str, folder: int) -> bool:
    """Remove a name; ``False`` if it was gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def lstat(name: str, folder: int) -> os.stat_result | None:
    """Status of a regular file, or ``None`` if there is none of that name."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def alive(pid: int, modified: float) -> bool:
    """Whether the writer of a file may still run; a process that started after the last write only has its number."""
    import psutil  # takes 20 ms, and is needed once in a blue moon

    try:
        return bool(psutil.Process(pid).create_time() <= modified)
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OverflowError):
        return True
