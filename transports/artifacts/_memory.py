"""The stores that write nothing to the disk, ``memory:`` and ``none:``, and staged files of stores without a folder.

A temporary folder of a staged file is made only when ``path`` is read.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Unpack

from .._internal.arguments import validate_arguments
from .._internal.files import temp_folder
from .._internal.tasks import in_thread
from .._internal.telemetry import span
from ..errors import ArtifactNotFound, Corrupt, UsageError, spelled
from ..protocol._media import is_binary_mime
from ._base import DEFAULT_MAX_BYTES, ArtifactStore, AuditLog, StagedFile
from ._content import Description, Meter, PutOptions, as_bytes, describe, measure_file
from ._files import belongs_to_us, is_left_behind, map_os_errors, open_file
from ._ref import ArtifactRef, Metadata, Scope, age_key, artifact_id, candidate_ids, described_ref, not_found
from ._retention import Entry, Retention

logger = logging.getLogger("transports.artifacts")


# --- staged files of stores without a folder --------------------------------------------------------------------------


class SpooledFile(StagedFile):
    """A staged file whose chunks go to :meth:`_store_chunk` of a subclass, for example into memory. If another program
    wrote the file at ``path``, the commit copies it there, too, so that it is stored as it was measured."""

    def _reset_state(self) -> None:
        super()._reset_state()
        self._folder: Path | None = None
        self._clear_content()

    @property
    def path(self) -> Path:
        if self._folder is None:
            with map_os_errors("make a temporary folder", temp_folder()):
                _remove_left_folders()
                self._folder = Path(tempfile.mkdtemp(prefix=f"abp-spool-{os.getpid()}-"))
        return self._folder / "content"

    async def _append_chunk(self, chunk: memoryview) -> None:
        max_small = 256 << 10  # bytes that are hashed faster than they are handed over to a thread
        if len(chunk) <= max_small:
            self._measure_chunk(chunk)
        else:
            await in_thread(self._measure_chunk, chunk)

    def _measure_chunk(self, chunk: memoryview) -> None:
        self._meter.add(chunk)
        self._store_chunk(chunk)

    @abstractmethod
    def _clear_content(self) -> None: ...

    @abstractmethod
    def _store_chunk(self, chunk: memoryview) -> None: ...

    async def _measure_external_file(self) -> bool:
        return self._folder is not None and await in_thread(self._copy_external_file)

    def _copy_external_file(self) -> bool:
        with map_os_errors("read the staged file", self.path.parent):
            try:
                fd = open_file(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return False
            try:
                self._meter = measure_file(fd, self._store.max_bytes, store=self._store_chunk)
            except BaseException:
                self._clear_content()
                raise
            finally:
                os.close(fd)
        self._written = True
        return True

    async def aclose(self) -> None:
        if self._folder is not None:
            await in_thread(shutil.rmtree, self._folder, ignore_errors=True)


class BufferedFile(SpooledFile):
    """A staged file in memory."""

    def _clear_content(self) -> None:
        self._chunks: list[bytes] = []

    def _store_chunk(self, chunk: memoryview) -> None:
        self._chunks.append(bytes(chunk))

    def content(self) -> bytes:
        return b"".join(self._chunks)


@cache
def _remove_left_folders() -> None:
    """Remove the temporary folders of processes that have ended. This is done once in a process."""
    for folder in temp_folder().glob("abp-spool-*"):
        name = re.match(r"abp-spool-(?P<pid>[0-9]{1,9})-", folder.name)
        if name is None:
            continue
        with suppress(OSError):
            status = folder.lstat()
            is_our_folder = stat.S_ISDIR(status.st_mode) and belongs_to_us(status)
            if is_our_folder and is_left_behind(int(name["pid"]), status.st_mtime):
                shutil.rmtree(folder, ignore_errors=True)


# --- the stores -------------------------------------------------------------------------------------------------------


class _MemoryFile(BufferedFile):
    _store: MemoryStore

    async def _publish(self, description: Description) -> ArtifactRef:
        return self._store._publish(description, self.content())


class MemoryStore(ArtifactStore):
    """A store that keeps artifacts while the object lives. Each ``open_store("memory:")`` is a new, empty store."""

    url = "memory:"
    _staged_class = _MemoryFile

    @validate_arguments
    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(max_bytes=max_bytes, retention=retention, audit=audit)
        # All views share these. Content is kept once, under its SHA-256.
        self._blobs: dict[str, bytes] = {}
        #: Number of artifacts with each content.
        self._owners = Counter[str]()
        self._metadata: dict[str, Metadata] = {}
        self._used: dict[str, float] = {}

    def _publish(self, description: Description, data: bytes) -> ArtifactRef:
        digest = description.sha256
        # Take the shortest id that is free: the hash of other content may begin with the same digits.
        for key in candidate_ids(description.namespace, digest, self.scope):
            old = self._metadata.get(key)
            if old is None or old.sha256 == digest:
                break

        metadata = Metadata.new(key, description, self.scope, old=old)
        self._blobs.setdefault(digest, data)
        if old is None:
            self._owners[digest] += 1
        self._metadata[key] = metadata
        self._used[key] = metadata.stored
        return metadata.ref()

    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        metadata = self._metadata.get(artifact_id)
        if metadata is None:
            raise not_found(artifact_id)
        return metadata.ref(), metadata.stored

    async def _list_artifacts(self, scope: Scope) -> list[tuple[ArtifactRef, float]]:
        visible = [metadata for metadata in self._metadata.values() if scope.covers(metadata.scope)]
        return [(metadata.ref(), metadata.stored) for metadata in sorted(visible, key=age_key)]

    async def _list_entries(self, scope: Scope) -> list[Entry]:
        return [
            Entry(key, metadata.size_bytes, metadata.stored, self._used[key], metadata.scope)
            for key, metadata in self._metadata.items()
            if scope.covers(metadata.scope)
        ]

    async def _record_use(self, artifact_id: str) -> None:
        self._used[artifact_id] = time.time()

    async def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        data = self._blobs.get(ref.sha256)
        if data is None:
            raise not_found(ref.id)
        if len(data) != ref.size_bytes:
            raise Corrupt(f"artifact {ref.id} is damaged: it has {len(data)} bytes", details={"id": ref.id})
        for position in range(start, end, chunk_size):
            yield data[position : min(position + chunk_size, end)]

    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        metadata = self._metadata.get(artifact_id)
        if metadata is None or stored not in (None, metadata.stored):
            return False

        del self._metadata[artifact_id]
        self._used.pop(artifact_id)
        self._owners[metadata.sha256] -= 1
        if not self._owners[metadata.sha256]:
            del self._owners[metadata.sha256]
            del self._blobs[metadata.sha256]
        return True


class _DroppedFile(SpooledFile):
    """A staged file whose content is measured and dropped."""

    _store: NoneStore

    def _clear_content(self) -> None:
        pass

    def _store_chunk(self, chunk: memoryview) -> None:
        pass

    async def _publish(self, description: Description) -> ArtifactRef:
        self._store.warn_once()
        return self._store._reference_to_dropped(description)


class NoneStore(ArtifactStore):
    """A store that verifies, measures and describes content, then drops it.

    A reference has no ``path``, an id ``truncated_<12 hex digits>``, and in its ``source`` the keys ``truncated``,
    ``warning``, ``original_size`` (in bytes) and, for text in UTF-8, ``preview`` with its first ``max_inline_preview``
    characters, at most 1,000. The first content is logged as a warning, unless ``warns`` is false: whoever asked for
    such a store by its URL knows.
    """

    url = "none:"
    _staged_class = _DroppedFile

    @validate_arguments
    def __init__(
        self,
        *,
        max_inline_preview: int = 500,
        max_bytes: int = DEFAULT_MAX_BYTES,
        audit: AuditLog | None = None,
        warns: bool = True,
    ) -> None:
        # A preview is made of the head of content, which has 4,096 bytes; a character has at most four.
        if not 0 <= max_inline_preview <= 1000:
            raise UsageError(f"max_inline_preview must be between 0 and 1,000 characters, not {max_inline_preview!r}")
        super().__init__(max_bytes=max_bytes, audit=audit)
        self._max_inline_preview = max_inline_preview
        # All views of the store share this list, which is not empty once the warning was logged.
        self._warned = [] if warns else [True]

    def warn_once(self) -> None:
        """Log once that nothing is kept."""
        if self._warned:
            return
        self._warned.append(True)
        logger.warning("no artifact store is configured: binary content is verified and then dropped; set ABP_STORE")

    def describe(
        self, data: bytes | memoryview, *, now: float | None = None, **options: Unpack[PutOptions]
    ) -> ArtifactRef:
        """Return the reference that :meth:`put_bytes` would have returned at ``now``, in Unix seconds. Raises the same
        errors; nothing is logged."""
        with span("abp.verify", {}):
            meter = Meter(self.max_bytes)
            meter.add(as_bytes(data))
            description = describe(meter, now=now, **options)
        return self._reference_to_dropped(description)

    def _reference_to_dropped(self, description: Description) -> ArtifactRef:
        key = artifact_id("truncated", description.sha256)
        notes: dict[str, object] = {
            "truncated": True,
            "warning": "Content not stored (no ArtifactStore configured)",
            "original_size": description.size,
        }
        if not is_binary_mime(description.mime_type):
            preview = _first_characters(description.head, self._max_inline_preview)
            if preview:
                notes["preview"] = preview
        return described_ref(key, description, notes, self.scope)

    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        raise _not_kept(artifact_id)

    async def _list_artifacts(self, scope: Scope) -> list[tuple[ArtifactRef, float]]:
        return []

    async def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        raise _not_kept(ref.id)
        # The unreachable `yield` makes this a generator, so that the error comes at the first step.
        yield b""

    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        return False


def _not_kept(artifact_id: str) -> ArtifactNotFound:
    return ArtifactNotFound(
        f"artifact {artifact_id[:200]!r} was not kept: no artifact store; "
        f"set {spelled('store=')} or ABP_STORE to a folder"
    )


def _first_characters(head: bytes, chars: int) -> str:
    try:
        # A character has 4 bytes at most. The decoder leaves out a character that is cut off at the end.
        text, _ = codecs.utf_8_decode(head[: 4 * chars])
        return text[:chars]
    except UnicodeDecodeError:
        return ""
