"""Folders as paths, for systems that open no folders: Windows. There are no links, so names are copies of content.

A symlink or a junction is refused when a folder or a file is opened; one that takes a folder's place after that is
followed, which no function of such a system prevents. A file that some program has open can be neither renamed nor
removed there, and virus scanners open what is new: that is tried again for a while.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self, TypeVar

from ..system import is_link, open_file
from .folder import Folder

__all__ = ["PortableFolder"]

T = TypeVar("T")

#: Seconds for which a file that is open elsewhere is waited for, and between two tries.
_PATIENCE, _PAUSE = 1.0, 0.01


class PortableFolder(Folder):
    """The path of a folder."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        if is_link(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116 - raises FileNotFoundError
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._path = path

    @classmethod
    def root(cls, path: Path) -> Self:
        return cls(str(path))

    def folder(self, name: str) -> Self:
        return type(self)(self._at(name))

    def make_folder(self, name: str) -> None:
        os.mkdir(self._at(name), 0o700)  # noqa: PTH102 - a Path for each call costs more than the call

    def close(self) -> None:
        """There is nothing to close."""

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        return _patiently(lambda: open_file(self._at(name), flags))

    def stat(self, name: str) -> os.stat_result:
        return os.lstat(self._at(name))

    def unlink(self, name: str) -> bool:
        try:
            _patiently(lambda: os.unlink(self._at(name)))  # noqa: PTH108
        except FileNotFoundError:
            return False
        return True

    def discard(self, name: str) -> bool:
        try:
            os.unlink(self._at(name))  # noqa: PTH108
        except (FileNotFoundError, PermissionError):
            return False
        return True

    def link(self, name: str, target: Self, new: str) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def move(self, name: str, target: Self, new: str) -> None:
        to = target._at(new)
        _patiently(lambda: os.replace(self._at(name), to))  # noqa: PTH105
        with suppress(OSError):  # it is moved, and the time is a hint: see `changed`
            os.utime(to, ns=(time.time_ns(), os.lstat(to).st_mtime_ns))

    def names(self) -> list[str]:
        return os.listdir(self._path)  # noqa: PTH208

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._path)

    def sync(self) -> None:
        """NTFS writes names before what follows, and has no way to ask for it."""

    def times(self) -> os.stat_result | None:
        return None  # on Windows `ctime` is when the folder was made

    def owner(self) -> int | None:
        return None  # each user of Windows has a temp folder

    @staticmethod
    def changed(found: os.stat_result) -> float:
        """``ctime`` may be when the file was made; ``atime`` is set when it is moved."""
        return max(found.st_ctime, found.st_atime)

    def _at(self, name: str) -> str:
        if os.path.basename(name) != name or name in ("", ".", "..") or ":" in name:  # noqa: PTH119
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)  # another folder, or a stream of a file
        return os.path.join(self._path, name)  # noqa: PTH118


def _patiently(work: Callable[[], T]) -> T:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except PermissionError:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)
