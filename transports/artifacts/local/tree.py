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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

from ...errors import StoreError
from ..os_errors import OTHER_FOLDER, write_all

__all__ = [
    "SYMLINK",
    "LockBusy",
    "OpenFolders",
    "Tree",
    "lstat",
    "sync_folder",
    "temporary_name",
    "unlink",
    "use",
    "write_file",
]


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: How systems say that they do not follow a symlink.
SYMLINK = (errno.ELOOP, errno.EMLINK)
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

    def open(self, parts: tuple[str, ...], parent: int | None) -> int:
        """Open one folder in an open one, the root in none, and return its descriptor. A missing one is made; errors
        are those of :meth:`folder`."""
        return self._open_root(create=True) if parent is None else self._open(parts, parent, create=True)

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
            if error.errno in (*SYMLINK, errno.ENOTDIR):
                raise _not_a_folder(self.root.joinpath(*parts)) from error
            raise
        if parent is None:
            self.root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(name, 0o700, dir_fd=parent)
        if parent is not None:
            sync_folder(parent)
        return self._open(parts, parent, create=False)


class OpenFolders:
    """Descriptors of a store's folders, each opened, and made if it is missing, when it is first asked for. All are
    closed at the end of the ``with`` block. Errors are those of :meth:`Tree.folder`."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._opened: dict[tuple[str, ...], int] = {}
        self._state: tuple[int, ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close(0)

    def renew(self) -> None:
        """Close what must not stay open from one round of work to the next: the folders of contents, since there may be
        very many, and all if one has been removed or replaced since they were opened."""
        self._close(3 if self._state and self._look() == self._state else 0)

    def _look(self) -> tuple[int, ...] | None:
        """Return what changes if another folder takes the place of one that is open."""
        root = self._opened.get(())
        if root is None:
            return None
        try:
            top = os.lstat(self._tree.root)
            inner = os.stat(".abp", dir_fd=root, follow_symlinks=False)  # with the time of the last change of its names
        except OSError:
            return None
        return top.st_dev, top.st_ino, inner.st_ino, inner.st_mtime_ns

    def _close(self, depth: int) -> None:
        """Close the folders that lie at least so deep."""
        for parts in [parts for parts in self._opened if len(parts) >= depth]:
            with suppress(OSError):  # whatever a disk says, it is closed
                os.close(self._opened.pop(parts))

    def fd(self, *parts: str) -> int:
        """Return the descriptor of ``root/part/part…``."""
        fd = self._opened.get(parts)
        if fd is None:
            fd = self._opened[parts] = self._tree.open(parts, self.fd(*parts[:-1]) if parts else None)
            if parts == (".abp",):  # before those in it are opened
                self._state = self._look()
        return fd

    @contextmanager
    def lock(self, name: str, *, wait: bool) -> Iterator[None]:
        """Exclude every other thread and process that takes the same lock.

        The system frees the lock of a process that dies. Raises :class:`~transports.errors.StoreError`, retryable, if
        the lock is not free after a minute; without ``wait``, :class:`LockBusy` if it is not free.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self.fd(".abp", "locks"))
        try:
            _flock(fd, self._tree.root, wait)
            yield
        finally:
            os.close(fd)


def use(opened: OpenFolders | None, tree: Tree) -> AbstractContextManager[OpenFolders]:
    """Return ``opened``, which stays open, or folders that are closed at the end of the block."""
    return OpenFolders(tree) if opened is None else nullcontext(opened)


class LockBusy(Exception):
    """A lock is taken, and should not be waited for."""


def _flock(fd: int, root: Path, wait: bool) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    pause = 0.0005
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise LockBusy from None
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
