"""The folders of a store, opened so that no symlink can redirect an access, and its locks.

Every access below a store's root goes through :class:`Folder` objects, opened one by one without following symlinks.
:class:`Tree` opens them, and :func:`open_beneath` opens a user's file below permitted roots.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple, Self

from ..._internal.files import regular_file
from ...errors import StoreError, UsageError, spelled
from .._files import is_link, open_file, other_folder_advice, retry_while_in_use, try_lock, user_name, write_all

_SAFE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE_FLAGS
_FILE_FLAGS = _SAFE_FLAGS | getattr(os, "O_NONBLOCK", 0)


class Folder:
    """An open folder, by its descriptor. ``name`` is always the name of a file in it, never a path. Symlinks are not
    followed. Every method blocks and raises :class:`OSError`."""

    __slots__ = ("fd",)

    def __init__(self, path: str, parent: Self | None = None) -> None:
        """Open a folder: ``path`` is a name in ``parent``, or a path without it. A symlink raises ``ELOOP`` or
        ``ENOTDIR``."""
        self.fd: int = os.open(path, _FOLDER_FLAGS, dir_fd=None if parent is None else parent.fd)

    @staticmethod
    def is_supported() -> bool:
        """Return whether this system has all the needed calls by descriptor."""
        calls = (os.open, os.mkdir, os.unlink, os.link, os.rename, os.stat)
        return os.supports_dir_fd.issuperset(calls) and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")

    def make_folder(self, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=self.fd)

    def close(self) -> None:
        # The descriptor is closed even after an error.
        with suppress(OSError):
            os.close(self.fd)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file for bytes, without waiting for the writer of a pipe. A symlink raises ``ELOOP`` or ``EMLINK``."""
        return os.open(name, flags | _FILE_FLAGS, 0o600, dir_fd=self.fd)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def unlink(self, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    #: Remove a file without retries: a file that a program has open on Windows is left to a sweep. Return ``False`` if
    #: the file was gone, or stays.
    discard = unlink

    def link(self, name: str, target: Self, new: str) -> None:
        """Make a hard link to a file. Raises :class:`FileExistsError`, or an error of :data:`~._blobs.NO_LINKS`."""
        os.link(name, new, src_dir_fd=self.fd, dst_dir_fd=target.fd, follow_symlinks=False)

    def move(self, name: str, target: Self, new: str) -> None:
        """Rename a file into ``target``, and replace a file of the new name there. Both files must be closed."""
        os.rename(name, new, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def names(self) -> list[str]:
        return os.listdir(self.fd)  # noqa: PTH208 - a descriptor

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self.fd)

    def sync(self) -> None:
        """Sync the names in the folder. SMB, FUSE and other file systems refuse that; their error is ignored."""
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise

    def times(self) -> os.stat_result | None:
        """Return a status whose times change with every change of the names; ``None`` if the system has none."""
        return os.fstat(self.fd)

    def owner(self) -> int | None:
        """Return the id of the user who owns the folder; ``None`` if that is this user."""
        uid = os.fstat(self.fd).st_uid
        return None if uid == os.geteuid() else uid

    @staticmethod
    def change_time(status: os.stat_result) -> float:
        """Return the time when a file got or lost a name, in seconds since 1970; an estimate if the system has none."""
        return status.st_ctime

    def file_status(self, name: str) -> os.stat_result | None:
        """Return the status of a regular file; ``None`` if it is missing, or something else."""
        try:
            status = self.stat(name)
        except FileNotFoundError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def create(self, name: str) -> int:
        return self.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)

    def write(self, name: str, data: bytes, *, sync: bool) -> None:
        fd = self.create(name)
        try:
            try:
                write_all(fd, memoryview(data))
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except BaseException:
            self.unlink(name)
            raise


