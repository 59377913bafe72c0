"""The portable way of the local store, taken on a system that has the POSIX way; and open files stay, as on Windows."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

from transports.artifacts.local._tree import PortableFolder

_taken = False


@contextmanager
def portable_way() -> Iterator[None]:
    """Take it while the context lasts: folders are paths, there are no hard links, and no file that this process has
    open can be renamed or removed."""
    global _taken
    _install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transports.artifacts.local._tree._folder_class", PortableFolder)
        patch.setattr("transports.artifacts._files.OPEN_FILES_MOVE", False)
        before, _taken = _taken, True
        try:
            yield
        finally:
            _taken = before


@cache
def _install() -> None:
    sys.addaudithook(_refuse)  # for good: it asks each time


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _taken and event in ("os.remove", "os.rename"):
        for path in arguments[: 1 if event == "os.remove" else 2]:
            if isinstance(path, str) and _is_open(path):
                raise PermissionError(errno.EACCES, "the file is open", path)


def _is_open(path: str) -> bool:
    try:
        stat = os.lstat(path)
    except OSError:
        return False
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(descriptor.name)), stat):
                return True
    return False
