"""Safe reading of files from other parties: only regular files, so that no read blocks or goes on without end; and
paths below a home folder, which a user may not have."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from ..errors import UsageError

#: Flags, as far as the system has them: not inherited by child processes, no wait for a pipe's writer, bytes unchanged.
_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("CLOEXEC", "NONBLOCK", "BINARY", "NOINHERIT"))


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """Open a regular file for reading. Other files are refused: a pipe would block, and a device may have no end. The
    ``strerror`` of the :class:`OSError` has the reason, also for an impossible name."""
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except ValueError as error:
        # The name has NUL or half of a surrogate pair.
        raise OSError(errno.EINVAL, str(error)) from None
    return regular_file(fd, os.fspath(path))


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises :class:`OSError` as :func:`open_regular` does, and for a file of
    more than ``max_bytes``."""
    pieces: list[bytes] = []
    with open_regular(path) as file:
        # The size is only a hint: a file may grow, and some file systems report 0.
        size = os.fstat(file.fileno()).st_size
        piece_size = max(size, 1 << 20)
        remaining = max_bytes
        while size <= max_bytes and remaining >= 0:
            # One byte more than allowed shows that the file is too large.
            piece = file.read(min(remaining, piece_size) + 1)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            remaining -= len(piece)
    raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", os.fspath(path))


def regular_file(fd: int, name: str) -> FileIO:
    """Return a file object for reading that owns the descriptor ``fd``. If it is not a regular file, the descriptor is
    closed and :class:`OSError` is raised."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    # An opener is used since ``FileIO(fd)`` would have the number as its name.
    return FileIO(name, opener=lambda *_: fd)


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` or ``~USER`` replaced by the home folder. Raises
    :class:`~transports.errors.UsageError` if the user or the home folder is unknown, and for an empty text: it may come
    from an unset variable of a shell, and as a path it would be the current folder."""
    if not os.fspath(path):
        raise UsageError("the name of a file or folder is empty; . is the current folder")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{os.fspath(path)!r}: unknown home folder; write the whole path") from None


def user_folder(find: Callable[[], Path]) -> Path:
    """Return the folder that ``find``, a function of ``platformdirs``, returns. Raises :class:`OSError` for a user
    without a home folder."""
    try:
        folder = find()
    except RuntimeError:
        folder = Path()
    # Older versions of platformdirs return a relative path for such a user.
    if not folder.is_absolute():
        raise FileNotFoundError(errno.ENOENT, "this user has no home folder; set HOME", "~")
    return folder


def temp_folder() -> Path:
    """Return the folder for temporary files. Raises :class:`~transports.errors.UsageError` if this process can write to
    none."""
    import tempfile  # late: most programs that load this module make no temporary files

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise UsageError(
            "no folder for temporary files can be written (is the file system read-only, or full?); "
            "set TMPDIR to one that can"
        ) from None
