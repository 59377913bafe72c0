"""The :class:`ArtifactStore` contract (docs/requirements.md R2-5.2): verified content, and small references to it.

Each kind of store implements only the abstract methods at the end of :class:`ArtifactStore`.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self, Unpack, overload

from .._internal.files import expand_home
from .._internal.tasks import in_thread
from .._internal.telemetry import ARTIFACT_BYTES, record, span
from ..errors import ABPError, ArtifactNotFound, Corrupt, StoreError, StoreUnavailable, TooLarge, UsageError
from ..protocol._times import iso_utc
from ._content import Description, Meter, PutOptions, as_bytes, describe, encode_text
from ._files import PIECE, map_os_errors, open_file, pieces_of
from ._ref import (
    ArtifactRef,
    CheckReport,
    Page,
    Problem,
    Query,
    Scope,
    artifact_id,
    id_of,
    not_found,
    page_of,
)
from ._retention import Entry, Removal, Retention
from ._verified import ExportFile, export_stream

logger = logging.getLogger("transports.artifacts")


class Staged(ABC):
    """A file that is not visible yet.

    Write to it with :meth:`write`, or let another program write the file at ``path`` (which does not exist until then);
    then :meth:`commit`. Leaving the ``async with store.stage()`` block removes uncommitted content."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """Path at which another program may write the whole content. Use either this or :meth:`write`."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of bytes given to :meth:`write` so far."""

    @abstractmethod
    async def write(self, chunk: bytes | memoryview) -> None:
        """Append a chunk. The buffer may be used again afterwards.

        Raises :class:`~transports.errors.TooLarge` at the store's limit and :class:`~transports.errors.StoreError` if
        the disk refuses; after an error only :meth:`reset` is possible."""

    @abstractmethod
    async def reset(self) -> None:
        """Drop all content and start again from zero bytes, for example if a download cannot be resumed."""

    def follow(self) -> None:
        """Begin to measure the file at :attr:`path` while another program writes it, so that :meth:`commit` has less
        to read. The program must only append. The default does nothing."""
        return

    @abstractmethod
    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Verify the content, make it visible and return its reference. It succeeds once.

        ``size`` (in bytes) and ``mime_type`` are declarations of the sender; ``filename`` is a suggestion and may come
        from an untrusted side; ``namespace``, the head of the id, is usually the capability (``None``: ``artifact``).
        ``meta`` becomes the reference's ``source``, which is shown to models: texts are cut at 1,000 characters, and
        long runs of base64, the queries of URLs and the values of keys that name credentials are left out.
        ``durability="process"`` does not wait for the disk: the artifact survives the death of this process, but a
        power cut within seconds may damage it. The default, ``"disk"``, survives both.

        Raises :class:`~transports.errors.SizeMismatch`, :class:`~transports.errors.TooLarge` and
        :class:`~transports.errors.StoreError`. After an error nothing is visible, and the commit may be tried again."""


class StagedFile(Staged):
    """Staged file, the part that all stores share: measure, verify, make room, publish, write the audit log."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._committed = False
        self._refused: ABPError | None = None
        self._reset_state()

    def _reset_state(self) -> None:
        self._meter = Meter(self._store.max_bytes)
        self._written = False
        self._usable = True

    async def prepare(self) -> None:
        """Prepare ``path`` for another program that writes to it."""

    @property
    def size(self) -> int:
        return self._meter.size

    async def write(self, chunk: bytes | memoryview) -> None:
        self._require_usable()
        content = as_bytes(chunk)

        # Until the whole chunk is written, the file is unusable: half of a chunk must never be committed.
        self._usable = False
        await self._append_chunk(content)
        self._written = True
        self._usable = True

    async def reset(self) -> None:
        self._usable = True  # even after a failed write
        self._require_usable()
        await self.aclose()
        self._reset_state()

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        self._require_usable()
        store = self._store

        try:
            with span("abp.verify", {}):
                has_content = self._written or await self._measure_external_file()
                # An empty file must be declared; otherwise a writer that failed early would store one.
                if not has_content and options.get("size") != 0:
                    raise StoreError(
                        "nothing was written to the staged file; write(b'') or declare size=0 to store an empty "
                        "artifact"
                    )
                description = describe(self._meter, **options)
            if store.retention:
                key = artifact_id(description.namespace, description.sha256, store.scope)
                await store._evictor.make_room(store, store.retention, key, description.size)
            with span("abp.commit", {"abp.artifact.size": description.size}):
                ref = await self._publish(description)
        except ABPError as error:
            self.refuse(error)
            raise

        self._committed = True
        record(ARTIFACT_BYTES, ref.size_bytes)
        store._write_audit("put", id=ref.id, bytes=ref.size_bytes, sha256=ref.sha256)
        return ref

    def refuse(self, error: ABPError) -> None:
        if error is not self._refused:
            self._refused = error
            self._store._write_audit("refuse", wanted="put", bytes=self.size, code=error.code)

    def _require_usable(self) -> None:
        if self._committed:
            raise UsageError("this staged file is already committed; stage another one")
        if not self._usable:
            raise UsageError("a write to this staged file failed; reset() it first")

    @abstractmethod
    async def _append_chunk(self, chunk: memoryview) -> None:
        """Measure a chunk and store a copy of it: the caller may change its buffer afterwards."""

    @abstractmethod
    async def _measure_external_file(self) -> bool:
        """Measure the file that another program wrote at :attr:`path`. Return ``False`` if there is none."""

    @abstractmethod
    async def _publish(self, description: Description) -> ArtifactRef:
        """Make the content visible. After an error nothing is visible, and the commit may be tried again."""

    @abstractmethod
    async def aclose(self) -> None:
        """Remove uncommitted content."""


