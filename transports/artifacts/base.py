"""The ArtifactStore contract (seed 002 §5.2): bytes go in verified, a small reference comes out.

What is public is written here once for all stores: scopes, retention, the audit log. What a kind of store has to do
itself are the few abstract methods at the end.
"""

from __future__ import annotations

import copy
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Self, Unpack

from ..errors import ABPError, ArtifactNotFound, Corrupt, StoreError, TooLarge, UsageError
from ..tasks import in_thread
from .audit import AuditLog
from .os_errors import reporting
from .ref import ArtifactRef, Checked, Problem, Scope
from .retention import Entry, Incoming, Retention, Swept
from .staged import About, Staged, StagedFile

__all__ = ["DEFAULT_MAX_BYTES", "ArtifactStore", "Staged", "encode_text", "not_found"]

DEFAULT_MAX_BYTES = 1 << 30
_PIECE = 1 << 20
list_ = list  # a store has a method of that name
_EVERY = 60.0  # seconds between two looks for what has expired


def not_found(artifact_id: str) -> ArtifactNotFound:
    """The one error for an id that nobody has, that belongs to somebody else, or whose time is over."""
    shown = artifact_id if len(artifact_id) <= 200 else artifact_id[:200] + "…"
    return ArtifactNotFound(f"there is no artifact {shown!r} in this store", details={"id": shown})


