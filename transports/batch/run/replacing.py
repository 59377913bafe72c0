"""Files that take the place of older ones at once, whenever their writer is killed."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write what takes the place of ``path`` at the end of the block; an error leaves the older file.
    What processes of this machine left half-written as they were killed is removed. Raises :class:`OSError`."""
    ours = f".{path.name}.{socket.gethostname()}."
    for left in path.parent.iterdir():
        pid = left.name.removeprefix(ours).partition(".")[0]
        if left.name.startswith(ours) and pid.isdigit() and not psutil.pid_exists(int(pid)):
            left.unlink(missing_ok=True)
    new = path.with_name(f"{ours}{os.getpid()}.{uuid.uuid4().hex[:8]}")  # a pid alone may be another container's, too
    try:
        yield new
        new.replace(path)
    finally:
        with suppress(OSError):  # the first error counts
            new.unlink(missing_ok=True)
