"""Files that somebody else may have made: opened so that none is waited for, and none is without end."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO

__all__ = ["open_regular", "read_regular", "regular_file"]

#: Be inherited by no child, wait for no writer of a pipe, change no bytes: where there is a flag.
_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("CLOEXEC", "NONBLOCK", "BINARY", "NOINHERIT"))


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """Return a regular file, open for reading. A pipe is not waited for, and a device, which may have no end, is not
    read. Raises :class:`OSError`, whose ``strerror`` says what is wrong, for anything else and for a name that no file
    can have."""
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except ValueError as error:  # NUL, half of a surrogate pair
        raise OSError(errno.EINVAL, str(error)) from None
    return regular_file(fd, os.fspath(path))


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a regular file. Raises :class:`OSError` as :func:`open_regular`, and for more than ``most``
    bytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", os.fspath(path))
        return file.readall()


def regular_file(fd: int, name: str) -> FileIO:
    """Return the file of a descriptor, which is that one's from then on, for reading and under a ``name``. Closes it
    and raises :class:`OSError` for anything but a regular file."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", name)
    return FileIO(name, opener=lambda *_: fd)
