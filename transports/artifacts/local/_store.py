"""The default store: artifacts as files in a folder on this machine."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..._internal.arguments import validate_arguments
from ..._internal.files import expand_home, temp_folder
from ..._internal.tasks import in_thread
from ...errors import StoreError, StoreFull, StoreUnavailable, UsageError
from .._base import DEFAULT_MAX_BYTES, ArtifactStore, AuditLog, StagedFile
from .._content import Description, Follower, Meter, measure_file
from .._files import PIECE, TO_SYNC, foreign_owner, map_os_errors, other_folder_advice, read_at, user_name, write_all
from .._ref import ID, ArtifactRef, Metadata, Problem, Scope, damaged, damaged_metadata, not_found
from .._retention import Entry, Removal, Retention
from ._blobs import BlobStore
from ._index import Catalog, Index
from ._maintenance import Maintenance
from ._tree import Folder, Tree, temporary_name

logger = logging.getLogger("transports.artifacts")

P = ParamSpec("P")
T = TypeVar("T")

#: Time in seconds that is longer than the time resolution of a file system.
_TIME_RESOLUTION = 0.1


class LocalStaged(StagedFile):
    """A staged file in the folder of a local store. Small chunks are collected and written a MiB at a time."""

    _store: LocalStore

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self._name = temporary_name()
        self._follower: Follower | None = None

    def _reset_state(self) -> None:
        super()._reset_state()
        self._file: FileIO | None = None
        #: True once the file exists on the disk.
        self._is_created = False
        #: Size and SHA-256 of the file at the last commit, which may have closed it.
        self._published = (0, "")
        #: Content that is measured, but not written yet.
        self._collected = bytearray()

    @property
    def path(self) -> Path:
        return self._store.root / ".abp" / "staging" / self._name

    async def prepare(self) -> None:
        await self._store._use_disk("make the artifact folder", self._prepare_folder)

    def _prepare_folder(self) -> None:
        with self._store._tree.folder(".abp", "staging", create=True):
            self._store._require_free_space()
        self._store._maintenance.sweep_once()

    async def _append_chunk(self, chunk: memoryview) -> None:
        max_small = 128 << 10  # bytes that are hashed faster than they are handed over to a thread
        if len(chunk) > max_small:
            await self._store._use_disk("write a file", self._write_now, chunk)
            return
        self._meter.add(chunk)
        self._collected += chunk
        if len(self._collected) >= PIECE:
            await self._store._use_disk("write a file", self._write_now)

    def _write_now(self, *chunks: memoryview) -> None:
        for chunk in chunks:
            self._meter.add(chunk)
        with self._store._tree.folder(".abp", "staging", create=True) as staging:
            self._write_collected(staging, *chunks)

    def _write_collected(self, staging: Folder, *more: memoryview) -> None:
        collected, self._collected = self._collected, bytearray()
        if self._file is None or self._file.closed:
            self._file = self._open_staged_file(staging)
            self._store._maintenance.sweep_once()

        chunks = (memoryview(collected), *more)
        self._store._require_free_space(sum(map(len, chunks)))
        for chunk in chunks:
            write_all(self._file.fileno(), chunk)

    def _open_staged_file(self, staging: Folder) -> FileIO:
        """Open the staged file: a new one, or the one that a failed commit closed."""
        if not self._is_created:
            file = FileIO(staging.create(self._name), "r+")
            self._is_created = True
            return file

        file = FileIO(staging.open(self._name, os.O_RDWR | os.O_APPEND), "r+")
        try:
            meter = measure_file(file.fileno(), self._store.max_bytes)
            if (meter.size, meter.sha256) != self._published:
                raise StoreError("the staged file was replaced after a failed commit; nothing was stored")
        except BaseException:
            file.close()
            raise
        return file

    def follow(self) -> None:
        self._require_usable()
        if self._follower is None and not self._written:
            # If no thread can be started, the file is read at the end.
            with suppress(RuntimeError):
                self._follower = Follower(self._open_path, self._store.max_bytes)

    async def _measure_external_file(self) -> bool:
        return await self._store._use_disk("store a file", self._read_external_file)

    def _read_external_file(self) -> bool:
        self._close_file()
        try:
            fd = self._open_path(TO_SYNC)
        except OSError as error:
            if self.path.is_symlink():
                raise StoreError("the staged file is a symlink and is not followed; nothing was stored") from error
            raise
        if fd < 0:
            return False
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError("the staged file is not a regular file; nothing was stored")

        self._file = FileIO(fd)
        self._store._require_free_space()
        os.fsync(fd)
        self._meter = measure_file(fd, self._store.max_bytes, self._stop_following(fd))
        return True

    def _open_path(self, flags: int = os.O_RDONLY) -> int:
        try:
            with self._store._tree.folder(".abp", "staging") as staging:
                return staging.open(self._name, flags)
        except FileNotFoundError:
            return -1

    async def _publish(self, description: Description) -> ArtifactRef:
        return await self._store._use_disk("store a file", self._publish_file, description)

    def _publish_file(self, description: Description) -> ArtifactRef:
        store = self._store
        with store._tree.folders() as folders:
            if self._collected or self._file is None or self._file.closed:
                # Until everything is written, the file is unusable: half of it must never be committed.
                self._usable = False
                self._write_collected(folders.staging)
                self._usable = True
            assert self._file is not None
            if description.durability == "disk":
                os.fsync(self._file.fileno())

            self._published = description.size, description.sha256
            metadata = store._blobs.publish(folders, self._name, self._file, description, store.scope)
        # Set this in the thread, because the caller may be cancelled meanwhile.
        self._committed = True
        return metadata.ref(store.root / metadata.names[-1].name)

    def _stop_following(self, fd: int = -1) -> Meter | None:
        follower, self._follower = self._follower, None
        return follower.stop(fd) if follower else None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _discard(self) -> None:
        self._stop_following()
        self._close_file()
        try:
            with self._store._tree.folder(".abp", "staging") as staging:
                try:
                    staging.unlink(self._name)
                except OSError as error:
                    logger.warning("the staged file %s could not be removed: %s", self.path, error)
        except (OSError, StoreError):
            # The folder is gone, or was never ours. Then there is no file, and storing it has failed.
            return

    async def aclose(self) -> None:
        """Remove uncommitted content. Errors of the disk are logged. A cancellation is delayed until it is removed."""
        if self._committed:
            self._stop_following()
            return
        try:
            await in_thread(self._discard)
        except RuntimeError:
            # No thread can be started.
            self._discard()


def default_root() -> Path:
    """Return the default folder. All users share the temp folder, so if another user has this folder, the name of the
    user is added."""
    root = _documented_root()
    owner = foreign_owner(root)
    if owner is None:
        return root
    user = re.sub(r"[^A-Za-z0-9._-]+", "-", user_name(os.geteuid()))
    root_of_user = root.with_name(f"{root.name}-{user}")
    _warn_of_other_root(root, owner, root_of_user)
    return root_of_user


def _documented_root() -> Path:
    return temp_folder() / "abp-mcp-bridge"


@lru_cache(maxsize=8)
def _warn_of_other_root(root: Path, owner: str, used_root: Path) -> None:
    """Log once for each folder, due to the cache, that another folder is used."""
    logger.warning("%s belongs to %s; files go to %s (ABP_OUTPUT_DIR names another folder)", root, owner, used_root)


class LocalStore(ArtifactStore):
    """A store with every artifact as a readable file directly in ``root``, and its own files under ``root/.abp/``::

        report.pdf, export_pdf_1732160000000.pdf     readable names, hard links to
        .abp/blobs/<sha256>                          the content, once
        .abp/meta/<id>.json                          an artifact exists if and only if this does
        .abp/index.sqlite                            a searchable copy of the metadata; may be deleted at any time
        .abp/text.sqlite                             the text index, with ``search_index``; may be deleted, too
        .abp/staging, locks, quarantine              files on their way in; locks; damaged content

    Nothing is created before the first artifact is stored. A new root gets mode 0700, files get 0600. Several
    processes, threads and event loops may use one folder at once. A readable name *is* the content: editing it in place
    damages the artifact, and :meth:`open` raises :class:`~transports.errors.Corrupt`.

    Every method raises :class:`~transports.errors.StoreError` if the disk refuses, if the root or a folder of the store
    in it is a symlink, or if the default root (``None``) belongs to another user.
    """

    _staged_class = LocalStaged

    @validate_arguments
    def __init__(
        self,
        root: Path | str | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
        search_index: bool = False,
        min_free_bytes: int = 0,
    ) -> None:
        """``search_index`` builds a full-text index at the first search. ``min_free_bytes`` of the disk stay free: a
        write beyond that raises :class:`~transports.errors.StoreFull`. The other arguments are those of
        :class:`~transports.ArtifactStore`."""
        super().__init__(max_bytes=max_bytes, retention=retention, audit=audit)
        self.root = expand_home(root or default_root()).absolute()
        try:
            str(self.root).encode()
        except UnicodeEncodeError:
            # References are JSON, with the paths of their files.
            raise UsageError(
                f"the artifact folder {str(self.root)!r} has a name that is not UTF-8; choose another"
            ) from None
        self.url = self.root.as_uri()
        self._min_free = min_free_bytes
        # Another user may have made a folder of this name in the shared temp folder.
        is_in_temp_folder = root is None or self.root == _documented_root().absolute()
        self._tree = Tree(self.root, private=is_in_temp_folder)
        index = Index(self._tree, live=retention is not None)
        self._blobs = BlobStore(self._tree, index)
        self._catalog = Catalog(self._tree, index)
        self._maintenance = Maintenance(self._tree, self._blobs, self._catalog)
        #: True if :func:`transports.artifacts.search` may keep a full-text index in the root.
        self.search_index = search_index

    async def aclose(self) -> None:
        """Close the SQLite index, which a store with a retention keeps open."""
        try:
            await in_thread(self._catalog.index.close)
        except RuntimeError:
            # No thread can be started. Closing takes little time, and may also run twice.
            self._catalog.index.close()

    async def _use_disk(self, action: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with map_os_errors(action, self.root):
                return await in_thread(work, *args, **kwargs)
        except RuntimeError as error:
            # No thread can be started: there are too many, or the interpreter is shutting down.
            raise StoreUnavailable(f"cannot {action} in {self.root} now: {error}", retryable=True) from error

    def _require_free_space(self, more: int = 0) -> None:
        if not self._min_free:
            return
        total, _, free = shutil.disk_usage(self.root)
        # Some file systems report 0 for both sizes.
        if total and free - more < self._min_free:
            raise StoreFull(
                f"cannot store more in {self.root}: {free:,} bytes of the disk are free, and {self._min_free:,} are "
                f"kept free (ABP_MIN_FREE_DISK); delete artifacts (abp artifacts gc), or {other_folder_advice()}",
                details={"folder": str(self.root), "free": free, "min_free": self._min_free},
            )

    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        return await self._use_disk("read an artifact", self._load_ref, artifact_id)

    def _load_ref(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        metadata = self._load_metadata(artifact_id)
        return metadata.ref(self._catalog.path(metadata)), metadata.stored

    def _load_metadata(self, artifact_id: str) -> Metadata:
        if not ID.fullmatch(artifact_id):
            raise not_found(artifact_id)
        try:
            return self._catalog.load(artifact_id)
        except FileNotFoundError:
            raise not_found(artifact_id) from None
        except ValueError as error:
            raise damaged_metadata(artifact_id, error) from error

    async def _list_artifacts(self, scope: Scope) -> list[tuple[ArtifactRef, float]]:
        return await self._use_disk("list artifacts", self._catalog.refs, scope)

    async def _list_entries(self, scope: Scope) -> list[Entry]:
        return await self._use_disk("list artifacts", self._catalog.entries, scope)

    async def change_token(self) -> object:
        """Return a token from the time of the metadata folder, which every commit and every removal changes; ``None``
        on a system without such a time."""
        return await self._use_disk("look at the store", self._read_change_token)

    def _read_change_token(self) -> object:
        try:
            with self._tree.folder(".abp", "meta") as meta:
                times = meta.times()
        except FileNotFoundError:
            return 0
        if times is None:
            return None
        # A second change within the resolution of the folder's time does not show, so make a unique token then.
        changed_just_now = time.time() - times.st_mtime < _TIME_RESOLUTION
        unique_number = time.monotonic_ns() if changed_just_now else 0
        return (times.st_ino, times.st_mtime_ns, unique_number)

    async def _record_use(self, artifact_id: str) -> None:
        await in_thread(self._catalog.index.touch, artifact_id)

    async def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        chunks = self._read_blob(ref, start, end, chunk_size)
        try:
            while chunk := await self._use_disk("read an artifact", lambda: next(chunks, b"")):
                yield chunk
        finally:
            chunks.close()

    def _read_blob(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> Generator[bytes, None, None]:
        """Read a range as :meth:`_read_range` does; it blocks. Damaged content is moved to quarantine."""
        digest = hashlib.sha256()
        position = start
        fd = self._open_blob(ref)
        try:
            has_size = os.fstat(fd).st_size == ref.size_bytes
            while has_size and position < end:
                chunk = read_at(fd, min(chunk_size, end - position), position)
                if not chunk:
                    break
                position += len(chunk)
                digest.update(chunk)
                yield chunk
        finally:
            os.close(fd)

        # The file is closed now: Windows cannot rename an open file, as quarantine() does.
        is_intact = has_size and position == end
        reads_whole = end - start == ref.size_bytes
        if is_intact and reads_whole:
            is_intact = digest.hexdigest() == ref.sha256
        if is_intact:
            return
        if self._blobs.quarantine(ref.sha256):
            raise damaged(ref, "its content no longer matches its hash and was put into quarantine")
        raise damaged(ref, "the bytes read do not match its hash; the content was replaced since, or cannot be moved")

    def _open_blob(self, ref: ArtifactRef) -> int:
        try:
            with self._tree.folder(".abp", "blobs") as blobs:
                return blobs.open(ref.sha256)
        except FileNotFoundError:
            # This raises ArtifactNotFound if the artifact was deleted just now.
            self._load_metadata(ref.id)
            raise damaged(ref, "its content is missing") from None

    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        if not ID.fullmatch(artifact_id):
            return False
        return await self._use_disk("delete an artifact", self._blobs.remove, artifact_id, stored)

    async def _sweep_leftovers(self, *, dry_run: bool) -> list[Removal]:
        return await self._use_disk("clean up", self._maintenance.sweep, dry_run=dry_run)

    async def _check_own_files(self, *, repair: bool) -> list[Problem]:
        return await self._use_disk("check the store", self._maintenance.check, repair=repair)
