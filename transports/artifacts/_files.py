"""Files outside the store: read piece by piece on the way in, written whole or not at all on the way out."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from functools import lru_cache
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TypeVar

from ..errors import Corrupt, StoreError, StoreFull, UsageError
from ..tasks import in_thread

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


#: Whether a file can be renamed and removed while somebody has it open, which Windows refuses.
OPEN_FILES_MOVE = os.name == "posix"

T = TypeVar("T")

#: Seconds for which a file that is open elsewhere is waited for, and between two tries.
_PATIENCE, _PAUSE = 1.0, 0.01

#: Follow no symlink, be inherited by no child, wait for no writer of a pipe, change no bytes: where there is a flag.
_SAFE = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "CLOEXEC", "NONBLOCK", "BINARY", "NOINHERIT"))
_CAN_REFUSE_LINKS = hasattr(os, "O_NOFOLLOW")
#: Windows has symlinks, and junctions, which everybody may make.
_JUNCTION = 0xA0000003


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Return a descriptor for bytes, as :func:`os.open`. A symlink in the file's place is not followed: raises
    :class:`OSError` with ``ELOOP``. Where the system cannot promise that, it is looked at before."""
    if not _CAN_REFUSE_LINKS and is_link(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return os.open(path, flags | _SAFE, mode)


def is_link(path: str | os.PathLike[str]) -> bool:
    """Return whether a symlink or a junction has the name."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) == _JUNCTION


def patiently(work: Callable[[], T]) -> T:
    """Do what Windows refuses while some program has the file open, as virus scanners do with new ones: it is tried
    again for a second. It blocks."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except PermissionError:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def replace_file(source: Path, target: Path) -> None:
    """Rename a file, also over another one; :func:`patiently` where open files cannot be renamed."""
    if OPEN_FILES_MOVE:
        source.replace(target)
    else:
        patiently(lambda: source.replace(target))


def _read_into(fd: int, buffer: memoryview, position: int) -> int:
    data = read_at(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


def _read_at(fd: int, size: int, position: int) -> bytes:
    before = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size)
    finally:
        os.lseek(fd, before, os.SEEK_SET)


#: ``read_at(fd, size, position)`` returns bytes from a place in a file, whose own position stays.
read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_at)

if hasattr(os, "preadv"):

    def read_into(fd: int, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from a place in a file, and return how many bytes there were."""
        return os.preadv(fd, [buffer], position)

else:
    read_into = _read_into

#: How a file is opened whose content is written to the disk: on Windows not one that is open for reading alone.
TO_SYNC = os.O_RDONLY if hasattr(os, "pread") else os.O_RDWR

#: Write the content of a file to the disk, also one that is open for reading alone. macOS has no ``fdatasync``; Windows
#: cannot (:data:`TO_SYNC`).
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync if hasattr(os, "pread") else lambda _: None)

try:
    import fcntl
except ImportError:

    def try_lock(fd: int) -> bool:
        """Lock an open file against all other descriptors of it. Returns ``False`` if one has it. The system frees the
        lock when the descriptor is closed, and when the process ends, however it ends."""
        from filelock import lock_descriptor

        return lock_descriptor(fd, blocking=False)

else:

    def try_lock(fd: int) -> bool:
        """Lock an open file against all other descriptors of it. Returns ``False`` if one has it. The system frees the
        lock when the descriptor is closed, and when the process ends, however it ends."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def belongs_to_us(found: os.stat_result) -> bool:
    """Return whether a file is this user's. ``True`` where files do not tell."""
    user: Callable[[], int] | None = getattr(os, "geteuid", None)
    return user is None or found.st_uid == user()


def others_may_read(found: os.stat_result) -> bool:
    """Return whether other users may do anything with a file. ``False`` where its mode does not tell."""
    return hasattr(os, "geteuid") and found.st_mode & 0o077 != 0


_NAME = re.compile(r"\.abp-[0-9a-f]{16}")
#: Seconds for which a file without a lock stays where open files cannot be renamed: its writer has just closed it.
_GRACE = 60.0
#: Folders of which is remembered that this process has looked for what was left in them.
_FOLDERS = 1000


class Replacement:
    """A new file that takes the place of ``path`` at :meth:`commit`. ``fd`` is its descriptor. Every method blocks and
    raises :class:`OSError`."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        """Make an empty file in the folder of ``path``, with ``mode`` less the umask. The first one in a folder also
        removes what killed processes left there."""
        _remove_left_once(path.parent.absolute())
        self._path = path
        while True:
            self._temporary = temporary_path(path)
            self.fd = open_file(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            if self._lock():
                return
            os.close(self.fd)  # another process removes it, as one that was left

    def _lock(self) -> bool:
        try:
            return try_lock(self.fd) and os.fstat(self.fd).st_nlink > 0
        except OSError:  # no locks on this file system: nobody can tell there that a file was left, either
            return True

    def commit(self) -> None:
        """Write the content to the disk, give the file its name, in place of an older file, and close it."""
        os.fsync(self.fd)
        if not OPEN_FILES_MOVE:
            self._close()
        replace_file(self._temporary, self._path)
        self._close()

    def close(self) -> None:
        """Close the file, and remove it unless it was committed; idempotent."""
        self._close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BufferedWriter]:
    """Yield a file to write, which takes the place of ``path`` at the end of the block; an error leaves the older file.
    Raises :class:`OSError`."""
    new = Replacement(path, mode)
    try:
        with os.fdopen(new.fd, "wb", closefd=False) as file:
            yield file
        new.commit()
    finally:
        new.close()


def temporary_path(path: Path) -> Path:
    """Return a free path in the folder of ``path``, of which :func:`remove_left` knows."""
    return path.with_name(f".abp-{secrets.token_hex(8)}")


def remove_left(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder, as far as that can be done. It looks at all names."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_unlocked(Path(entry.path))


_remove_left_once = lru_cache(_FOLDERS)(remove_left)


def _remove_unlocked(path: Path) -> None:
    fd = open_file(path, os.O_RDWR)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not try_lock(fd):
            return
        if OPEN_FILES_MOVE:
            path.unlink()  # still locked: a writer that comes to lock it now knows, and makes another one
            return
    finally:
        os.close(fd)
    if time.time() - found.st_mtime > _GRACE:
        path.unlink()


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