def encode_text(text: str) -> bytes:
    """``text`` as UTF-8. Raises :class:`~transports.errors.UsageError` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text cannot be written as UTF-8: {error.reason} at {error.start}") from error


class ArtifactStore(ABC):
    """Where artifacts are kept. The id of an artifact is ``{namespace}_{first 12 hex digits of its SHA-256}``
    (seed 002 §5.3), and goes on with digits of its scope if it has one; the same content in one namespace and scope is
    one artifact."""

    #: Address that :func:`transports.artifacts.open_store` would open again.
    url: str

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """``max_bytes`` is the largest artifact in bytes (the retention may allow less). Without ``retention``
        everything is kept; without ``audit`` nothing is logged."""
        most = retention.max_artifact_bytes if retention else None
        self.max_bytes = max_bytes if most is None else min(max_bytes, most)
        self.retention = retention
        self.audit = audit
        #: What this view sees; what is put through it belongs to this scope.
        self.scope = Scope()
        self._looked = [time.monotonic()]  # when somebody last looked for what has expired; shared by all views

    def scoped(self, scope: Scope) -> Self:
        """A view of the same store that sees what ``scope`` covers and nothing else: another session's artifact is not
        listed, and its id is as unknown as one that never was. Raises :class:`~transports.errors.UsageError` for a
        scope outside this view's own."""
        view = copy.copy(self)
        view.scope = self.scope.within(scope)
        return view

    # --- putting ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Staged]:
        """A new staged file; see :class:`Staged`."""
        if self.audit:
            self.audit.check()
        staged = await self._begin()
        try:
            yield staged
        except (TooLarge, StoreError) as error:
            staged.refuse(error)
            raise
        finally:
            await staged.aclose()

    async def put_bytes(self, data: bytes | memoryview, **about: Unpack[About]) -> ArtifactRef:
        """Store bytes in hand; arguments and errors as :meth:`Staged.commit`."""
        async with self.stage() as staged:
            await staged.write(data)
            return await staged.commit(**about)

    async def put_text(self, text: str, **about: Unpack[About]) -> ArtifactRef:
        """Store text as UTF-8, as ``text/plain`` unless ``mime_type`` says otherwise. Raises
        :class:`~transports.errors.UsageError` for a lone surrogate."""
        defaults: About = {"mime_type": "text/plain"}
        return await self.put_bytes(encode_text(text), **(defaults | about))

    async def put_stream(self, chunks: AsyncIterable[bytes | memoryview], **about: Unpack[About]) -> ArtifactRef:
        """Store what an asynchronous iterator gives, never holding all of it. If it raises, nothing is stored."""
        async with self.stage() as staged:
            written = False
            async for chunk in chunks:
                await staged.write(chunk)
                written = True
            if not written:
                await staged.write(b"")
            return await staged.commit(**about)

    async def put_file(self, path: str | os.PathLike[str], **about: Unpack[About]) -> ArtifactRef:
        """Store a copy of a file, under its name unless ``filename`` says otherwise. Raises
        :class:`~transports.errors.StoreError` if it cannot be read."""
        file = Path(path)
        defaults: About = {"filename": file.name}
        async with aclosing(_pieces(file)) as chunks:
            return await self.put_stream(chunks, **(defaults | about))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def stat(self, artifact_id: str) -> ArtifactRef:
        """The reference of an id. Raises :class:`~transports.errors.ArtifactNotFound`."""
        return await self._seen(artifact_id, "stat")

    async def exists(self, artifact_id: str) -> bool:
        """Whether :meth:`stat` would find it."""
        try:
            await self.stat(artifact_id)
        except ArtifactNotFound:
            return False
        return True

    async def list(self) -> list[ArtifactRef]:
        """All artifacts of this view, oldest first."""
        refs = list_(await self._list(self.scope))
        if self.retention and self.retention.ttl_seconds is not None:
            now, policy = time.time(), self.retention
            over = {entry.id for entry in await self._entries(self.scope) if policy.expired(entry.stored, now)}
            refs = [ref for ref in refs if ref.id not in over]
        return refs

    async def open(
        self, artifact_id: str, *, offset: int = 0, length: int | None = None, chunk_size: int = _PIECE
    ) -> AsyncGenerator[bytes, None]:
        """Stream the bytes from ``offset``, ``length`` of them or all that follow, in pieces of at most ``chunk_size``.

        A reader that has begun finishes, also if the artifact is deleted or evicted meanwhile. Raises
        :class:`~transports.errors.ArtifactNotFound` at the first step and, **after** the last piece of a whole
        artifact, :class:`~transports.errors.Corrupt` if it did not match its hash; the content is then put into
        quarantine. Of a range only the size can be checked.
        """
        if offset < 0 or (length is not None and length < 0) or chunk_size < 1:
            raise UsageError("offset and length must not be negative, chunk_size must be 1 or more")
        if self.audit:
            self.audit.check()
        ref = await self._seen(artifact_id, "read")
        if self.retention and self.retention.cleanup_strategy == "lru":
            await self._touch(artifact_id)
        count, code = 0, "CANCELLED"
        end = ref.size_bytes if length is None else min(offset + length, ref.size_bytes)
        try:
            async with aclosing(self._read(ref, min(offset, end), end, chunk_size)) as chunks:
                async for chunk in chunks:
                    count += len(chunk)
                    yield chunk
            code = ""
        except ABPError as error:
            code = error.code
            raise
        finally:
            self._note("read", id=artifact_id, bytes=count, code=code or None)

    async def get(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of an artifact; arguments and errors as :meth:`open`."""
        async with aclosing(self.open(artifact_id, offset=offset, length=length)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def mark(self) -> object:
        """Something that differs after anybody, also another process, has stored or removed an artifact; ``None``
        where that cannot be told more cheaply than by :meth:`list`."""
        return None

    async def presigned(self, artifact_id: str, seconds: float) -> str | None:
        """An address at the store itself, from which anybody can fetch the artifact for that time; ``None`` where the
        store has no addresses. Raises :class:`~transports.errors.ArtifactNotFound`."""
        await self._seen(artifact_id, "read")
        return None

    # --- removing -----------------------------------------------------------------------------------------------------

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; ``False`` if there was none in this view."""
        if self.audit:
            self.audit.check()
        try:
            if self.scope:
                await self._seen(artifact_id, "delete")
        except ArtifactNotFound:
            return False
        done = await self._delete(artifact_id)
        if done:
            self._note("delete", id=artifact_id)
        return done

    async def gc(self, *, dry_run: bool = False) -> Sequence[Swept]:
        """Remove what the retention says has to go and, in an unscoped store, what nobody can reach: staged files whose
        writer died, content without metadata (both an hour old), and quarantine of a day. ``dry_run`` only tells."""
        out: Sequence[Swept] = (
            self.retention.plan(await self._entries(self.scope), time.time()) if self.retention else []
        )
        if not dry_run:
            out = await self._evict(out)
        if not self.scope:
            out = [*out, *await self._sweep(dry_run=dry_run)]
        return out

    async def end_session(self) -> int:
        """Call when the session of this view is over: if the retention asks for it, everything in the view is removed.
        Returns how many artifacts were."""
        if not (self.retention and self.retention.cleanup_on_session_end):
            return 0
        if self.scope.session is None:
            raise UsageError("end_session() needs a view of one session: store.scoped(Scope(session=…))")
        entries = await self._entries(self.scope)
        return len(await self._evict([Swept("artifact", one.id, one.size, "session end") for one in entries]))

    async def fsck(self) -> Checked:
        """Read everything in this view and say what is damaged. Damaged content is put into quarantine; nothing else is
        changed."""
        problems: list[Problem] = []
        refs = await self._list(self.scope)
        for ref in refs:
            try:
                async with aclosing(self._read(ref, 0, ref.size_bytes, _PIECE)) as chunks:
                    async for _ in chunks:
                        pass
            except Corrupt as error:
                problems.append(Problem("content", ref.id, error.message))
            except ArtifactNotFound:
                continue  # deleted meanwhile
        return Checked(len(refs), sum(ref.size_bytes for ref in refs), tuple(problems))

    # --- shared by all kinds of stores --------------------------------------------------------------------------------

    async def _seen(self, artifact_id: str, wanted: str) -> ArtifactRef:
        reason = None
        try:
            ref, stored = await self._stat(artifact_id)
            if not self.scope.covers(ref.scope):
                reason = "belongs to somebody else"
            elif self.retention and self.retention.expired(stored, time.time()):
                reason = "expired"
            if reason:
                raise not_found(artifact_id)
        except ABPError as error:
            self._note("refuse", wanted=wanted, id=artifact_id[:200], code=error.code, reason=reason)
            raise
        return ref

    async def _make_room(self, key: str, size: int) -> None:
        policy, now = self.retention, time.time()
        assert policy is not None
        if policy.ttl_seconds is not None and time.monotonic() - self._looked[0] > _EVERY:
            self._looked[0] = time.monotonic()
            over = [entry for entry in await self._entries(Scope()) if policy.expired(entry.stored, now)]
            await self._evict([Swept("artifact", one.id, one.size, "expired") for one in over if one.id != key])
        if self.scope.session or self.scope.trace:
            around = Scope(self.scope.tenant, self.scope.user, self.scope.session)
            await self._evict(policy.plan(await self._entries(around), now, Incoming(key, size, self.scope)))

    async def _evict(self, plan: Sequence[Swept]) -> Sequence[Swept]:
        done = []
        for one in plan:
            if await self._delete(one.id):
                self._note("evict", id=one.id, bytes=one.size_bytes, reason=one.reason)
                done.append(one)
        return done

    def _note(self, action: str, **facts: object) -> None:
        if self.audit:
            self.audit.write(action, self.scope, **facts)

    # --- what a kind of store does itself -----------------------------------------------------------------------------

    @abstractmethod
    async def _begin(self) -> StagedFile:
        """A new staged file."""

    @abstractmethod
    async def _stat(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        """Anybody's reference, and when it was stored last. Raises :func:`not_found`."""

    @abstractmethod
    async def _list(self, scope: Scope) -> Sequence[ArtifactRef]:
        """What ``scope`` covers, oldest first."""

    @abstractmethod
    async def _entries(self, scope: Scope) -> Sequence[Entry]:
        """What ``scope`` covers, as a retention sees it."""

    @abstractmethod
    def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """The bytes ``start`` to ``end`` (exclusive), verified if that is all of them."""

    @abstractmethod
    async def _delete(self, artifact_id: str) -> bool:
        """Remove anybody's artifact."""

    @abstractmethod
    async def _touch(self, artifact_id: str) -> None:
        """Remember that an artifact was used now."""

    async def _sweep(self, *, dry_run: bool) -> Sequence[Swept]:
        """Remove what no metadata speaks of."""
        return ()


async def _pieces(file: Path) -> AsyncGenerator[bytes, None]:
    with reporting("read a file", file.parent):
        opened = await in_thread(file.open, "rb", 0)
    try:
        while True:
            with reporting("read a file", file.parent):
                chunk = await in_thread(opened.read, _PIECE)
            if not chunk:
                return
            yield chunk
    finally:
        opened.close()
