"""Reading artifacts: one as a stream, with a line in the audit log; and all of them, to find the damaged ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from ..errors import ABPError, ArtifactNotFound, Corrupt, UsageError
from .audit import AuditLog
from .files import PIECE
from .ref import ArtifactRef, CheckReport, Problem, Scope
from .retention import Retention

__all__ = ["Readable", "check_all", "stream"]


class Readable(Protocol):
    """The part of a store that is read through."""

    @property
    def audit(self) -> AuditLog | None:
        """The audit log, if there is one."""

    @property
    def retention(self) -> Retention | None:
        """The limits of the store; ``None`` keeps everything."""

    @property
    def scope(self) -> Scope:
        """The scope of the view."""

    async def _require_visible(self, artifact_id: str, wanted: str) -> ArtifactRef:
        """Return the reference of an id. Raises :class:`~transports.errors.ArtifactNotFound`."""

    async def _list(self, scope: Scope) -> Sequence[ArtifactRef]:
        """Return what ``scope`` covers."""

    def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """Stream a range, verified if it is all of the artifact."""

    async def _touch(self, artifact_id: str) -> None:
        """Remember that an artifact was used now."""

    def _write_audit(self, action: str, **facts: object) -> None:
        """Write a line to the audit log."""


async def stream(
    store: Readable, artifact_id: str, offset: int, length: int | None, chunk_size: int
) -> AsyncGenerator[bytes, None]:
    """Stream a range of an artifact; see :meth:`.ArtifactStore.open`.

    The audit log gets one line when the stream ends, with the bytes that were read and the code of an error; a reader
    that stops early is logged as ``CANCELLED``.
    """
    if offset < 0 or (length is not None and length < 0) or chunk_size < 1:
        raise UsageError("offset and length must not be negative, chunk_size must be 1 or more")
    if store.audit:
        store.audit.check()
    ref = await store._require_visible(artifact_id, "read")
    if store.retention and store.retention.cleanup_strategy == "lru":
        await store._touch(artifact_id)
    count, code = 0, "CANCELLED"
    end = ref.size_bytes if length is None else min(offset + length, ref.size_bytes)
    try:
        async with aclosing(store._read(ref, min(offset, end), end, chunk_size)) as chunks:
            async for chunk in chunks:
                count += len(chunk)
                yield chunk
        code = ""
    except ABPError as error:
        code = error.code
        raise
    finally:
        store._write_audit("read", id=artifact_id, bytes=count, code=code or None)


async def check_all(store: Readable) -> CheckReport:
    """Read everything in a view and report what is damaged; see :meth:`.ArtifactStore.fsck`."""
    problems: list[Problem] = []
    refs = await store._list(store.scope)
    for ref in refs:
        try:
            async with aclosing(store._read(ref, 0, ref.size_bytes, PIECE)) as chunks:
                async for _ in chunks:
                    pass
        except Corrupt as error:
            problems.append(Problem("content", ref.id, error.message))
        except ArtifactNotFound:
            continue  # deleted meanwhile
    return CheckReport(len(refs), sum(ref.size_bytes for ref in refs), tuple(problems))
