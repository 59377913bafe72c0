"""The default store: artifacts as files in a folder on this machine.

:class:`LocalStore` is the store, :class:`LocalStaged` a staged file of it, and :class:`Writer` the thread that commits
small artifacts.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NoReturn, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from ..._internal.tasks import finished, in_thread
from ...errors import Corrupt, StoreError, StoreFull, StoreUnavailable, checked
from .._audit import AuditLog
from .._base import DEFAULT_MAX_BYTES, ArtifactStore, StagedFile
from .._content import Description, Follower, Meter, as_bytes, measure_file, nothing_written
from .._files import TO_SYNC, foreign_owner, map_os_errors, other_folder, read_at, user_name, write_all
from .._ref import ID, ArtifactRef, CheckReport, Metadata, Problem, Scope, damaged_metadata, not_found
from .._retention import Entry, Removal, Retention
from ._blobs import BlobStore
from ._catalog import Catalog
from ._index import Index, TextIndex
from ._maintenance import Maintenance
from ._tree import Folder, LockBusy, OpenFile, OpenFolders, Tree, temporary_name, use

logger = logging.getLogger("transports.artifacts")

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[OpenFolders], Any], "asyncio.Future[Any]"]
_Outcome: TypeAlias = "tuple[asyncio.Future[Any], Any, BaseException | None]"

_BATCH = 32  # jobs whose results are returned together: more would delay the first ones
_STAY = 0.05  # seconds that the thread keeps its folders open and waits for more work


class Writer:
    """A runner of short blocking work below one root. Each event loop has its own thread, which ends with the writer or
    after :meth:`close`."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()

    async def run(self, work: Callable[[OpenFolders], T]) -> T:
        """Run ``work`` in the thread, with open folders, and return its result. As with
        :func:`~transports._internal.tasks.in_thread`, a cancelled caller waits until ``work`` has ended."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane(self._tree)
        done: asyncio.Future[T] = loop.create_future()
        lane.add(loop, (work, done))
        try:
            return await done
        except asyncio.CancelledError:
            after: asyncio.Future[None] = loop.create_future()
            lane.add(loop, (lambda folders: None, after))  # runs when ``work`` has ended
            with suppress(StoreUnavailable):
                await finished(after)
            raise

    def close(self) -> None:
        """Let the threads end when their work is done. The next :meth:`run` starts a new one."""
        for lane in self._lanes.values():
            lane.end()
        self._lanes.clear()


class _Lane:
    """The queue and the thread of one event loop. The executor's thread ends when the lane is collected."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._executor = ThreadPoolExecutor(1, "abp-store")
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        self._visited = False  # True during a visit; used only in the loop's thread
        self._stay = _STAY

    def add(self, loop: asyncio.AbstractEventLoop, job: _Job) -> None:
        """Queue ``job`` for the current visit of the folders, or start a new visit."""
        self._waiting.put(job)
        if not self._visited:
            self._start(loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._executor.submit(self._visit, loop)
            self._visited = True
        except RuntimeError as error:  # no thread can be started: too many, or the interpreter is shutting down
            refused = StoreUnavailable(f"nothing can be stored now: {error}")
            while not self._waiting.empty():
                if job := _next(self._waiting):  # None marks an end
                    _deliver([(job[1], None, refused)])

    def end(self) -> None:
        """End the current visit when its work is done."""
        self._stay = 0.0
        self._waiting.put(None)

    def _visit(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with OpenFolders(self._tree) as folders:
                while job := _next(self._waiting, self._stay):
                    outcomes = [_outcome(job, folders, renew=True)]
                    while len(outcomes) < _BATCH and (job := _next(self._waiting)):
                        outcomes.append(_outcome(job, folders))
                    loop.call_soon_threadsafe(_deliver, outcomes)
        finally:  # also if closing a folder fails
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the results
                loop.call_soon_threadsafe(self._leave, loop)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        self._visited = False
        if not self._waiting.empty():  # queued while the visit was ending
            self._start(loop)


def _next(waiting: SimpleQueue[_Job | None], seconds: float = 0.0) -> _Job | None:
    try:
        return waiting.get(timeout=seconds)
    except Empty:
        return None


def _outcome(job: _Job, folders: OpenFolders, *, renew: bool = False) -> _Outcome:
    work, done = job
    try:
        if renew:
            folders.renew()
        return done, work(folders), None
    except StopIteration as error:  # a future refuses it as an exception
        return done, None, RuntimeError(f"work of the store ended with {error!r}")
    except BaseException as error:  # noqa: BLE001 - raised again in the waiting caller
        return done, None, error


def _deliver(outcomes: list[_Outcome]) -> None:
    for done, result, error in outcomes:
        if done.done():  # cancelled
            continue
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


_PIECE = 1 << 20  # bytes collected before they are written in a thread
_INLINE = 128 << 10  # bytes whose hashing is faster than the hand-over to a thread


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
        self._closed = (0, "")  # size and SHA-256 of the file at a commit, which may close it
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
            # small chunks are collected; bytes are immutable, any other buffer the caller may reuse
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
        """Return a descriptor of the staged file: of a new one, or of the one that a failed commit closed."""
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
            with suppress(RuntimeError):  # no thread can be started; the file is then read at the end
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
                self._committed = True  # set in the thread, because the caller may be cancelled meanwhile
                self._close()
                return metadata.ref(self._tree.root / metadata.names[-1].name)

        if self._fd < 0 and description.durability == "process" and self._store.retention is None:
            with suppress(LockBusy):  # waiting here for another process would block the other commits of this one
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
        # syncing needs the disk and hashing the CPU: in parallel they take as long as the slower one
        failed: list[Exception] = []

        def sync() -> None:
            try:
                os.fsync(self._fd)
            except Exception as error:  # noqa: BLE001 - raised below
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
        with ExitStack() as stack:
            try:
                staging = stack.enter_context(self._tree.folder(".abp", "staging"))
            except (OSError, StoreError):
                return  # the folder is gone, or was never ours: then there is no file, and storing it has failed
            try:
                staging.unlink(self._name)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning("the staged file %s could not be removed: %s", self.path, error)

    async def aclose(self) -> None:
        """Remove the file unless it was committed.

        Errors of the disk are logged, not raised. A cancellation is delayed until the file is removed.
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
    if total and free - more < min_free:  # some file systems report 0
        raise StoreFull(
            f"cannot store more in {folder}: {free:,} bytes of the disk are free, and {min_free:,} are kept free "
            f"(ABP_MIN_FREE_DISK); delete artifacts (abp artifacts gc), or {other_folder()}",
            details={"folder": str(folder), "free": free, "min_free": min_free},
        )


#: Seconds, longer than the time resolution of a file system.
_TICK = 0.1


def default_root() -> Path:
    """Return ``<temp folder>/abp-mcp-bridge``, the folder of a store without a root.

    All users share the temp folder: if this name is another user's, the user's own name is added to it, with a
    warning."""
    root = _documented_root()
    owner = foreign_owner(root)
    if owner is None:
        return root
    own = root.with_name(f"{root.name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', user_name(os.geteuid()))}")
    _tell_of_other_root(root, owner, own)
    return own


def _documented_root() -> Path:
    return Path(tempfile.gettempdir()) / "abp-mcp-bridge"


@lru_cache(maxsize=8)
def _tell_of_other_root(root: Path, owner: str, own: Path) -> None:
    logger.warning("%s belongs to %s; files go to %s (ABP_OUTPUT_DIR names another folder)", root, owner, own)


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

    @checked
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
        self.root = Path(root or default_root()).expanduser().absolute()
        self.url = self.root.as_uri()
        self._min_free = min_free_bytes
        # another user may have made a folder of this name in the shared temp folder
        self._tree = Tree(self.root, own=root is None or self.root == _documented_root().absolute())
        index = Index(self._tree, live=retention is not None)
        self._blobs = BlobStore(self._tree, index)
        self._catalog = Catalog(self._tree, index)
        self._writer = Writer(self._tree)
        self._maintenance = Maintenance(self._tree, self._blobs, self._catalog)
        #: Full-text index for :func:`transports.artifacts.search`, if there is one.
        self.text_index = TextIndex(self._tree) if search_index else None

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    async def aclose(self) -> None:
        """Close the SQLite index, which a store with a retention keeps open, and end the writer thread."""
        self._writer.close()
        await in_thread(self._catalog.index.close)

    async def _new_staged(self) -> StagedFile:
        return LocalStaged(self, self._tree, self._blobs, self._writer, self._maintenance, self._min_free)

    async def _stat(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        def work() -> tuple[ArtifactRef, float]:
            with map_os_errors("read an artifact", self.root):
                metadata = _load(self._catalog, artifact_id)
                return metadata.ref(self._catalog.path(metadata)), metadata.stored

        return await in_thread(work)

    async def _list(self, scope: Scope) -> list[ArtifactRef]:
        """Return the artifacts of ``scope``, oldest first. Unreadable metadata is logged and left out."""

        def work() -> list[ArtifactRef]:
            with map_os_errors("list artifacts", self.root):
                return self._catalog.refs(scope)

        return await in_thread(work)

    async def _entries(self, scope: Scope) -> list[Entry]:
        def work() -> list[Entry]:
            with map_os_errors("list artifacts", self.root):
                return self._catalog.entries(scope)

        return await in_thread(work)

    async def change_token(self) -> object:
        """Return a token from the time of the metadata folder, which every commit and every removal changes; ``None``
        on a system without such a time."""

        def work() -> object:
            with map_os_errors("look at the store", self.root):
                try:
                    with self._tree.folder(".abp", "meta") as meta:
                        now = meta.times()
                except FileNotFoundError:
                    return 0
                if now is None:
                    return None
                # a second change within the resolution of the folder's time would not be seen
                ticking = time.time() - now.st_mtime < _TICK
                return (now.st_ino, now.st_mtime_ns, time.monotonic_ns() if ticking else 0)

        return await in_thread(work)

    async def _touch(self, artifact_id: str) -> None:
        await in_thread(self._catalog.index.touch, artifact_id)

    async def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        reader = _Reader(self._blobs, self._catalog, self.root, ref, start, end)
        try:
            while chunk := await in_thread(reader.read, chunk_size):
                yield chunk
                if reader.done:
                    break
            if reader.damaged:
                await in_thread(reader.quarantine)
        finally:
            reader.close()

    async def _delete(self, artifact_id: str, stored: float | None = None) -> bool:
        """Remove an artifact with all its readable names."""
        if not ID.fullmatch(artifact_id):
            return False

        def work() -> bool:
            with map_os_errors("delete an artifact", self.root):
                return self._blobs.remove(artifact_id, stored)

        return await in_thread(work)

    async def _sweep(self, *, dry_run: bool) -> list[Removal]:
        def work() -> list[Removal]:
            with map_os_errors("clean up", self.root):
                return self._maintenance.sweep(dry_run=dry_run)

        return await in_thread(work)

    async def fsck(self, *, repair: bool = False) -> CheckReport:
        """Check the content, and without a scope also the store itself: unreadable metadata (``repair`` moves it and
        its content to quarantine), rows of the index that differ from the metadata (they are repaired), content without
        metadata, and symlinks in the store's folders."""

        def work() -> list[Problem]:
            with map_os_errors("check the store", self.root):
                return self._maintenance.check(repair=repair)

        # the index first: a wrong row must not make content look damaged
        problems = [] if self.scope else await in_thread(work)
        found = await super().fsck()
        return replace(found, problems=(*found.problems, *problems))


def _load(catalog: Catalog, artifact_id: str) -> Metadata:
    if not ID.fullmatch(artifact_id):
        raise not_found(artifact_id)
    try:
        return catalog.load(artifact_id)
    except FileNotFoundError:
        raise not_found(artifact_id) from None
    except ValueError as error:
        raise damaged_metadata(artifact_id, error) from error


class _Reader:
    """Reader of a blob, which checks the hash at the end of a whole read. Every method blocks."""

    def __init__(self, blobs: BlobStore, catalog: Catalog, root: Path, ref: ArtifactRef, start: int, end: int) -> None:
        self._blobs = blobs
        self._catalog = catalog
        self._root = root
        self._ref = ref
        self._position = start
        self._end = end
        self._whole = end - start == ref.size_bytes
        self._fd = -1
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return the next bytes, or ``b""`` at the end."""
        with map_os_errors("read an artifact", self._root):
            if self._fd < 0:
                self._open()
            wanted = min(size, self._end - self._position)
            chunk = read_at(self._fd, wanted, self._position)
            self._position += len(chunk)
            if self._whole:
                self._digest.update(chunk)
            if wanted and not chunk:
                self.quarantine()
        return chunk

    def _open(self) -> None:
        try:
            self._fd = self._blobs.open(self._ref.sha256)
        except FileNotFoundError:
            _load(self._catalog, self._ref.id)  # raises ArtifactNotFound if it was deleted just now
            raise self._corrupt("its content is missing") from None
        if os.fstat(self._fd).st_size != self._ref.size_bytes:
            self.quarantine()

    @property
    def done(self) -> bool:
        """True at the end of the range."""
        return self._position >= self._end

    @property
    def damaged(self) -> bool:
        """True if the bytes of a whole read differ from the stored content."""
        return self._whole and self._digest.hexdigest() != self._ref.sha256

    def quarantine(self) -> NoReturn:
        """Move the content to quarantine, if it is still damaged, and raise :class:`~transports.errors.Corrupt`."""
        with map_os_errors("read an artifact", self._root):
            self.close()  # an open file cannot be renamed on Windows
            moved = self._blobs.quarantine(self._ref.sha256)
        if moved:
            raise self._corrupt("its content no longer matches its hash and was put into quarantine")
        raise self._corrupt("the bytes read do not match its hash; the content was replaced since, or cannot be moved")

    def _corrupt(self, what: str) -> Corrupt:
        key = self._ref.id
        return Corrupt(f"artifact {key} is damaged: {what}; store it again", details={"id": key})

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
