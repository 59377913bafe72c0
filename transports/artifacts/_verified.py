"""Blocking files of artifacts, which give no byte that differs from the stored hash.

:class:`Pieces` remembers the hash of each piece of some content, and :class:`VerifiedFile` reads by it. So a reader may
seek, and a file that is changed after it was opened is noticed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import operator
import os
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .._internal.files import regular_file
from ..errors import Corrupt
from ._files import PIECE, map_os_errors, open_file, read_at

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Described(Protocol):
    """Protocol of a reference, for this module below :class:`transports.ArtifactRef`."""

    @property
    def id(self) -> str:
        """Id of the artifact."""

    @property
    def size_bytes(self) -> int:
        """Size of the content in bytes."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the content, in hex."""


class Pieces:
    """Measurement of content piece by piece: its size, its SHA-256, and the SHA-256 of each piece of 1 MiB."""

    def __init__(self) -> None:
        self.size = 0
        self._whole = hashlib.sha256()
        self._current = hashlib.sha256()
        self._digests: list[bytes] = []

    def add(self, chunk: ReadableBuffer) -> None:
        """Add a chunk of any size."""
        view = memoryview(chunk)
        self._whole.update(view)
        while len(view):
            part = view[: PIECE - self.size % PIECE]
            self._current.update(part)
            self.size += len(part)
            if self.size % PIECE == 0:
                self._end_piece()
            view = view[len(part) :]

    def finish(self, ref: Described) -> None:
        """End the measurement. Raises :class:`~transports.errors.Corrupt` if this is not the content of ``ref``."""
        if self.size % PIECE:
            self._end_piece()
        if self.size != ref.size_bytes or self._whole.hexdigest() != ref.sha256:
            raise _damaged(ref)

    def _end_piece(self) -> None:
        self._digests.append(self._current.digest())
        self._current = hashlib.sha256()

    def has(self, index: int, piece: bytes) -> bool:
        """Return whether ``piece`` is the piece of this index."""
        return hashlib.sha256(piece).digest() == self._digests[index]


class VerifiedFile(io.RawIOBase):
    """File of an artifact, read a piece at a time; each piece is compared before its first byte is given.

    It has no descriptor to give away: whoever reads past it is not protected. Reading raises
    :class:`~transports.errors.Corrupt` if the file was changed since it was measured, and
    :class:`~transports.errors.StoreError` if the disk fails."""

    def __init__(self, file: FileIO, ref: Described, pieces: Pieces) -> None:
        self._file = file
        self._ref = ref
        self._pieces = pieces
        self._position = 0
        self._held = -1, b""  # index and content of the last piece

    def readable(self) -> bool:
        """Return ``True``."""
        self._require_open()
        return True

    def seekable(self) -> bool:
        """Return ``True``."""
        self._require_open()
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        self._require_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, which may be beyond the end, and return it. Raises :class:`OSError` before the start, as
        any file does."""
        self._require_open()
        offset = operator.index(offset)
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._ref.size_bytes}.get(whence)
        if start is None or start + offset < 0:
            raise OSError(errno.EINVAL, f"cannot seek to {offset} (whence {whence})")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the beginning of ``buffer``, and return the number of bytes; 0 at the end."""
        self._require_open()
        view = memoryview(buffer).cast("B")
        if self._position >= self._ref.size_bytes or not len(view):
            return 0
        index, offset = divmod(self._position, PIECE)
        part = memoryview(self._piece(index))[offset : offset + len(view)]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def readall(self) -> bytes:
        """Return the rest. The method of the base class would hold it twice."""
        content = io.BytesIO()
        while part := self.read(PIECE):
            content.write(part)
        return content.getvalue()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _piece(self, index: int) -> bytes:
        if self._held[0] != index:
            with map_os_errors("read an artifact", Path(str(self._file.name)).parent):
                piece = _read_whole(self._file.fileno(), index * PIECE)
            if not self._pieces.has(index, piece):
                raise _damaged(self._ref)
            self._held = index, piece
        return self._held[1]

    def close(self) -> None:
        """Close the file; idempotent."""
        self._held = -1, b""
        self._file.close()
        super().close()


def _read_whole(fd: int, start: int) -> bytes:
    """Return a whole piece; less only at the end of the file. A single read may return less than was asked for."""
    parts = []
    position, end = start, start + PIECE
    while position < end and (part := read_at(fd, end - position, position)):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def open_file_of(ref: Described, path: Path) -> FileIO:
    """Open the readable file of an artifact. Raises :class:`~transports.errors.StoreError` if it has gone, or is a
    symlink or a pipe."""
    with map_os_errors("read an artifact", path.parent):
        return regular_file(open_file(path, os.O_RDONLY), os.fspath(path))


def verified(file: FileIO, ref: Described, pieces: Pieces) -> BufferedReader:
    """Return a buffered reader of the file of an artifact; ``pieces`` are those of its content."""
    return BufferedReader(VerifiedFile(file, ref, pieces), 128 << 10)


def open_verified(ref: Described, path: Path) -> BufferedReader:
    """Open the readable file of an artifact, after one look at all of it. Raises
    :class:`~transports.errors.Corrupt` and :class:`~transports.errors.StoreError`."""
    file = open_file_of(ref, path)
    try:
        pieces = Pieces()
        with map_os_errors("read an artifact", path.parent):
            while piece := read_at(file.fileno(), PIECE, pieces.size):
                pieces.add(piece)
                if pieces.size > ref.size_bytes:
                    break  # a file that grows for ever
        pieces.finish(ref)
    except BaseException:
        file.close()
        raise
    return verified(file, ref, pieces)


def _damaged(ref: Described) -> Corrupt:
    return Corrupt(
        f"artifact {ref.id} is damaged: its file does not match its size ({ref.size_bytes:,} bytes) and hash; store it "
        "again",
        details={"id": ref.id},
    )
