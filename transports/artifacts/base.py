"""The :class:`ArtifactStore` contract (docs/requirements.md R2-5.2): verified bytes go in, a small reference comes out.

The public methods are written here once for all stores, with scopes, retention and the audit log. Each kind of store
implements only the abstract methods at the end.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Self, Unpack

from ..errors import ABPError, ArtifactNotFound, StoreError, TooLarge, UsageError
from .audit import AuditLog
from .content import PutOptions, encode_text
from .eviction import Evictor
from .files import PIECE, read_pieces, write_out
from .metadata import not_found
from .query import Page, Query, page_of
from .reading import check_all, stream
from .ref import ArtifactRef, CheckReport, Scope, export_file, id_of
from .retention import Entry, Removal, Retention
from .staged import Staged, StagedFile

__all__ = ["DEFAULT_MAX_BYTES", "ArtifactStore", "Staged"]

#: Largest artifact in bytes unless the store is told otherwise: 1 GiB.
DEFAULT_MAX_BYTES = 1 << 30
list_ = list  # inside the class, ``list`` is a method


class ArtifactStore(ABC):
    """A place where artifacts are kept.

    The id of an artifact is ``{namespace}_{first 12 hex digits of its SHA-256}`` (docs/requirements.md R2-5.3),
    followed by digits of its scope if it has one. The same content in one namespace and scope is one artifact.
    Use a store in ``async with``, or call :meth:`aclose` when it is no longer needed.
    """

    #: Address that :func:`transports.artifacts.open_store` would open again.
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
        #: What this view sees; what is put through it belongs to this scope.
        self.scope = Scope()
        self._evictor = Evictor()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Close files and connections that the store holds open. Artifacts stay.

        Idempotent. A view shares what is open with its store, so closing either closes both; the next method that is
        called opens again what it needs.
        """

    def scoped(self, scope: Scope) -> Self:
        """Return a view of the same store that sees only what ``scope`` covers.

        An artifact of another session is not listed, and its id is as unknown as one that never was. Raises
        :class:`~transports.errors.UsageError` for a scope outside this view's own.
        """
        view = copy.copy(self)
        view.scope = self.scope.within(scope)
        return view

    # --- putting ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Staged]:
        """Open a new staged file (:class:`Staged`). What is not committed when the block ends is removed."""
        async with self._stage() as staged:
            await staged.prepare()
            yield staged

    @asynccontextmanager
    async def _stage(self) -> AsyncIterator[StagedFile]:
        """Open a staged file that no other program writes."""
        if self.audit:
            self.audit.check()
        staged = await self._new_staged()
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
        """Store the chunks of an asynchronous iterator without holding all of them. If it raises, nothing is stored."""
        async with self._stage() as staged:
            await staged.write(b"")  # an empty stream is an empty file
            async for chunk in chunks:
                await staged.write(chunk)
            return await staged.commit(**options)

    async def put_file(self, path: str | os.PathLike[str], **options: Unpack[PutOptions]) -> ArtifactRef:
        """Store a copy of a file, under its name unless ``filename`` says otherwise. Raises
        :class:`~transports.errors.StoreError` if it cannot be read."""
        file = Path(path)
        defaults: PutOptions = {"filename": file.name}
        async with aclosing(read_pieces(file)) as chunks:
            return await self.put_stream(chunks, **(defaults | options))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def stat(self, artifact_id: str) -> ArtifactRef:
        """Return the reference of an id. Raises :class:`~transports.errors.ArtifactNotFound`."""
        return await self._require_visible(artifact_id, "stat")

    async def exists(self, artifact_id: str) -> bool:
        """Return whether :meth:`stat` would find the id."""
        with suppress(ArtifactNotFound):
            return bool(await self.stat(artifact_id))
        return False

    async def list(self) -> list[ArtifactRef]:
        """Return all artifacts of this view, oldest first."""
        return await self._evictor.without_expired(self, list_(await self._list(self.scope)))

    def open(
        self, artifact: ArtifactRef | str, *, offset: int = 0, length: int | None = None, chunk_size: int = PIECE
    ) -> AsyncGenerator[bytes, None]:
        """Stream ``length`` bytes of an artifact (a reference or an id) from ``offset`` on, or all that follow.

        A piece has at most ``chunk_size`` bytes. A reader that has begun can finish even if the artifact is deleted or
        evicted meanwhile. Raises :class:`~transports.errors.ArtifactNotFound` at the first step and, **after** the last
        piece of a whole artifact, :class:`~transports.errors.Corrupt` if the bytes did not match their hash; the
        content is then moved to quarantine. The hash of a part cannot be checked.
        """
        return stream(self, id_of(artifact), offset, length, chunk_size)

    async def get(self, artifact: ArtifactRef | str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of an artifact. Arguments and errors are those of :meth:`open`."""
        async with aclosing(self.open(artifact, offset=offset, length=length)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def export(self, artifact: ArtifactRef | str, path: str | os.PathLike[str]) -> Path:
        """Copy an artifact (a reference or an id) out of the store to ``path``, and return the absolute path.

        Missing folders are made and an existing file is replaced. The bytes are compared with the artifact's size and
        SHA-256 while they are copied, and the file appears at once: after an error or a cancellation ``path`` is what
        it was. Raises :class:`~transports.errors.ArtifactNotFound`, :class:`~transports.errors.Corrupt`,
        :class:`~transports.errors.UsageError` for a ``path`` that is a folder, and
        :class:`~transports.errors.StoreError` if it cannot be written.
        """
        ref = artifact if isinstance(artifact, ArtifactRef) else await self.stat(id_of(artifact))
        return await write_out(self.open(ref.id), export_file(ref, path))

    async def change_token(self) -> object:
        """Return a value that changes when any process stores or removes an artifact, to be compared with ``==``;
        ``None`` if the store has nothing cheaper than :meth:`list`."""
        return None

    async def presigned(self, artifact_id: str, seconds: float) -> str | None:
        """Return a URL of the store's own server that anybody can fetch the artifact from for that many seconds, or
        ``None`` if the store has no server. Raises :class:`~transports.errors.ArtifactNotFound`."""
        await self._require_visible(artifact_id, "read")
        return None

    # --- removing -----------------------------------------------------------------------------------------------------

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact. Returns ``False`` if this view has none of that id."""
        if self.audit:
            self.audit.check()
        try:
            if self.scope:
                await self._require_visible(artifact_id, "delete")
        except ArtifactNotFound:
            return False
        done = await self._delete(artifact_id)
        if done:
            self._write_audit("delete", id=artifact_id)
        return done

    async def enforce_retention(self) -> Sequence[Removal]:
        """Remove what the retention no longer allows, and return it. It takes less time than :meth:`gc`."""
        return await self._evictor.collect(self, dry_run=False)

    async def gc(self, *, dry_run: bool = False) -> Sequence[Removal]:
        """Remove what the retention no longer allows, and return it; ``dry_run`` only returns it.

        A store without a scope also removes what nobody can reach: staged files whose writer died, content without
        metadata (both after an hour), and quarantined content after a day.
        """
        out = await self._evictor.collect(self, dry_run=dry_run)
        return out if self.scope else [*out, *await self._sweep(dry_run=dry_run)]

    async def end_session(self) -> int:
        """Remove everything in the view of one session if the retention asks for it, and return how many artifacts
        that were. Call it when the session is over. Raises :class:`~transports.errors.UsageError` for a view without a
        session."""
        if not (self.retention and self.retention.cleanup_on_session_end):
            return 0
        if self.scope.session is None:
            raise UsageError("end_session() needs a view of one session: store.scoped(Scope(session=…))")
        return len(await self._evictor.remove_all(self, "session end"))

    async def fsck(self, *, repair: bool = False) -> CheckReport:
        """Read everything in this view and report what is damaged. Damaged content is moved to quarantine. With
        ``repair``, and in a store without a scope, metadata that cannot be read is too, with its content; nothing else
        is changed."""
        return await check_all(self)

    # --- shared by all kinds of stores --------------------------------------------------------------------------------

    async def _require_visible(self, artifact_id: str, wanted: str) -> ArtifactRef:
        reason = None
        try:
            ref, stored = await self._stat(artifact_id)
            if not self.scope.covers(ref.scope):
                reason = "belongs to somebody else"
            elif self.retention and self._evictor.is_expired(self.retention, ref.id, stored, ref.scope):
                reason = "expired"
            if reason:
                raise not_found(artifact_id)
        except ABPError as error:
            self._write_audit("refuse", wanted=wanted, id=artifact_id[:200], code=error.code, reason=reason)
            raise
        return ref

    async def _make_room(self, key: str, size: int) -> None:
        await self._evictor.make_room(self, key, size)

    def _write_audit(self, action: str, **facts: object) -> None:
        if self.audit:
            self.audit.write(action, self.scope, **facts)

    # --- what a kind of store does itself -----------------------------------------------------------------------------

    @abstractmethod
    async def _new_staged(self) -> StagedFile:
        """Return a new staged file."""

    @abstractmethod
    async def _stat(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        """Return the reference of any scope's artifact and when it was stored last. Raises :func:`not_found`."""

    @abstractmethod
    async def _list(self, scope: Scope) -> Sequence[ArtifactRef]:
        """Return what ``scope`` covers, oldest first."""

    @abstractmethod
    async def _entries(self, scope: Scope) -> Sequence[Entry]:
        """Return what ``scope`` covers, as a retention sees it."""

    @abstractmethod
    def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """Stream the bytes ``start`` to ``end`` (exclusive), verified if that is all of them."""

    @abstractmethod
    async def _delete(self, artifact_id: str, stored: float | None = None) -> bool:
        """Remove any scope's artifact; ``False`` if there is none, or if ``stored`` is not when it was stored last."""

    @abstractmethod
    async def _touch(self, artifact_id: str) -> None:
        """Remember that an artifact was used now."""

    async def _candidates(self, scope: Scope, policy: Retention) -> Sequence[Entry]:
        """Return at least what ``policy`` may remove of what ``scope`` covers, and all of a session or trace of it."""
        return await self._entries(scope)

    async def _find(self, query: Query) -> Page:
        """Return a page of what the view sees."""
        return page_of(query, await self.list())

    async def _sweep(self, *, dry_run: bool) -> Sequence[Removal]:
        """Remove content that no metadata names."""
        return ()
