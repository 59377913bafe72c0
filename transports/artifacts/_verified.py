"""Reading and copying the files of artifacts, which give no byte that differs from the stored hash.

:class:`Pieces` remembers the hash of each piece of some content, and :class:`VerifiedFile` reads by it. So a reader may
seek, and a file that is changed after it was opened is noticed. :class:`ExportFile` is a copy out of a store.
"""

from __future__ import annotations

import errno
import hashlib
import io
import operator
import os
import stat
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing, contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .._internal.files import open_regular, regular_file
from .._internal.tasks import in_thread
from ..errors import Corrupt, StoreError, StoreFull, UsageError
from ._content import Meter
from ._files import PIECE, Replacement, map_os_errors, open_file, read_at, write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Described(Protocol):
    """A reference, for this module below :class:`transports.ArtifactRef`."""

    @property
    def id(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def path(self) -> Path | None: ...


class Pieces:
    """Measurement of content piece by piece: its size, its SHA-256, and the SHA-256 of each piece of 1 MiB."""

    def __init__(self) -> None:
        self.size = 0
        self._whole = hashlib.sha256()
        self._current = hashlib.sha256()
        self._digests: list[bytes] = []

    def add(self, chunk: ReadableBuffer) -> None:
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
        if self.size % PIECE:
            self._end_piece()
        if self.size != ref.size_bytes or self._whole.hexdigest() != ref.sha256:
            raise _damage_error(ref)

    def _end_piece(self) -> None:
        self._digests.append(self._current.digest())
        self._current = hashlib.sha256()

    def matches(self, index: int, piece: bytes) -> bool:
        return hashlib.sha256(piece).digest() == self._digests[index]


class VerifiedFile(io.RawIOBase):
    """File of an artifact, read a piece at a time; each piece is compared with its hash before any byte is returned.
    There is no ``fileno()``: who reads the descriptor is not protected. Reading raises
    :class:`~transports.errors.Corrupt` if the file was changed since it was measured."""

    def __init__(self, file: FileIO, ref: Described, pieces: Pieces) -> None:
        self._file = file
        self._ref = ref
        self._pieces = pieces
        self._position = 0
        #: Index and content of the piece that was read last.
        self._last_piece = -1, b""

    def readable(self) -> bool:
        self._require_open()
        return True

    def seekable(self) -> bool:
        self._require_open()
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._require_open()
        offset = operator.index(offset)
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._ref.size_bytes}
        start = starts.get(whence)
        if start is None or start + offset < 0:
            raise OSError(errno.EINVAL, f"cannot seek to {offset} (whence {whence})")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._require_open()
        view = memoryview(buffer).cast("B")
        if self._position >= self._ref.size_bytes or not len(view):
            return 0

        index, offset = divmod(self._position, PIECE)
        part = memoryview(self._verified_piece(index))[offset : offset + len(view)]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def readall(self) -> bytes:
        """Return the rest of the file. The method of the base class would hold it in memory twice."""
        content = io.BytesIO()
        while part := self.read(PIECE):
            content.write(part)
        return content.getvalue()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _verified_piece(self, index: int) -> bytes:
        last_index, last_piece = self._last_piece
        if index == last_index:
            return last_piece

        with map_os_errors("read an artifact", Path(str(self._file.name)).parent):
            piece = _read_piece(self._file.fileno(), index * PIECE)
        if not self._pieces.matches(index, piece):
            raise _damage_error(self._ref)
        self._last_piece = index, piece
        return piece

    def close(self) -> None:
        self._last_piece = -1, b""
        self._file.close()
        super().close()


def _read_piece(fd: int, start: int) -> bytes:
    parts = []
    position, end = start, start + PIECE
    while position < end:
        part = read_at(fd, end - position, position)
        if not part:
            break
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def open_file_of(ref: Described, path: Path) -> FileIO:
    with map_os_errors("read an artifact", path.parent):
        return regular_file(open_file(path, os.O_RDONLY), os.fspath(path))


def verified(file: FileIO, ref: Described, pieces: Pieces) -> BufferedReader:
    return BufferedReader(VerifiedFile(file, ref, pieces), 128 << 10)


