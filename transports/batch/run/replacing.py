"""Files that take the place of older ones at once, whenever their writer is killed."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["in_place_of", "remove_left", "replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write what takes the place of ``path`` at the end of the block; an error leaves the older file.
    What processes of this machine left half-written as they were killed is removed. Raises :class:`OSError`."""
    remove_left(path)
    with in_place_of(path, path) as new:
        yield new


@contextmanager
def in_place_of(path: Path, mark: Path) -> Iterator[Path]:
    """The same without a look for what was left: :func:`remove_left` finds that by ``mark``, a path in the folder."""
    # a pid alone may be another container's, too
    new = path.with_name(f"{_ours(mark)}{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        yield new
        new.replace(path)
    finally:
        with suppress(OSError):  # the first error counts
            new.unlink(missing_ok=True)


def remove_left(path: Path) -> None:
    """Remove what processes of this machine left half-written as they were killed. Looks at all of the folder. Raises
    :class:`OSError`."""
    ours = _ours(path)
    for left in path.parent.iterdir():
        pid = left.name.removeprefix(ours).partition(".")[0]
        if left.name.startswith(ours) and pid.isdigit() and not psutil.pid_exists(int(pid)):
            left.unlink(missing_ok=True)


def _ours(path: Path) -> str:
    return f".{path.name}.{socket.gethostname()}."