class PortableFolder(Folder):
    """A folder by its path, for systems without descriptors of folders. It overrides every method that uses one."""

    __slots__ = ("_path",)

    def __init__(self, path: str, parent: Self | None = None) -> None:
        if parent is not None:
            path = parent._path_of(path)
        if is_link(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        # os.stat() raises FileNotFoundError, which Path.is_dir() does not.
        if not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._path = path

    def make_folder(self, name: str) -> None:
        os.mkdir(self._path_of(name), 0o700)  # noqa: PTH102 - a Path for each call costs more than the call

    def close(self) -> None:
        """Do nothing: a path needs no closing."""

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        return retry_while_in_use(lambda: open_file(self._path_of(name), flags))

    def stat(self, name: str) -> os.stat_result:
        return os.lstat(self._path_of(name))

    def unlink(self, name: str) -> bool:
        try:
            retry_while_in_use(lambda: os.unlink(self._path_of(name)))  # noqa: PTH108
        except FileNotFoundError:
            return False
        return True

    def discard(self, name: str) -> bool:
        try:
            os.unlink(self._path_of(name))  # noqa: PTH108
        except (FileNotFoundError, PermissionError):
            return False
        return True

    def link(self, name: str, target: Self, new: str) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def move(self, name: str, target: Self, new: str) -> None:
        new_path = target._path_of(new)
        retry_while_in_use(lambda: os.replace(self._path_of(name), new_path))  # noqa: PTH105
        # Ignore an error: the file is moved, and the time is only a hint for :meth:`change_time`.
        with suppress(OSError):
            os.utime(new_path, ns=(time.time_ns(), os.lstat(new_path).st_mtime_ns))

    def names(self) -> list[str]:
        return os.listdir(self._path)  # noqa: PTH208

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._path)

    def sync(self) -> None:
        """Do nothing: NTFS has no sync of folders, and writes names in order."""

    def times(self) -> os.stat_result | None:
        """Return ``None``: on Windows ``ctime`` is the time of creation."""
        return None

    def owner(self) -> int | None:
        """Return ``None``: on Windows each user has a temp folder."""
        return None

    @staticmethod
    def change_time(status: os.stat_result) -> float:
        """Return the later of ``ctime``, which may be the time of creation, and ``atime``, which :meth:`move` sets."""
        return max(status.st_ctime, status.st_atime)

    def _path_of(self, name: str) -> str:
        is_path = os.path.basename(name) != name or name in ("", ".", "..")  # noqa: PTH119
        names_ntfs_stream = ":" in name
        if is_path or names_ntfs_stream:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
        return os.path.join(self._path, name)  # noqa: PTH118


#: Error numbers for a symlink that is not followed.
SYMLINK = (errno.ELOOP, errno.EMLINK)
_folder_class: type[Folder] = Folder if Folder.is_supported() else PortableFolder


class StoreFolders(NamedTuple):
    """The open folders of a store: its root, and those in ``.abp`` by their names."""

    root: Folder
    staging: Folder
    blobs: Folder
    meta: Folder
    quarantine: Folder
    locks: Folder


