"""Folders as descriptors: what is done in one is done there, wherever its path leads by then. Links are hard links."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from .folder import Folder

__all__ = ["PosixFolder"]

_NEEDED = ("open", "mkdir", "unlink", "link", "rename", "stat")
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
_FILE = _SAFE | getattr(os, "O_NONBLOCK", 0)


class PosixFolder(Folder):
    """A descriptor of a folder."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @staticmethod
    def is_possible() -> bool:
        """Return whether this system has all that this way needs."""
        by_descriptor = all(getattr(os, name) in os.supports_dir_fd for name in _NEEDED)
        return by_descriptor and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")

    @classmethod
    def root(cls, path: Path) -> Self:
        return cls(os.open(path, _FOLDER))

    def folder(self, name: str) -> Self:
        return type(self)(os.open(name, _FOLDER, dir_fd=self.fd))

    def make_folder(self, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=self.fd)

    def close(self) -> None:
        os.close(self.fd)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        return os.open(name, flags | _FILE, 0o600, dir_fd=self.fd)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def unlink(self, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def discard(self, name: str) -> bool:
        return self.unlink(name)

    def link(self, name: str, target: Self, new: str) -> None:
        os.link(name, new, src_dir_fd=self.fd, dst_dir_fd=target.fd, follow_symlinks=False)

    def move(self, name: str, target: Self, new: str) -> None:
        os.rename(name, new, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def names(self) -> list[str]:
        return os.listdir(self.fd)  # noqa: PTH208 - a descriptor

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self.fd)

    def sync(self) -> None:
        """SMB, FUSE and others refuse it for folders, and there is no other way to ask for it."""
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise

    def times(self) -> os.stat_result | None:
        return os.fstat(self.fd)

    def owner(self) -> int | None:
        owner = os.fstat(self.fd).st_uid
        return None if owner == os.geteuid() else owner

    @staticmethod
    def changed(found: os.stat_result) -> float:
        return found.st_ctime
