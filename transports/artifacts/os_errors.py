"""Errors of the operating system, mapped to :class:`~transports.errors.StoreError` with advice; small file helpers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError, StoreFull

__all__ = ["OTHER_FOLDER", "map_os_errors", "may_be_running", "write_all"]

OTHER_FOLDER = "name another folder with ABP_OUTPUT_DIR (--out, store=)"


_ADVICE = {
    errno.EACCES: f"make the folder writable, or {OTHER_FOLDER}",
    errno.EPERM: f"make the folder writable, or {OTHER_FOLDER}",
    errno.EROFS: f"the file system is read-only; {OTHER_FOLDER}",
    errno.ENAMETOOLONG: f"the path is too long; {OTHER_FOLDER}",
    errno.EMFILE: "too many files are open in this process; raise its limit (ulimit -n) or run fewer calls at once",
    errno.ENFILE: "too many files are open on this machine; close some programs and try again",
    errno.EFBIG: "the file system or a limit (ulimit -f) forbids a file of this size",
    errno.ENOLCK: f"the file system cannot lock files; {OTHER_FOLDER}",
    errno.EOPNOTSUPP: f"the file system cannot do this; {OTHER_FOLDER}",
    errno.EIO: "the disk failed; check it",
}


@contextmanager
def map_os_errors(action: str, folder: Path) -> Iterator[None]:
    """Map an :class:`OSError` in the block to a :class:`~transports.errors.StoreError` that says what to do.

    The message begins with "cannot", ``action`` and ``folder``. A full disk is a
    :class:`~transports.errors.StoreFull`; too many open files are ``retryable``.
    """
    try:
        yield
    except OSError as error:
        code, reason = error.errno or 0, error.strerror or str(error)
        details: dict[str, object] = {"folder": str(folder), "errno": errno.errorcode.get(code, str(code))}
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(
                f"cannot {action} in {folder}: no space is left; delete artifacts or {OTHER_FOLDER}", details=details
            ) from error
        advice = _ADVICE.get(code, f"check the folder, or {OTHER_FOLDER}")
        raise StoreError(
            f"cannot {action} in {folder}: {reason}; {advice}",
            retryable=code in (errno.EMFILE, errno.ENFILE),
            details=details,
        ) from error


def write_all(fd: int, data: memoryview) -> None:
    """Write all of ``data``: a single ``os.write`` may take only a part of it."""
    while data:
        data = data[os.write(fd, data) :]


def may_be_running(pid: int, modified: float) -> bool:
    """Return whether the writer of a file, process ``pid``, may still run.

    ``modified`` is when the file was written last, in seconds since 1970. A process that started after that only has
    the same number. ``True`` where it cannot be told.
    """
    import psutil  # here, because the import takes 20 ms and few programs get this far

    try:
        return bool(psutil.Process(pid).create_time() <= modified)
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OverflowError):
        return True
