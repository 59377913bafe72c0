"""Staged files: content on its way into a store, not visible yet (docs/requirements.md R2-5.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Unpack

from ..errors import ABPError, UsageError
from ..telemetry import ARTIFACT_BYTES, record, span
from .content import Description, Meter, PutOptions, describe
from .metadata import artifact_id
from .ref import ArtifactRef, Scope
from .retention import Retention

__all__ = ["Staged", "StagedFile"]


class Staged(ABC):
    """A file that is not visible yet.

    Write to it with :meth:`write`, or let another program write the file at ``path`` (which does not exist until then);
    then :meth:`commit`. Leaving the ``async with store.stage()`` block removes what was not committed.
    """

    @property
    @abstractmethod
    def path(self) -> Path:
        """The path where another program may write the whole content. Use either this or :meth:`write`."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes given to :meth:`write` so far."""

    @abstractmethod
    async def write(self, chunk: bytes | memoryview) -> None:
        """Append a chunk. The buffer may be used again afterwards.

        Raises :class:`~transports.errors.TooLarge` at the store's limit and :class:`~transports.errors.StoreError` if
        the disk refuses; after an error only :meth:`reset` is possible.
        """

    @abstractmethod
    async def reset(self) -> None:
        """Drop everything and start again from zero bytes, as for a download that cannot be resumed."""

    def follow(self) -> None:
        """Begin to measure the file at :attr:`path` while another program writes it, which appends to it and never
        changes what it wrote. Then :meth:`commit` has to read only what is new. The default begins nothing."""
        return

    @abstractmethod
    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Verify the content, make it visible and return its reference. It succeeds once.

        ``size`` (in bytes) and ``mime_type`` are what was declared; ``filename`` is a suggestion and may come from an
        untrusted side; ``namespace``, the head of the id, is usually the capability (``None``:
        ``artifact``). ``meta`` becomes the reference's ``source``, which is shown to models: texts are cut at 1,000
        characters, and long runs of base64, the queries of URLs and the values of keys that name credentials are left
        out. ``durability="process"`` does not wait for the disk: the artifact survives the death of this process, and a
        power cut in the seconds after it may damage it. The default, ``"disk"``, survives both.

        Raises :class:`~transports.errors.SizeMismatch`, :class:`~transports.errors.TooLarge` and
        :class:`~transports.errors.StoreError`. After an error nothing is visible, and it may be tried again.
        """


class Publisher(Protocol):
    """The part of a store that its staged files use."""

    @property
    def max_bytes(self) -> int:
        """The largest artifact, in bytes."""

    @property
    def scope(self) -> Scope:
        """The owner of what is published."""

    @property
    def retention(self) -> Retention | None:
        """The limits that a new artifact must meet."""

    async def _make_room(self, key: str, size: int) -> None:
        """Remove old artifacts as the retention says. Raises :class:`~transports.errors.StoreFull`."""

    def _write_audit(self, action: str, **facts: object) -> None:
        """Write a line to the audit log."""


class StagedFile(Staged):
    """The part that the staged files of all stores share: verify, make room, publish, log."""

    def __init__(self, store: Publisher) -> None:
        self._store = store
        self._committed = False
        self._usable = True
        self._refused: ABPError | None = None

    async def prepare(self) -> None:
        """Make what another program needs that writes to ``path``."""

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        self._check()
        store = self._store
        try:
            with span("abp.verify", {}):
                meter = await self._measure(options.get("size"))
                description = describe(meter, **options)
            if store.retention:
                await store._make_room(artifact_id(description.namespace, meter.sha256, store.scope), meter.size)
            with span("abp.commit", {"abp.artifact.size": meter.size}):
                ref = await self._publish(meter, description)
        except ABPError as error:
            self.refuse(error)
            raise
        self._committed = True
        record(ARTIFACT_BYTES, ref.size_bytes)
        store._write_audit("put", id=ref.id, bytes=ref.size_bytes, sha256=ref.sha256)
        return ref

    def refuse(self, error: ABPError) -> None:
        """Write a refusal to the audit log, once for each error."""
        if error is not self._refused:
            self._refused = error
            self._store._write_audit("refuse", wanted="put", bytes=self.size, code=error.code)

    def _check(self, *, usable: bool = True) -> None:
        if self._committed:
            raise UsageError("this staged file was committed; stage another one")
        if usable and not self._usable:
            raise UsageError("a write to this staged file failed; reset() it first")

    @abstractmethod
    async def _measure(self, declared: int | None) -> Meter:
        """Return the measured content. Raises :class:`~transports.errors.StoreError` if there is none, unless
        ``declared`` is 0."""

    @abstractmethod
    async def _publish(self, meter: Meter, description: Description) -> ArtifactRef:
        """Make the content visible in the store's scope. After an error nothing is visible, and it may be tried
        again."""

    @abstractmethod
    async def aclose(self) -> None:
        """Remove what was not committed."""