#: Seconds between two searches for expired artifacts.
_SEARCH_INTERVAL = 60.0


class Evictor:
    """Eviction of artifacts by the retention of a store. All views of a store share one evictor."""

    def __init__(self) -> None:
        self._last_search = time.monotonic()

    async def make_room(self, store: ArtifactStore, policy: Retention, key: str, size: int) -> None:
        """Evict what must go before an artifact of ``size`` bytes is stored as ``key``. Raises as
        :meth:`.Retention.plan`."""
        search_is_due = time.monotonic() - self._last_search > _SEARCH_INTERVAL
        if policy.ttl_seconds is not None and search_is_due:
            self._last_search = time.monotonic()
            # If the store is unreachable, do not refuse the new artifact: the search is repeated a minute later.
            with suppress(StoreUnavailable):
                entries = await store._list_candidates(Scope(), policy.expiry)
                plan = [removal for removal in policy.expiry.plan(entries, time.time()) if removal.id != key]
                await self.evict(store, plan, entries)

        has_own_limits = policy.counts and (store.scope.session or store.scope.trace)
        if has_own_limits:
            session = Scope(store.scope.tenant, store.scope.user, store.scope.session)
            entries = await store._list_entries(session)
            now = time.time()
            plan = policy.plan(entries, now, Entry(key, size, now, now, store.scope))
            await self.evict(store, plan, entries)

    async def collect(self, store: ArtifactStore, *, dry_run: bool) -> Sequence[Removal]:
        """Evict what the retention no longer allows in the store's scope. ``dry_run`` only returns the plan."""
        if store.retention is None:
            return []

        entries = await store._list_candidates(store.scope, store.retention)
        plan = store.retention.plan(entries, time.time())
        if dry_run:
            return plan
        return await self.evict(store, plan, entries)

    async def evict(self, store: ArtifactStore, plan: Sequence[Removal], entries: Sequence[Entry]) -> Sequence[Removal]:
        """Carry out a plan, except for artifacts that were stored again since ``entries`` was read."""
        stored_times = {entry.id: entry.stored for entry in entries}
        removals = []
        for removal in plan:
            if not await store._delete_artifact(removal.id, stored_times[removal.id]):
                continue

            store._write_audit("evict", id=removal.id, bytes=removal.size_bytes, reason=removal.reason)
            removals.append(removal)
            _notify_of_removal(store.retention, removal)

        return removals


def _notify_of_removal(policy: Retention | None, removal: Removal) -> None:
    if policy is None or policy.on_removal is None:
        return
    try:
        policy.on_removal(removal)
    except Exception:
        logger.exception("the on_removal of a retention failed for %s", removal.id)