def open_verified(ref: Described, path: Path) -> BufferedReader:
    """Compare the readable file of an artifact with its hash, and open it for verified reading."""
    file = open_file_of(ref, path)
    try:
        pieces = Pieces()
        with map_os_errors("read an artifact", path.parent):
            while piece := read_at(file.fileno(), PIECE, pieces.size):
                pieces.add(piece)
                # Stop at the expected size: a file that another program appends to might have no end.
                if pieces.size > ref.size_bytes:
                    break
        pieces.finish(ref)
    except BaseException:
        file.close()
        raise
    return verified(file, ref, pieces)


class ExportFile:
    """A copy of an artifact on its way out of the store. Every method blocks.

    The bytes go to a temporary file in the folder of the destination, which is renamed once they are verified. So the
    destination holds either all of the content or its old content. Missing folders are made, an existing file is
    replaced and keeps its mode, and a symlink is followed: its target is replaced."""

    def __init__(self, path: str | os.PathLike[str], ref: Described) -> None:
        self._path = Path(path)
        # Look at the text, because Path drops a final slash.
        self._names_folder = os.fspath(path).endswith(("/", os.sep))
        self._ref = ref
        self._new: Replacement | None = None
        self._meter = Meter(sys.maxsize)

    def open(self) -> None:
        """Make the folders and the temporary file."""
        with self._map_errors():
            self._path = self._path.resolve()
            if self._names_folder:
                raise UsageError(f"cannot save to {self._path}{os.sep}: it is a folder; name a file in it")
            mode = self._existing_mode()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._new = Replacement(self._path)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(self._new.fd, mode)

    def _existing_mode(self) -> int | None:
        """Return the mode of the file at the destination, or ``None`` if there is none. Refuse what must not be
        replaced."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None

        if not stat.S_ISREG(status.st_mode):
            kind = "a folder; name a file in it" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UsageError(f"cannot save to {self._path}: it is {kind}")

        original = self._ref.path
        is_original = original is not None and original.exists() and original.samefile(self._path)
        if is_original:
            raise UsageError(f"cannot save to {self._path}: it is the artifact's own file; choose another name")
        return stat.S_IMODE(status.st_mode)

    def write(self, chunk: bytes) -> None:
        assert self._new is not None
        with self._map_errors():
            write_all(self._new.fd, memoryview(chunk))
        self._meter.add(memoryview(chunk))

    def commit(self) -> Path:
        """Compare the copy with the artifact, make it visible, and return its absolute path."""
        ref = self._ref
        size = self._meter.size
        if size != ref.size_bytes or self._meter.sha256 != ref.sha256:
            raise Corrupt(
                f"artifact {ref.id} is damaged: {size:,} bytes were read that do not match its size "
                f"({ref.size_bytes:,} bytes) and hash; nothing was written to {self._path}",
                details={"id": ref.id, "size": ref.size_bytes, "actual": size},
            )
        assert self._new is not None
        with self._map_errors():
            self._new.commit()
        return self._path

    def close(self) -> None:
        if self._new is not None:
            self._new.close()

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            # The path contains NUL or half of a surrogate pair.
            raise UsageError(f"cannot save to {str(self._path)!r}: {error}; choose another path") from None
        except OSError as error:
            message = f"cannot write {self._path}: {error.strerror or error}; choose another path"
            details: dict[str, object] = {"path": str(self._path)}
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(message, details=details) from error
            raise StoreError(message, details=details) from error


async def export_stream(chunks: AsyncGenerator[bytes, None], file: ExportFile) -> Path:
    """Write ``chunks`` to the file and return its path. Nothing stays on the disk after an error or a cancellation."""
    async with aclosing(chunks):
        # Read before the file is opened: a missing artifact must leave nothing on the disk.
        chunk = await anext(chunks, b"")
        try:
            await in_thread(file.open)
            while chunk:
                await in_thread(file.write, chunk)
                chunk = await anext(chunks, b"")
            return await in_thread(file.commit)
        finally:
            await in_thread(file.close)


def export_local_file(source: Path, file: ExportFile) -> Path:
    """Copy ``source`` to the file and return its path. This blocks. Nothing stays on the disk after an error."""
    with map_os_errors("read an artifact", source.parent), open_regular(source) as source_file, closing(file):
        file.open()
        while chunk := source_file.read(PIECE):
            file.write(chunk)
        return file.commit()


def _damage_error(ref: Described) -> Corrupt:
    return Corrupt(
        f"artifact {ref.id} is damaged: its file does not match its size ({ref.size_bytes:,} bytes) and hash; store it "
        "again",
        details={"id": ref.id},
    )