class Tree:
    """A folder whose files are opened without following symlinks. With ``private``, a root of another user is refused.
    A symlink or a file in the place of a folder raises :class:`~transports.errors.StoreError`."""

    def __init__(self, root: Path, *, private: bool) -> None:
        self.root = root
        self._private = private

    @contextmanager
    def folder(self, *parts: str, create: bool = False) -> Iterator[Folder]:
        """Open ``root/part/part…``. With ``create``, missing folders are made, with mode 0700."""
        with ExitStack() as stack:
            folder = self._open(stack, (), None, create=create)
            for depth in range(1, len(parts) + 1):
                folder = self._open(stack, parts[:depth], folder, create=create)
            yield folder

    @contextmanager
    def folders(self) -> Iterator[StoreFolders]:
        with ExitStack() as stack:
            root = self._open(stack, (), None, create=True)
            abp_folder = self._open(stack, (".abp",), root, create=True)
            # Each field of StoreFolders but the root is also the name of a folder in .abp.
            names = StoreFolders._fields[1:]
            yield StoreFolders(root, *[self._open(stack, (".abp", name), abp_folder, create=True) for name in names])

    @contextmanager
    def lock(self, folders: StoreFolders, digest: str) -> Iterator[int]:
        """Hold the lock of a content against all other threads and processes, and yield its open file."""
        # Contents whose digests begin alike share a lock file.
        fd = folders.locks.open(digest[:2], os.O_RDWR | os.O_CREAT)
        try:
            # A commit, which reads one blob at most, holds its lock far shorter; a stopped process holds it for ever.
            patience = 60
            deadline = time.monotonic() + patience
            pause, longest_pause = 0.0005, 0.02
            while not try_lock(fd):
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"another process keeps a lock in {self.root}; "
                        f"end it (fuser {self.root}/.abp/locks/*) and try again",
                        retryable=True,
                    )
                time.sleep(pause)
                pause = min(pause * 1.5, longest_pause)
            yield fd
        finally:
            # The lock is freed even after an error.
            with suppress(OSError):
                os.close(fd)

    @contextmanager
    def locked(self, digest: str) -> Iterator[StoreFolders]:
        with self.folders() as folders, self.lock(folders, digest):
            yield folders

    def _open(self, opened: ExitStack, parts: tuple[str, ...], parent: Folder | None, *, create: bool) -> Folder:
        """Open the folder at ``parts`` in its ``parent``, or the root if that is ``None``. ``opened`` closes it."""
        path = str(self.root) if parent is None else parts[-1]
        try:
            try:
                folder = _folder_class(path, parent)
            except FileNotFoundError:
                if not create:
                    raise
                self._make_folder(path, parent)
                folder = _folder_class(path, parent)
        except OSError as error:
            if error.errno in (*SYMLINK, errno.ENOTDIR):
                raise _not_a_folder(self.root.joinpath(*parts)) from error
            raise
        opened.callback(folder.close)

        if parent is None and self._private:
            owner = folder.owner()
            if owner is not None:
                raise StoreError(
                    f"the folder {self.root} belongs to {user_name(owner)} and is not used; {other_folder_advice()}"
                )
        return folder

    def _make_folder(self, path: str, parent: Folder | None) -> None:
        # Another process may make the folder at the same time.
        with suppress(FileExistsError):
            if parent is None:
                self.root.parent.mkdir(parents=True, exist_ok=True)
                self.root.mkdir(mode=0o700)
            else:
                parent.make_folder(path)
        if parent is not None:
            parent.sync()


def _not_a_folder(path: Path) -> StoreError:
    if path.is_symlink():
        return StoreError(
            f"{path} is a symlink and is not followed: remove it, or name the real folder "
            f"({path.resolve()}) with ABP_OUTPUT_DIR or {spelled('store=')}"
        )
    return StoreError(f"{path} is not a folder; remove it, or {other_folder_advice()}")


def remove_files(tree: Tree, files: Iterable[str]) -> None:
    with tree.folder(".abp") as folder:
        for name in files:
            folder.unlink(name)


def temporary_name() -> str:
    """Return a name in ``staging/``: the process id of the writer, for a sweep to find dead ones, and random digits."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


@contextmanager
def folder_beneath(folder: Path, roots: Sequence[Path], refused: UsageError) -> Iterator[tuple[Path, Folder]]:
    """Open a folder in or below one of ``roots``, and yield its real path, too. On systems with descriptors of folders,
    a later change of the path does not redirect accesses. Raises ``refused`` for any other folder, and the errors of
    :meth:`Tree.folder` for one that is replaced meanwhile."""
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        # The folder is missing, its symlinks form a ring, or its name has a NUL.
        raise refused from None
    root = next((root for root in roots if real.is_relative_to(root)), None)
    if root is None:
        raise refused
    with Tree(root, private=False).folder(*real.relative_to(root).parts) as folder_inside:
        yield real, folder_inside


def open_beneath(path: str, roots: Sequence[Path], refused: UsageError) -> FileIO:
    """Open a regular file below one of ``roots``; its ``name`` is its real path. Raises ``refused`` in every other
    case, so that a caller cannot learn which files exist."""
    try:
        real = Path(path).resolve(strict=True)
        with folder_beneath(real.parent, roots, refused) as (_, folder):
            return regular_file(folder.open(real.name), str(real))
    except (OSError, RuntimeError, ValueError, StoreError):
        raise refused from None
