"""Files that take the place of older ones at once, whenever their writer is killed."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["half_written", "remove_left", "replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write what takes the place of ``path`` at the end of the block; an error leaves the older file.
    What processes of this machine left half-written as they were killed is removed. Raises :class:`OSError`."""
    remove_left(path)
    new = half_written(path)
    try:
        yield new
        new.replace(path)
    finally:
        with suppress(OSError):  # the first error counts
            new.unlink(missing_ok=True)


def half_written(path: Path) -> Path:
    """Return a new name beside ``path`` for what is not whole yet. :func:`remove_left` finds it by ``path``."""
    return path.with_name(f"{_ours(path)}{os.getpid()}.{uuid.uuid4().hex[:8]}")  # a pid may be another container's, too


def remove_left(path: Path) -> None:
    """Remove what processes of this machine left at names of :func:`half_written` as they were killed. Looks at all of
    the folder. Raises :class:`OSError`."""
    ours = _ours(path)
    for left in path.parent.iterdir():
        pid = left.name.removeprefix(ours).partition(".")[0]
        if left.name.startswith(ours) and pid.isdigit() and not psutil.pid_exists(int(pid)):
            left.unlink(missing_ok=True)


def _ours(path: Path) -> str:
    return f".{path.name}.{socket.gethostname()}."
