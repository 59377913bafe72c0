"""Readable names in a store's root: hard links to blobs, or copies on file systems without hard links."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from ...errors import StoreError
from ..os_errors import write_all
from .tree import create, lstat, temporary_name, unlink

__all__ = ["NO_LINKS", "add_readable_name", "link", "move", "same_file"]

#: How file systems say that they have no hard links, or no more of them for this file.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_TRIES = 1000
_PIECE = 1 << 20


def add_readable_name(blob: str, blobs: int, root: int, staging: int, wanted: str, intent: str, undo: ExitStack) -> str:
    """Give a blob a readable name in ``root`` and return it: ``wanted``, or ``stem-2.ext``, ``stem-3.ext``… if taken.

    Nothing is overwritten. Folders are descriptors. A copy cannot be told from a file of the user, so its name and the
    blob's are written to the file ``intent`` in ``staging`` first, for a sweep if this process dies. What must be taken
    back after an error is pushed on ``undo``.
    """
    for name in _candidates(wanted):
        try:
            link(blob, blobs, name, root)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            unlink(intent, staging)
            undo.callback(unlink, intent, staging)
            with os.fdopen(create(intent, staging), "wb") as file:
                file.write(f"{blob}\n{name}".encode())
            if not _copy(blob, blobs, root, staging, name):
                continue
        undo.callback(unlink, name, root)
        return name
    raise StoreError(f"every variation of the file name {wanted} is taken; suggest another one")


def _candidates(wanted: str) -> Iterator[str]:
    stem, dot, extension = wanted.rpartition(".")
    yield wanted
    for number in range(2, _TRIES):
        yield f"{stem}-{number}{dot}{extension}"
    yield f"{stem}-{secrets.token_hex(8)}{dot}{extension}"


def _copy(blob: str, blobs: int, root: int, staging: int, name: str) -> bool:
    """Copy and sync under a temporary name, reserve the final one by an empty file, rename over it. Returns ``False``
    if the name is taken."""
    if _exists(name, root):
        return False
    temporary = temporary_name()
    source = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=blobs)
    try:
        target = create(temporary, staging)
        try:
            while chunk := os.read(source, _PIECE):
                write_all(target, memoryview(chunk))
            times = os.fstat(source)  # by equal times an untouched copy is told from a user's own file
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
        try:
            os.close(create(name, root))
        except FileExistsError:
            return False
        try:
            move(temporary, staging, name, root)
        except BaseException:
            unlink(name, root)
            raise
    finally:
        os.close(source)
        with suppress(OSError):
            unlink(temporary, staging)
    return True


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def same_file(name: str, folder: int, blob: str, blobs: int) -> bool:
    """Return whether a name leads to the blob: it is a second name of the same file, or an untouched copy."""
    named, content = lstat(name, folder), lstat(blob, blobs)
    if named is None or content is None:
        return False
    if os.path.samestat(named, content):
        return True
    # times are coarse (some milliseconds): two links may show the same time and not be the same file
    return named.st_nlink == 1 and (named.st_size, named.st_mtime_ns) == (content.st_size, content.st_mtime_ns)


def link(name: str, folder: int, new: str, target: int) -> None:
    """Give a file a second name. Raises :class:`FileExistsError`."""
    os.link(name, new, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)


def move(name: str, folder: int, new: str, target: int) -> None:
    """Rename a file, and replace the file that has the new name."""
    os.rename(name, new, src_dir_fd=folder, dst_dir_fd=target)
