"""The folders of a store, opened so that no symlink can redirect an access.

Every access below a store's root goes through folders (:class:`~.folder.Folder`), which were opened one by one without
following symlinks.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

from ...errors import StoreError
from ..os_errors import OTHER_FOLDER
from ..system import try_lock
from .folder import Folder
from .portable import PortableFolder
from .posix import PosixFolder

__all__ = ["SYMLINK", "LockBusy", "OpenFolders", "Tree", "temporary_name", "use"]

#: How systems say that they do not follow a symlink.
SYMLINK = (errno.ELOOP, errno.EMLINK)
_LOCK_SECONDS = 60.0  # far more than a commit takes, which reads one blob at most
#: How this system opens folders.
_way: type[Folder] = PosixFolder if PosixFolder.is_possible() else PortableFolder


class Tree:
    """The folders of one store. With ``own``, a root that belongs to another user is refused."""

    def __init__(self, root: Path, *, own: bool) -> None:
        self.root = root
        self._own = own

    @contextmanager
    def folder(self, *parts: str, create: bool = False) -> Iterator[Folder]:
        """Open ``root/part/part…`` and give it.

        With ``create``, missing folders are made (mode 0700); otherwise :class:`FileNotFoundError` is raised. Raises
        :class:`~transports.errors.StoreError` if a symlink or a file has the name of a folder.
        """
        folder = self._open_root(create)
        try:
            for depth in range(1, len(parts) + 1):
                below = self._open(parts[:depth], folder, create)
                folder.close()
                folder = below
            yield folder
        finally:
            folder.close()

    def open(self, parts: tuple[str, ...], parent: Folder | None) -> Folder:
        """Open one folder in an open one, the root in none. A missing one is made; errors are those of
        :meth:`folder`."""
        return self._open_root(create=True) if parent is None else self._open(parts, parent, create=True)

    def _open_root(self, create: bool) -> Folder:
        root = self._open((), None, create)
        if self._own and (owner := root.owner()) is not None:
            root.close()
            raise StoreError(
                f"the folder {self.root} belongs to another user (uid {owner}) and is not used; {OTHER_FOLDER}"
            )
        return root

    def _open(self, parts: tuple[str, ...], parent: Folder | None, create: bool) -> Folder:
        try:
            return _way.root(self.root) if parent is None else parent.folder(parts[-1])
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            if error.errno in (*SYMLINK, errno.ENOTDIR):
                raise _not_a_folder(self.root.joinpath(*parts)) from error
            raise
        with suppress(FileExistsError):  # another process was faster
            if parent is None:
                self.root.parent.mkdir(parents=True, exist_ok=True)
                self.root.mkdir(mode=0o700)
            else:
                parent.make_folder(parts[-1])
        if parent is not None:
            parent.sync()
        return self._open(parts, parent, create=False)


class OpenFolders:
    """The folders of a store, each opened, and made if it is missing, when it is first asked for. All are
    closed at the end of the ``with`` block. Errors are those of :meth:`Tree.folder`."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._opened: dict[tuple[str, ...], Folder] = {}
        self._state: tuple[int, ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def renew(self) -> None:
        """Close all before another round of work if one has been removed or replaced since they were opened."""
        if not self._state or self._look() != self._state:
            self._close()

    def _look(self) -> tuple[int, ...] | None:
        """Return what changes if another folder takes the place of one that is open."""
        root = self._opened.get(())
        if root is None:
            return None
        try:
            top = os.lstat(self._tree.root)
            inner = root.stat(".abp")  # with the time of the last change of its names, which two changes may share
            meta = self._opened[(".abp",)].stat("meta")
        except (OSError, KeyError):
            return None
        return top.st_dev, top.st_ino, inner.st_ino, inner.st_mtime_ns, meta.st_ino

    def _close(self) -> None:
        while self._opened:
            with suppress(OSError):  # whatever a disk says, it is closed
                self._opened.popitem()[1].close()

    def at(self, *parts: str) -> Folder:
        """Return ``root/part/part…``."""
        folder = self._opened.get(parts)
        if folder is None:
            folder = self._opened[parts] = self._tree.open(parts, self.at(*parts[:-1]) if parts else None)
            if parts == (".abp",):  # before those in it are opened
                self._state = self._look()
        return folder

    @contextmanager
    def lock(self, name: str, *, wait: bool) -> Iterator[None]:
        """Exclude every other thread and process that takes the same lock.

        The system frees the lock of a process that dies. Raises :class:`~transports.errors.StoreError`, retryable, if
        the lock is not free after a minute; without ``wait``, :class:`LockBusy` if it is not free.
        """
        fd = self.at(".abp", "locks").open(name, os.O_RDWR | os.O_CREAT)
        try:
            _lock(fd, self._tree.root, wait)
            yield
        finally:
            os.close(fd)


def use(opened: OpenFolders | None, tree: Tree) -> AbstractContextManager[OpenFolders]:
    """Return ``opened``, which stays open, or folders that are closed at the end of the block."""
    return OpenFolders(tree) if opened is None else nullcontext(opened)


class LockBusy(Exception):
    """A lock is taken, and should not be waited for."""


def _lock(fd: int, root: Path, wait: bool) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    pause = 0.0005
    while True:
        if try_lock(fd):
            return
        if not wait:
            raise LockBusy
        if time.monotonic() > end:  # a stopped process must not hold up everybody for ever
            raise StoreError(
                f"another process keeps a lock in {root}; end it (fuser {root}/.abp/locks/*) and try again",
                retryable=True,
            )
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