class AuditLog:
    """An append-only file with one JSON object per line. Any number of processes may share it.

    Each line has ``time`` (ISO 8601, UTC), ``action`` (``put``, ``read``, ``delete``, ``evict``, ``refuse``), ``who``
    (the scope of the view that was used; empty for an unscoped store), ``process`` and, as they apply, ``id``,
    ``bytes``, ``code`` and ``reason``. The log never holds content, file names or credentials.

    A line is one ``write`` to a file opened with ``O_APPEND``, so lines of several processes never mix. A symlink in
    the file's place is refused (``O_NOFOLLOW``). If a line cannot be written, the method raises
    :class:`~transports.errors.StoreError` rather than leave a gap."""

    def __init__(self, path: Path) -> None:
        self.path = expand_home(path).absolute()

    def check(self) -> None:
        """Raise :class:`~transports.errors.StoreError` if the file cannot be opened to append. Creates it."""
        self._append(b"")

    def write(self, action: str, who: Scope, **facts: object) -> None:
        """Append one line. ``who`` is the scope that acted; ``facts`` are JSON values, and ``None`` is left out."""
        line: dict[str, object] = {
            "time": iso_utc(time.time()),
            "action": action,
            "who": dict(who.items()),
            "process": os.getpid(),
        }
        line |= {name: value for name, value in facts.items() if value is not None}
        data = json.dumps(line, ensure_ascii=True).encode() + b"\n"
        self._append(data)

    def _append(self, data: bytes) -> None:
        try:
            # The log is opened for each line, so that a rotated log does not go on growing unseen.
            fd = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                written = os.write(fd, data)
            finally:
                os.close(fd)
        except OSError as error:
            reason = error.strerror or str(error)
            if self.path.is_symlink():
                reason = "it is a symlink, which is not followed"
            raise self._audit_error(reason) from error
        if written != len(data):
            raise self._audit_error("no space is left")

    def _audit_error(self, reason: str) -> StoreError:
        return StoreError(f"cannot write the audit log {self.path}: {reason}; name another file with ABP_AUDIT_LOG")


#: Default of the largest artifact, in bytes: 1 GiB.
DEFAULT_MAX_BYTES = 1 << 30
list_ = list  # inside the class, ``list`` is a method


