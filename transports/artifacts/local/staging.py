"""Staged files of the local store: written in its staging folder, on the same file system as the blobs."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Thread

from ...errors import StoreError, StoreFull
from ...tasks import in_thread
from ..base import ArtifactStore
from ..content import Description, Meter, as_bytes, measure_file, nothing_written
from ..following import Follower
from ..os_errors import OTHER_FOLDER, map_os_errors, write_all
from ..ref import ArtifactRef
from ..staged import StagedFile
from ..system import TO_SYNC
from .blobs import BlobStore
from .folder import Folder, OpenFile
from .maintenance import Maintenance
from .tree import LockBusy, OpenFolders, Tree, temporary_name, use
from .writer import Writer

__all__ = ["LocalStaged", "check_free"]

logger = logging.getLogger("transports.artifacts")

_PIECE = 1 << 20  # bytes collected before a thread is worth its start
_INLINE = 128 << 10  # bytes that are hashed faster than a thread is reached


class LocalStaged(StagedFile):
    """A staged file below ``.abp/staging``. The file is made when the first bytes are written.

    ``min_free`` bytes of the disk stay free.
    """

    def __init__(
        self,
        store: ArtifactStore,
        tree: Tree,
        blobs: BlobStore,
        writer: Writer,
        maintenance: Maintenance,
        min_free: int,
    ) -> None:
        super().__init__(store)
        self._min_free = min_free
        self._tree = tree
        self._blobs = blobs
        self._writer = writer
        self._maintenance = maintenance
        self._name = temporary_name()
        self._follower: Follower | None = None
        self._start()

    def _start(self) -> None:
        self._fd = -1
        self._made = False
        self._closed = (0, "")  # size and SHA-256 of what a commit, which may close the file, found in it
        self._meter = Meter(self._store.max_bytes)
        self._pending: list[memoryview] = []
        self._waiting = 0  # bytes in ``_pending``
        self._written = False
        self._usable = True

    @property
    def path(self) -> Path:
        return self._tree.root / ".abp" / "staging" / self._name

    @property
    def size(self) -> int:
        return self._meter.size

    async def prepare(self) -> None:
        def work() -> None:
            with map_os_errors("make the artifact folder", self._tree.root), OpenFolders(self._tree) as folders:
                folders.at(".abp", "staging")
                check_free(self._tree.root, self._min_free)
            self._maintenance.sweep_once()

        await in_thread(work)

    async def write(self, chunk: bytes | memoryview) -> None:
        self._check()
        view = as_bytes(chunk)
        self._usable = False  # until the whole chunk is written: half of it must never be committed
        if len(view) <= _INLINE:
            self._meter.add(view)
            # Small chunks are collected. Bytes never change, but the caller may use another buffer again.
            self._pending.append(view if isinstance(view.obj, bytes) else memoryview(bytes(view)))
            self._waiting += len(view)
            if self._waiting >= _PIECE:
                await in_thread(self._flush)
        else:
            await in_thread(self._flush, view)
        self._written = self._usable = True

    def _flush(self, more: memoryview | None = None, folders: OpenFolders | None = None) -> None:
        pending, self._pending, self._waiting = self._pending, [], 0
        with map_os_errors("write a file", self._tree.root):
            if more is not None:
                self._meter.add(more)
                pending.append(more)
            if self._fd < 0:
                with use(folders, self._tree) as opened:
                    self._fd = self._open_own(opened.at(".abp", "staging"))
                self._maintenance.sweep_once()
            check_free(self._tree.root, self._min_free, sum(map(len, pending)))
            for chunk in pending:
                write_all(self._fd, chunk)

    def _open_own(self, staging: Folder) -> int:
        """Return a descriptor of what is written: of a new file, or of the one that a failed commit closed."""
        if self._made:
            fd = staging.open(self._name, os.O_RDWR | os.O_APPEND)
            try:
                found = measure_file(fd, self._store.max_bytes)
                if (found.size, found.sha256) != self._closed:
                    raise StoreError("the staged file was replaced after a failed commit; nothing was stored")
            except BaseException:
                os.close(fd)
                raise
            return fd
        fd = staging.create(self._name)
        self._made = True
        return fd

    def follow(self) -> None:
        self._check()
        if self._follower is None and not self._written:
            with suppress(RuntimeError):  # no thread can be started: then all is read at the end
                self._follower = Follower(self._open_path, self._store.max_bytes)

    async def reset(self) -> None:
        self._check(usable=False)
        await in_thread(self._discard)
        self._start()

    async def _measure(self, declared: int | None) -> Meter:
        if not self._written and not await in_thread(self._adopt_external_file) and declared != 0:
            raise nothing_written()
        return self._meter

    def _adopt_external_file(self) -> bool:
        with map_os_errors("store a file", self._tree.root):
            if found := self._open_external_file():
                check_free(self._tree.root, self._min_free)
                self._measure_external_file()
        return found

    async def _publish(self, meter: Meter, description: Description) -> ArtifactRef:
        def work(folders: OpenFolders | None = None) -> ArtifactRef:
            with map_os_errors("store a file", self._tree.root):
                if self._pending or self._fd < 0:
                    self._usable = False
                    self._flush(None, folders)
                    self._usable = True
                if description.durability == "disk":
                    os.fsync(self._fd)
                scope = self._store.scope
                self._closed = meter.size, meter.sha256
                staged = OpenFile(self._name, self._fd, self._close)
                metadata = self._blobs.publish(staged, meter, description, scope, folders)
                self._committed = True  # here, because the caller may be cancelled while the thread works
                self._close()
                return metadata.ref(self._tree.root / metadata.names[-1].name)

        if self._fd < 0 and description.durability == "process" and self._store.retention is None:
            with suppress(LockBusy):  # then another process has it, and waiting would hold up others of this one
                return await self._writer.run(work)
        return await in_thread(work)

    def _open_external_file(self) -> bool:
        self._close()
        try:
            self._fd = self._open_path(TO_SYNC)
        except OSError as error:
            if self.path.is_symlink():
                raise StoreError("the staged file is a symlink and is not followed; nothing was stored") from error
            raise
        return self._fd >= 0

    def _open_path(self, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of the file at :attr:`path`, -1 if there is none."""
        try:
            with self._tree.folder(".abp", "staging") as staging:
                return staging.open(self._name, flags)
        except FileNotFoundError:
            return -1

    def _measure_external_file(self) -> None:
        # Syncing keeps the disk busy and hashing the processor: side by side they take as long as the slower one.
        failed: list[OSError] = []

        def sync() -> None:
            try:
                os.fsync(self._fd)
            except OSError as error:
                failed.append(error)

        syncing = Thread(target=sync, name="abp-fsync")
        syncing.start()
        try:
            begun = self._stop_following(self._fd)
            self._meter = measure_file(self._fd, self._store.max_bytes, begun)
        finally:
            syncing.join()
        if failed:
            raise failed[0]

    def _stop_following(self, fd: int = -1) -> Meter | None:
        follower, self._follower = self._follower, None
        return follower.stop(fd) if follower else None

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _discard(self) -> None:
        self._stop_following()
        self._close()
        try:
            with self._tree.folder(".abp", "staging") as staging:
                staging.unlink(self._name)
        except FileNotFoundError:
            pass  # the whole folder is gone
        except (OSError, StoreError) as error:
            logger.warning("the staged file %s could not be removed: %s", self.path, error)

    async def aclose(self) -> None:
        """Remove the file unless it was committed.

        Errors of the disk are logged, not raised. A cancellation is delayed until the file is gone.
        """
        if self._committed:
            self._stop_following()
        else:
            await in_thread(self._discard)


def check_free(folder: Path, min_free: int, more: int = 0) -> None:
    """Raise :class:`~transports.errors.StoreFull` if ``more`` bytes would leave fewer than ``min_free`` on the disk."""
    if not min_free:
        return
    total, _, free = shutil.disk_usage(folder)
    if total and free - more < min_free:  # some file systems do not say what they have
        raise StoreFull(
            f"cannot store more in {folder}: {free:,} bytes of the disk are free, and {min_free:,} are kept free "
            f"(ABP_MIN_FREE_DISK); delete artifacts (abp artifacts gc), or {OTHER_FOLDER}",
            details={"folder": str(folder), "free": free, "min_free": min_free},
        )
