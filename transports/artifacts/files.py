"""Files outside the store: read piece by piece on the way in, written whole or not at all on the way out."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing, contextmanager
from io import FileIO
from pathlib import Path

from ..errors import Corrupt, StoreError, StoreFull, UsageError
from ..tasks import in_thread
from .os_errors import map_os_errors, write_all
from .replacing import Replacement

__all__ = ["PIECE", "ExportFile", "copy_out", "pieces_of", "read_pieces", "write_out"]

#: Bytes that are read or written at a time.
PIECE = 1 << 20


async def read_pieces(file: Path) -> AsyncGenerator[bytes, None]:
    """Yield the content of a file in pieces of at most :data:`PIECE` bytes, read in a thread.

    Raises :class:`~transports.errors.StoreError` if the file cannot be read.
    """
    with map_os_errors("read a file", file.parent):
        opened = await in_thread(file.open, "rb", 0)
    with opened:
        async with aclosing(pieces_of(opened)) as pieces:
            async for piece in pieces:
                yield piece


async def pieces_of(opened: FileIO) -> AsyncGenerator[bytes, None]:
    """Yield what follows in an open file, as :func:`read_pieces`. It stays open."""
    while True:
        with map_os_errors("read a file", Path(str(opened.name)).parent):
            piece = await in_thread(opened.read, PIECE)
        if not piece:
            return
        yield piece


class ExportFile:
    """A copy of an artifact on its way out of the store. Every method blocks.

    The bytes go to a temporary file in the folder of the destination (:mod:`.replacing`). :meth:`commit` compares them
    with the artifact's size and SHA-256 and then renames the file, so the destination holds all of the content or what
    it held before.
    Missing folders are made, an existing file is replaced and keeps its mode, and a symlink is followed: the file that
    it leads to is replaced.

    Every method raises :class:`~transports.errors.StoreError` if the disk refuses.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, artifact_id: str, size: int, sha256: str, original: Path | None
    ) -> None:
        """``size`` is in bytes, ``sha256`` in hex; ``original`` is the artifact's own file, which is never written to.
        Nothing on the disk is touched."""
        self._path = Path(path)
        self._names_folder = os.fspath(path).endswith(("/", os.sep))  # which Path leaves out
        self._id = artifact_id
        self._size = size
        self._sha256 = sha256
        self._original = original
        self._new: Replacement | None = None
        self._written = 0
        self._digest = hashlib.sha256()

    def open(self) -> None:
        """Make the folders and the temporary file.

        Raises :class:`~transports.errors.UsageError` if something else than a file has the destination's name, or if
        it is the artifact's own file.
        """
        with self._errors():
            self._path = self._path.resolve()
            if self._names_folder:
                raise UsageError(f"cannot save to {self._path}{os.sep}: it is a folder; name a file in it")
            mode = self._existing_mode()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._new = Replacement(self._path)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(self._new.fd, mode)

    def _existing_mode(self) -> int | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder; name a file in it" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            raise UsageError(f"cannot save to {self._path}: it is {kind}")
        if self._original is not None and self._original.exists() and self._original.samefile(self._path):
            raise UsageError(f"cannot save to {self._path}: it is the artifact's own file; choose another name")
        return stat.S_IMODE(found.st_mode)

    def write(self, chunk: bytes) -> None:
        """Append to the temporary file."""
        assert self._new is not None
        with self._errors():
            write_all(self._new.fd, memoryview(chunk))
        self._written += len(chunk)
        self._digest.update(chunk)

    def commit(self) -> Path:
        """Verify what was written, make it visible, and return its absolute path.

        Raises :class:`~transports.errors.Corrupt` if it is not the content of the artifact.
        """
        if self._written != self._size or self._digest.hexdigest() != self._sha256:
            raise Corrupt(
                f"artifact {self._id} is damaged: {self._written:,} bytes came that do not match its size "
                f"({self._size:,} bytes) and hash; nothing was written to {self._path}",
                details={"id": self._id, "size": self._size, "actual": self._written},
            )
        assert self._new is not None
        with self._errors():
            self._new.commit()
        return self._path

    def close(self) -> None:
        """Remove the temporary file unless it was committed; idempotent."""
        if self._new is not None:
            self._new.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"cannot write {self._path}: {error.strerror or error}; choose another path"
            details: dict[str, object] = {"path": str(self._path)}
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(message, details=details) from error
            raise StoreError(message, details=details) from error


async def write_out(chunks: AsyncGenerator[bytes, None], file: ExportFile) -> Path:
    """Copy a stream to ``file`` and return the path. Nothing stays on the disk after an error or a cancellation."""
    async with aclosing(chunks):
        chunk = await anext(chunks, b"")  # first: nothing is made on the disk for an artifact that is not there
        try:
            await in_thread(file.open)
            while chunk:
                await in_thread(file.write, chunk)
                chunk = await anext(chunks, b"")
            return await in_thread(file.commit)
        finally:
            await in_thread(file.close)


def copy_out(source: Path, file: ExportFile) -> Path:
    """Copy a local file to ``file`` and return the path; it blocks. Nothing stays on the disk after an error."""
    with map_os_errors("read an artifact", source.parent):
        opened = source.open("rb", buffering=0)
    with opened, closing(file):
        file.open()
        while chunk := _read(opened, source):
            file.write(chunk)
        return file.commit()


def _read(opened: FileIO, source: Path) -> bytes:
    with map_os_errors("read an artifact", source.parent):
        return opened.read(PIECE)