class ArtifactStore(ABC):
    """Base class of all artifact stores.

    The id of an artifact is ``{namespace}_{first 12 hex digits of its SHA-256}`` (docs/requirements.md R2-5.3),
    followed by digits of its scope if it has one. The same content in one namespace and scope is one artifact.
    Use a store in ``async with``, or call :meth:`aclose` when it is no longer needed."""

    #: URL that :func:`transports.artifacts.open_store` would open again.
    url: str

    def __init__(
        self, *, max_bytes: int = DEFAULT_MAX_BYTES, retention: Retention | None = None, audit: AuditLog | None = None
    ) -> None:
        """``max_bytes`` is the largest artifact in bytes (the retention may allow less). Without ``retention``
        everything is kept; without ``audit`` nothing is logged."""
        limit = retention.max_artifact_bytes if retention else None
        self.max_bytes = max_bytes if limit is None else min(max_bytes, limit)
        self.retention = retention
        self.audit = audit
        #: Scope of this view: the artifacts that it sees, and the owner of those stored through it.
        self.scope = Scope()
        self._evictor = Evictor()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Close files and connections that the store holds open. Artifacts stay.

        Idempotent. A view shares open files with its store, so closing either closes both; the next method call opens
        them again."""

    def scoped(self, scope: Scope) -> Self:
        """Return a view of the same store that sees only what ``scope`` covers.

        Artifacts of another session are not listed, and their ids are unknown. Raises
        :class:`~transports.errors.UsageError` for a scope outside this view's own."""
        view = copy.copy(self)
        view.scope = self.scope.within(scope)
        return view

    # --- putting ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Staged]:
        """Open a new staged file (:class:`Staged`). Uncommitted content is removed when the block ends."""
        async with self._stage() as staged:
            await staged.prepare()
            yield staged

    @asynccontextmanager
    async def _stage(self) -> AsyncIterator[StagedFile]:
        """Open a staged file whose ``path`` is not prepared for another program."""
        if self.audit:
            self.audit.check()
        staged = self._staged_class(self)
        try:
            yield staged
        except (TooLarge, StoreError) as error:
            staged.refuse(error)
            raise
        finally:
            await staged.aclose()

    async def put_bytes(self, data: bytes | memoryview, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Store ``data``. Arguments and errors are those of :meth:`Staged.commit`."""
        async with self._stage() as staged:
            await staged.write(data)
            return await staged.commit(**options)

    async def put_text(self, text: str, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Store text as UTF-8, as ``text/plain`` unless ``mime_type`` says otherwise. Raises
        :class:`~transports.errors.UsageError` for a lone surrogate."""
        defaults: PutOptions = {"mime_type": "text/plain"}
        return await self.put_bytes(encode_text(text), **(defaults | options))

    async def put_stream(self, chunks: AsyncIterable[bytes | memoryview], **options: Unpack[PutOptions]) -> ArtifactRef:
        """Store the chunks of an asynchronous iterator without holding them all. If it raises, nothing is stored."""
        async with self._stage() as staged:
            # An empty stream is an empty file.
            await staged.write(b"")
            async for chunk in chunks:
                await staged.write(chunk)
            return await staged.commit(**options)

    async def put_file(self, path: str | os.PathLike[str], **options: Unpack[PutOptions]) -> ArtifactRef:
        """Store a copy of a file, under its name unless ``filename`` says otherwise. Raises
        :class:`~transports.errors.StoreError` if it cannot be read."""
        file = Path(path)
        defaults: PutOptions = {"filename": file.name}
        with map_os_errors("read a file", file.parent):
            stream = await in_thread(file.open, "rb", 0)
        with stream:
            async with aclosing(pieces_of(stream)) as chunks:
                return await self.put_stream(chunks, **(defaults | options))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def stat(self, artifact_id: str) -> ArtifactRef:
        """Return the reference of an id. Raises :class:`~transports.errors.ArtifactNotFound`."""
        return await self._require_visible(artifact_id, "stat")

    async def exists(self, artifact_id: str) -> bool:
        """Return whether this view has an artifact of this id."""
        with suppress(ArtifactNotFound):
            return bool(await self.stat(artifact_id))
        return False

    async def list(self) -> list[ArtifactRef]:
        """Return all artifacts of this view, oldest first; those that were stored in one millisecond, by their ids."""
        return [ref for ref, _ in await self._list_unexpired()]

    async def _list_unexpired(self) -> Sequence[tuple[ArtifactRef, float]]:
        """Return the references of :meth:`list`, each with the time at which it was stored last."""
        artifacts = await self._list_artifacts(self.scope)
        return [(ref, stored) for ref, stored in artifacts if not self._is_expired(stored, ref.scope)]

    def open(
        self, artifact: ArtifactRef | str, *, offset: int = 0, length: int | None = None, chunk_size: int = PIECE
    ) -> AsyncGenerator[bytes, None]:
        """Stream ``length`` bytes of an artifact (a reference or an id) from ``offset`` on, or all the rest.

        A piece has at most ``chunk_size`` bytes. A started reader can finish even if the artifact is deleted or evicted
        meanwhile. Raises :class:`~transports.errors.ArtifactNotFound` at the first step and, **after** the last
        piece of a whole artifact, :class:`~transports.errors.Corrupt` if the bytes did not match their hash; the
        content is then moved to quarantine. The hash of a part cannot be checked."""
        return self._stream(id_of(artifact), offset, length, chunk_size)

    async def _stream(
        self, artifact_id: str, offset: int, length: int | None, chunk_size: int
    ) -> AsyncGenerator[bytes, None]:
        """Stream content. At the end, write a line to the audit log, with the number of bytes that were read and the
        code of an error."""
        if min(offset, length or 0) < 0 or chunk_size < 1:
            raise UsageError("offset and length must not be negative, chunk_size must be 1 or more")
        if self.audit:
            self.audit.check()

        ref = await self._require_visible(artifact_id, "read")
        if self.retention and self.retention.cleanup_strategy == "lru":
            await self._record_use(artifact_id)

        end = ref.size_bytes if length is None else min(offset + length, ref.size_bytes)
        start = min(offset, end)
        bytes_read = 0
        # The code is still this one after a cancellation, and if the caller closes the stream before its end.
        code: str | None = "CANCELLED"
        try:
            async with aclosing(self._read_range(ref, start, end, chunk_size)) as chunks:
                async for chunk in chunks:
                    bytes_read += len(chunk)
                    yield chunk
            code = None
        except ABPError as error:
            code = error.code
            raise
        finally:
            self._write_audit("read", id=artifact_id, bytes=bytes_read, code=code)

    @overload
    async def get(self, artifact: ArtifactRef, *, offset: int = 0, length: int | None = None) -> bytes: ...
    @overload
    async def get(self, artifact: str, *, offset: int = 0, length: int | None = None) -> bytes | None: ...
    async def get(self, artifact: ArtifactRef | str, *, offset: int = 0, length: int | None = None) -> bytes | None:
        """Return the bytes of an artifact. Arguments and errors are those of :meth:`open`.

        An unknown id gives ``None``, as the protocol of stores has it (docs/requirements.md R2-5.2). A reference was
        given by a store, so one whose artifact is gone raises :class:`~transports.errors.ArtifactNotFound`."""
        try:
            async with aclosing(self.open(artifact, offset=offset, length=length)) as chunks:
                return b"".join([chunk async for chunk in chunks])
        except ArtifactNotFound:
            if isinstance(artifact, ArtifactRef):
                raise
            return None

    async def export(self, artifact: ArtifactRef | str, path: str | os.PathLike[str]) -> Path:
        """Copy an artifact (a reference or an id) out of the store to ``path``, and return the absolute path.

        Missing folders are made and an existing file is replaced. The copy is compared with the artifact's size and
        SHA-256 before it replaces ``path`` at once: an error or a cancellation leaves ``path`` unchanged.

        Raises :class:`~transports.errors.ArtifactNotFound`, :class:`~transports.errors.Corrupt`,
        :class:`~transports.errors.UsageError` for a ``path`` that is a folder, and
        :class:`~transports.errors.StoreError` if the file cannot be written."""
        ref = artifact if isinstance(artifact, ArtifactRef) else await self.stat(id_of(artifact))
        return await export_stream(self.open(ref.id), ExportFile(path, ref))

    async def change_token(self) -> object:
        """Return a value that changes when any process stores or removes an artifact, to be compared with ``==``;
        ``None`` if the store has nothing cheaper than :meth:`list`."""
        return None

    async def presigned(self, artifact_id: str, seconds: float) -> str | None:
        """Return a signed URL of the store's own server, valid for ``seconds`` and for any client, or ``None`` if the
        store has no server. Raises :class:`~transports.errors.ArtifactNotFound`."""
        await self._require_visible(artifact_id, "read")
        return None

    # --- removing -----------------------------------------------------------------------------------------------------

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact. Return ``False`` if this view has no artifact of that id."""
        if self.audit:
            self.audit.check()

        if self.scope:
            try:
                await self._require_visible(artifact_id, "delete")
            except ArtifactNotFound:
                return False

        was_removed = await self._delete_artifact(artifact_id)
        if was_removed:
            self._write_audit("delete", id=artifact_id)
        return was_removed

    async def enforce_retention(self) -> Sequence[Removal]:
        """Remove the artifacts that the retention no longer allows, and return them. Faster than :meth:`gc`."""
        return await self._evictor.collect(self, dry_run=False)

    async def gc(self, *, dry_run: bool = False) -> Sequence[Removal]:
        """Remove the artifacts that the retention no longer allows, and return them; ``dry_run`` only returns them.

        A store without a scope also removes unreachable files: staged files whose writer died, content without
        metadata (both after an hour), and quarantined content after a day."""
        removals = await self._evictor.collect(self, dry_run=dry_run)
        if self.scope:
            return removals
        return [*removals, *await self._sweep_leftovers(dry_run=dry_run)]

    async def end_session(self) -> int:
        """Remove everything in the view of one session if the retention has ``cleanup_on_session_end``, and return the
        number of removed artifacts. Call it at the end of the session.

        Raises :class:`~transports.errors.UsageError` for a view without a session."""
        if not (self.retention and self.retention.cleanup_on_session_end):
            return 0
        if self.scope.session is None:
            raise UsageError("end_session() needs a view of one session: store.scoped(Scope(session=…))")
        entries = await self._list_entries(self.scope)
        plan = [Removal("artifact", entry.id, entry.size, "session end") for entry in entries]
        return len(await self._evictor.evict(self, plan, entries))

    async def fsck(self, *, repair: bool = False) -> CheckReport:
        """Read everything in this view and return a report of the damage. Damaged content is moved to quarantine.

        A store without a scope also checks its own files: unreadable metadata, which ``repair`` moves to quarantine
        with its content, rows of an index that differ from the metadata, which are repaired, and in a folder content
        without metadata and symlinks."""
        problems: list[Problem] = []
        # Check the index first: a wrong row must not make content look damaged.
        problems_of_files = () if self.scope else await self._check_own_files(repair=repair)
        refs = [ref for ref, _ in await self._list_artifacts(self.scope)]
        for ref in refs:
            try:
                async with aclosing(self._read_range(ref, 0, ref.size_bytes, PIECE)) as chunks:
                    async for _ in chunks:
                        pass
            except Corrupt as error:
                problems.append(Problem("content", ref.id, error.message))
            except ArtifactNotFound:
                # The artifact was deleted meanwhile.
                continue
        return CheckReport(len(refs), sum(ref.size_bytes for ref in refs), (*problems, *problems_of_files))

    # --- shared by all kinds of stores --------------------------------------------------------------------------------

    async def _require_visible(self, artifact_id: str, action: str) -> ArtifactRef:
        """Return an artifact of this scope. A refusal of ``action`` is written to the audit log with its reason, which
        the caller does not learn: to the caller, an id of another scope is unknown."""
        reason = None  # stays None for an error of the store itself
        try:
            ref, stored = await self._stat_artifact(artifact_id)
            if not self.scope.covers(ref.scope):
                reason = "belongs to somebody else"
            elif self._is_expired(stored, ref.scope):
                reason = "expired"
            if reason:
                raise not_found(artifact_id)
        except ABPError as error:
            self._write_audit("refuse", wanted=action, id=artifact_id[:200], code=error.code, reason=reason)
            raise
        return ref

    def _is_expired(self, stored: float, scope: Scope) -> bool:
        return self.retention is not None and self.retention.expired(stored, time.time(), scope)

    def _write_audit(self, action: str, **facts: object) -> None:
        if self.audit:
            self.audit.write(action, self.scope, **facts)

    # --- implemented by each kind of store ----------------------------------------------------------------------------

    _staged_class: ClassVar[type[StagedFile]]

    @abstractmethod
    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        """Return an artifact of any scope, and the time at which it was stored last. Raises :func:`not_found`."""

    @abstractmethod
    async def _list_artifacts(self, scope: Scope) -> Sequence[tuple[ArtifactRef, float]]:
        """Return the artifacts that ``scope`` covers, in the order of :func:`age_key`, each with the time at which it
        was stored last."""

    @abstractmethod
    def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """Stream the bytes ``start`` to ``end`` (exclusive) of an artifact. Only whole content is verified."""

    @abstractmethod
    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        """Remove an artifact of any scope; ``False`` if there is none, or if it was not last stored at ``stored``."""

    async def _record_use(self, artifact_id: str) -> None:  # noqa: B027 - only a retention needs it
        """Record the use of an artifact. The default does nothing, for stores without a retention."""

    async def _list_entries(self, scope: Scope) -> Sequence[Entry]:
        return ()

    async def _list_candidates(self, scope: Scope, policy: Retention) -> Sequence[Entry]:
        """Return entries, at least those that ``policy`` may remove, and all of each session and trace over a limit."""
        return await self._list_entries(scope)

    async def _find_page(self, query: Query) -> Page:
        return page_of(query, await self.list())

    async def _sweep_leftovers(self, *, dry_run: bool) -> Sequence[Removal]:
        return ()

    async def _check_own_files(self, *, repair: bool) -> Sequence[Problem]:
        return ()
