"""Guards a profile folder, which only one browser process can have open."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from ...errors import ProfileInUse, UsageError

__all__ = ["ALREADY_OPEN_MESSAGES", "lock_profile"]

#: Parts of the messages of browsers whose profile another process has open.
ALREADY_OPEN_MESSAGES = ("ProcessSingleton", "profile is already in use", "existing browser session", "already running")
_locked: set[Path] = set()


@contextlib.contextmanager
def lock_profile(folder: Path) -> Iterator[None]:
    """Reserve the profile ``folder`` until the block ends. A missing folder is created with mode 0700.

    Raises :class:`~transports.errors.ProfileInUse` if another browser, of this process or not, has it open: a browser
    started on an open profile would not only fail, it would open a window in the one that has it. Raises
    :class:`~transports.errors.UsageError` if ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"profile= must be a folder, and {folder} is none")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = folder.resolve()
    locked = any(_is_locked(real / name) for name in ("SingletonLock", "lock"))
    if real in _locked or locked or any(_is_held(real / name) for name in ("lockfile", "parent.lock")):
        raise ProfileInUse.at(folder)
    _locked.add(real)
    try:
        yield
    finally:
        _locked.discard(real)


def _is_locked(lock: Path) -> bool:
    """Whether a lock link of Chromium (``host-pid``) or Firefox (``address:+pid``) names a living process here.

    A lock of another machine counts as free: the browser itself decides about that one.
    """
    try:
        owner = str(lock.readlink())
    except OSError:
        return False
    host, _, pid = owner.rpartition("+" if "+" in owner else "-")
    here = owner[:1].isdigit() or host == socket.gethostname()
    return here and pid.isdigit() and psutil.pid_exists(int(pid))


def _is_held(lock: Path) -> bool:
    """Whether a browser on Windows has its lock file open, which nobody else can open then."""
    try:
        with lock.open("rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False
