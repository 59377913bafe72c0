"""A user's profile folder: one process at a time can have it open."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from ...errors import ProfileInUse, UsageError

__all__ = ["ALREADY_OPEN", "claimed"]

#: What browsers say when another process has the profile open.
ALREADY_OPEN = ("ProcessSingleton", "profile is already in use", "existing browser session", "already running")
_ours: set[Path] = set()


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The profile is this browser's until the block ends; the folder is made if it is not there, for its user alone.

    Raises :class:`~transports.errors.ProfileInUse`. A browser started on an open profile would not only fail: it would
    open a window in the one that has it.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"profile= must be a folder, and {folder} is none")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = folder.resolve()
    if real in _ours or any(_held(real / name) for name in ("SingletonLock", "lock")):
        raise ProfileInUse.at(folder)
    _ours.add(real)
    try:
        yield
    finally:
        _ours.discard(real)


def _held(lock: Path) -> bool:
    """Whether a lock of Chromium (``host-pid``) or Firefox (``address:+pid``) is a living process's. Locks of other
    machines are left to the browser to judge."""
    try:
        owner = str(lock.readlink())
    except OSError:
        return False
    host, _, pid = owner.rpartition("+" if "+" in owner else "-")
    here = owner[:1].isdigit() or host == socket.gethostname()
    return here and pid.isdigit() and psutil.pid_exists(int(pid))
