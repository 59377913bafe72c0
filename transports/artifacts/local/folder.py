"""An open folder of a store, and the few things that are done in it. Systems have two ways: :mod:`.posix` and
:mod:`.portable`."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Self

from ..os_errors import write_all

__all__ = ["Folder", "OpenFile"]


class OpenFile(NamedTuple):
    """The name of a file, and its descriptor, which ``close()`` closes."""

    name: str
    fd: int
    close: Callable[[], None]


class Folder(ABC):
    """A folder that was opened, until :meth:`close`. Names are those of files in it, never paths; symlinks are not
    followed. Every method blocks and raises :class:`OSError`."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def root(cls, path: Path) -> Self:
        """Open a folder by its path. A symlink raises ``ELOOP`` (or ``ENOTDIR``), a file ``ENOTDIR``."""

    @abstractmethod
    def folder(self, name: str) -> Self:
        """Open a folder in this one, as :meth:`root`."""

    @abstractmethod
    def make_folder(self, name: str) -> None:
        """Make a folder, for this user alone."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    @abstractmethod
    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of a file, for bytes. A symlink raises ``ELOOP`` (or ``EMLINK``). ``flags`` may ask for a
        new one, for this user alone. It does not wait for the writer of a pipe."""

    @abstractmethod
    def stat(self, name: str) -> os.stat_result:
        """Return the status of whatever has the name."""

    @abstractmethod
    def unlink(self, name: str) -> bool:
        """Remove a file. Returns ``False`` if it was gone."""

    @abstractmethod
    def link(self, name: str, target: Self, new: str) -> None:
        """Give a file a second name in ``target``. Raises :class:`FileExistsError`, or one of
        :data:`~.names.NO_LINKS`."""

    @abstractmethod
    def move(self, name: str, target: Self, new: str) -> None:
        """Rename a file into ``target``, and replace the file that has the name there. Both must be closed."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of everything in it."""

    @abstractmethod
    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Return what is in it, one by one."""

    @abstractmethod
    def sync(self) -> None:
        """Write the names in it to the disk, where the file system can."""

    @abstractmethod
    def times(self) -> os.stat_result | None:
        """Return a status whose times tell of every change of its names; ``None`` where there are no such times."""

    @abstractmethod
    def owner(self) -> int | None:
        """Return the number of the user that the folder belongs to, unless that is this process's, or cannot be
        told."""

    @staticmethod
    @abstractmethod
    def changed(found: os.stat_result) -> float:
        """Return when a file got its name or lost another one, in seconds since 1970; about, where it is not kept."""

    def lstat(self, name: str) -> os.stat_result | None:
        """Return the status of a regular file, or ``None`` if no regular file has the name."""
        try:
            found = self.stat(name)
        except FileNotFoundError:
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    @abstractmethod
    def discard(self, name: str) -> bool:
        """Remove a file, if that can be done now: what some program has open on Windows is left to a sweep. Returns
        ``False`` if it was gone, or stays."""

    def create(self, name: str) -> int:
        """Make an empty file and return its descriptor, for writing and reading. Raises :class:`FileExistsError`."""
        return self.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)

    def write(self, name: str, data: bytes, *, sync: bool) -> None:
        """Write a new file, and sync it to the disk if asked to. Nothing is left of it after an error."""
        fd = self.create(name)
        try:
            try:
                write_all(fd, memoryview(data))
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except BaseException:
            self.unlink(name)
            raise
