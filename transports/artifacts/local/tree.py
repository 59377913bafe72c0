"""Folders of a store, opened so that no symlink can redirect an access. POSIX only.

Every access below a store's root goes through file descriptors of folders, which were opened one by one without
following symlinks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import StoreError
from ..os_errors import OTHER_FOLDER, write_all

__all__ = [
    "Tree",
    "lstat",
    "sync_folder",
    "temporary_name",
    "unlink",
    "write_file",
]


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_SECONDS = 60.0  # far more than a commit takes, which reads one blob at most


class Tree:
    """The folders of one store. With ``own``, a root that belongs to another user is refused."""

    def __init__(self, root: Path, *, own: bool) -> None:
        self.root = root
        self._own = own

    @contextmanager
    def folder(self, *parts: str, create: bool = False) -> Iterator[int]:
        """Open ``root/part/part…`` and give its descriptor.

        With ``create``, missing folders are made (mode 0700); otherwise :class:`FileNotFoundError` is raised. Raises
        :class:`~transports.errors.StoreError` if a symlink or a file has the name of a folder.
        """
        fd = self._open_root(create)
        try:
            for depth in range(1, len(parts) + 1):
                below = self._open(parts[:depth], fd, create)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def folders(self, *places: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
        """Open the root and folders below ``.abp``, and give their descriptors, the root's first.

        Missing folders are made; errors are those of :meth:`folder`. Each folder on the way is opened once.
        """
        opened: dict[tuple[str, ...], int] = {}

        def reach(parts: tuple[str, ...]) -> int:
            if parts not in opened:
                opened[parts] = self._open(parts, reach(parts[:-1]), create=True)
            return opened[parts]

        try:
            opened[()] = self._open_root(create=True)
            yield (opened[()], *(reach((".abp", *parts)) for parts in places))
        finally:
            for fd in opened.values():
                os.close(fd)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude every other thread and process that takes the same lock.

        The system frees the lock of a process that dies. Raises :class:`~transports.errors.StoreError`, retryable, if
        the lock is not free after a minute.
        """
        with self.folder(".abp", "locks", create=True) as folder:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            _flock(fd, self.root)
            yield
        finally:
            os.close(fd)

    def _open_root(self, create: bool) -> int:
        fd = self._open((), None, create)
        owner = os.fstat(fd).st_uid
        if self._own and owner != os.geteuid():
            os.close(fd)
            raise StoreError(
                f"the folder {self.root} belongs to another user (uid {owner}) and is not used; {OTHER_FOLDER}"
            )
        return fd

    def _open(self, parts: tuple[str, ...], parent: int | None, create: bool) -> int:
        name = parts[-1] if parts else str(self.root)
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise _not_a_folder(self.root.joinpath(*parts)) from error
            raise
        if parent is None:
            self.root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(name, 0o700, dir_fd=parent)
        if parent is not None:
            sync_folder(parent)
        return self._open(parts, parent, create=False)


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


def _not_a_folder(path: Path) -> StoreError:
    if path.is_symlink():
        return StoreError(
            f"{path} is a symlink and is not followed: remove it, or name the real folder "
            f"({path.resolve()}) with ABP_OUTPUT_DIR (--out, store=)"
        )
    return StoreError(f"{path} is not a folder; remove it, or {OTHER_FOLDER}")


def temporary_name() -> str:
    """Return a name in ``staging/``: the writer's process id, by which a sweep tells whether it lives, and random
    digits."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def create(name: str, folder: int) -> int:
    """Make an empty file and return its descriptor, for writing and reading. Raises :class:`FileExistsError`."""
    return os.open(name, _NEW | os.O_RDWR, 0o600, dir_fd=folder)


def write_file(folder: int, name: str, data: bytes, *, sync: bool) -> None:
    """Write a new file, and sync it to the disk if asked to. Nothing is left of it after an error."""
    fd = create(name, folder)
    try:
        write_all(fd, memoryview(data))
        if sync:
            os.fsync(fd)
    except BaseException:
        unlink(name, folder)
        raise
    finally:
        os.close(fd)


def sync_folder(folder: int) -> None:
    """Sync the names in a folder to the disk, where the file system can: SMB, FUSE and others refuse it for folders,
    and there is no other way to ask for it."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def unlink(name: str, folder: int) -> bool:
    """Remove a file. Returns ``False`` if it was gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def lstat(name: str, folder: int) -> os.stat_result | None:
    """Return the status of a regular file, or ``None`` if no regular file has the name."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
