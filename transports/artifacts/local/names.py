"""Readable names in a store's root: hard links to blobs, or copies on file systems without hard links."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from ...errors import StoreError
from ..os_errors import write_all
from .folder import Folder
from .tree import temporary_name

__all__ = ["NO_LINKS", "add_readable_name", "discard_name", "place", "same_file"]

#: How file systems say that they have no hard links, or no more of them for this file.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_TRIES = 1000
_PIECE = 1 << 20


def add_readable_name(
    blob: str, blobs: Folder, root: Folder, staging: Folder, wanted: str, intent: str, undo: ExitStack
) -> str:
    """Give a blob a readable name in ``root`` and return it: ``wanted``, or ``stem-2.ext``, ``stem-3.ext``… if taken.

    Nothing is overwritten. A copy cannot be told from a file of the user, so its name and the
    blob's are written to the file ``intent`` in ``staging`` first, for a sweep if this process dies. What must be taken
    back after an error is pushed on ``undo``.
    """
    for name in _candidates(wanted):
        try:
            blobs.link(blob, root, name)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            staging.unlink(intent)
            undo.callback(staging.unlink, intent)
            staging.write(intent, _intent(blob, name), sync=False)
            if not _copy(blob, blobs, root, staging, name):
                continue
        undo.callback(root.unlink, name)
        return name
    raise StoreError(f"every variation of the file name {wanted} is taken; suggest another one")


def discard_name(name: str, root: Folder, blob: str, staging: Folder) -> bool:
    """Remove a readable name. Returns ``False`` if it is open and stays, which a sweep is told of as of the name of a
    dead writer."""
    if root.discard(name) or not root.lstat(name):
        return True
    with suppress(OSError):  # what it is a name of is removed, whether a sweep finds the name or not
        staging.write(f"-{secrets.token_hex(8)}.name", _intent(blob, name), sync=False)
    return False


def _intent(blob: str, name: str) -> bytes:
    return f"{blob}\n{name}".encode()


def _candidates(wanted: str) -> Iterator[str]:
    stem, dot, extension = wanted.rpartition(".")
    yield wanted
    for number in range(2, _TRIES):
        yield f"{stem}-{number}{dot}{extension}"
    yield f"{stem}-{secrets.token_hex(8)}{dot}{extension}"


def _copy(blob: str, blobs: Folder, root: Folder, staging: Folder, name: str) -> bool:
    """Copy and sync under a temporary name, and give it the final one. Returns ``False`` if that is taken."""
    if _exists(name, root):
        return False
    temporary = temporary_name()
    source = blobs.open(blob)
    try:
        target = staging.create(temporary)
        try:
            while chunk := os.read(source, _PIECE):
                write_all(target, memoryview(chunk))
            times = os.fstat(source)  # by equal times an untouched copy is told from a user's own file
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
        try:
            place(temporary, staging, root, name)
        except FileExistsError:
            return False
    finally:
        os.close(source)
        with suppress(OSError):
            staging.unlink(temporary)
    return True


def place(name: str, folder: Folder, target: Folder, new: str) -> None:
    """Rename a file, and never over another one: the new name is reserved by an empty file. Raises
    :class:`FileExistsError`."""
    os.close(target.create(new))
    try:
        folder.move(name, target, new)
    except BaseException:
        target.unlink(new)
        raise


def _exists(name: str, folder: Folder) -> bool:
    try:
        folder.stat(name)
    except FileNotFoundError:
        return False
    return True


def same_file(name: str, folder: Folder, blob: str, blobs: Folder) -> bool:
    """Return whether a name leads to the blob: it is a second name of the same file, or an untouched copy."""
    named, content = folder.lstat(name), blobs.lstat(blob)
    if named is None or content is None:
        return False
    if os.path.samestat(named, content):
        return True
    # times are coarse (some milliseconds): two links may show the same time and not be the same file
    return named.st_nlink == 1 and (named.st_size, named.st_mtime_ns) == (content.st_size, content.st_mtime_ns)
