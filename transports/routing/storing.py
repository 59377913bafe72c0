"""Storing the parts of an answer: its files, its long texts, the whole as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..artifacts import ArtifactRef, ArtifactStore, Durability, PutOptions
from ..binary import BinaryData, Encoded
from ..binary.detect import Found, Place, field_of
from ..errors import ABPError
from ..protocol.messages import Sender
from ..protocol.secrets import known_to
from ..protocol.strict_json import JSONValue
from ..tasks import in_thread
from ..telemetry import span
from .fetch import Fetcher, OnDownload
from .masking import masked
from .policy import RoutingPolicy, Step
from .sizes import is_long, long_texts, preview, shorten

__all__ = ["Storing", "stored_as"]

#: Characters up to which encoded content is decoded on the event loop; longer content is decoded in a thread.
_SMALL = 64 * 1024


class Storing:
    """Puts parts of answers into one store, under one policy. ``fetcher`` brings content that is not in the answer;
    ``durability`` is that of answers without a file."""

    def __init__(self, store: ArtifactStore, fetcher: Fetcher, policy: RoutingPolicy, durability: Durability) -> None:
        self._durability = durability
        self._store = store
        self._known = known_to(store.scope.holder)
        self._fetcher = fetcher
        self._policy = policy

    async def json(
        self,
        routed: JSONValue,
        encoded: bytes,
        capability: str,
        origin: Mapping[str, object],
        stored: dict[str, ArtifactRef],
        steps: list[Step],
        *,
        alone: bool,
        shorter_than: int | None = None,
        large: bool = False,
    ) -> dict[Place, JSONValue]:
        """Store long texts as files, and the whole answer as JSON if it is large or stands ``alone``, without files.
        An answer without data is not stored. ``shorter_than`` is what :class:`~.layers.Recognised` says of its texts;
        a ``large`` answer is looked at in a thread.

        Adds to ``stored`` and ``steps``; returns the previews that agents see in the place of long texts.
        """
        policy = self._policy
        durability: Durability = self._durability if alone else "disk"
        previews: dict[Place, JSONValue] = {}
        limit = policy.max_inline_chars
        if limit is not None and len(encoded) > limit and (shorter_than is None or shorter_than > limit):
            found = await in_thread(long_texts, routed, limit) if large else long_texts(routed, limit)
            long = [item for item in found if field_of(item[0]) not in stored]
            for place, text, mime_type in sorted(long, key=lambda item: -len(item[1]))[: policy.max_texts]:
                ref = await self._store.put_text(
                    text, mime_type=mime_type, namespace=capability, meta=origin, durability=durability
                )
                stored[field_of(place)] = ref
                previews[place] = preview(text, ref)
                steps.append(Step("size", field_of(place), f"{len(text):,} characters, {stored_as(ref, 'also ')}"))
        over = policy.max_inline_bytes is not None and len(encoded) > policy.max_inline_bytes
        if routed is not None and (alone or (over and "" not in stored)):
            ref = await self._store.put_bytes(
                encoded, mime_type="application/json", namespace=capability, meta=origin, durability=durability
            )
            stored[""] = ref
            if over:
                steps.append(Step("size", "", f"{len(encoded):,} bytes of JSON, {stored_as(ref, 'also ')}"))
        if isinstance(routed, str) and is_long(routed, policy.max_inline_chars) and "" in stored:
            previews[()] = preview(routed, stored[""])
        return previews

    def text_previews(self, texts: Mapping[Place, str], stored: Mapping[str, ArtifactRef]) -> dict[Place, JSONValue]:
        """Return what agents see in the place of each long ``text`` beside a reference."""
        limit = self._policy.max_inline_chars
        return {
            (*place, "text"): shorten(text, stored=stored[field_of(place)].stored)
            for place, text in texts.items()
            if is_long(text, limit)
        }

    async def file(
        self,
        item: Found,
        capability: str,
        origin: Mapping[str, object],
        on_download: OnDownload | None,
        sender: Sender | None = None,
    ) -> ArtifactRef:
        """Store a file of an answer that came from ``sender``. Raises its error if its descriptor is invalid, and what
        the store and the fetcher raise. Content on the far side is released."""
        binary = item.binary
        if isinstance(binary, ABPError):
            raise binary
        content = binary.content
        if isinstance(content, bytes) or (isinstance(content, Encoded) and len(content.text) <= _SMALL):
            return await self._store.put_bytes(
                await self._masked(content if isinstance(content, bytes) else b"".join(binary.chunks())),
                **self._options(binary, capability, origin),
            )
        fetcher = self._fetcher.asked_by(sender)
        try:
            async with self._store.stage() as stage:
                staged = masked(stage, self._known)
                with span("abp.transfer", {}):
                    known = await fetcher.into(staged, binary, on_download and partial(on_download, item.field))
                return await staged.commit(**self._options(known, capability, origin))
        finally:
            await self._fetcher.release(binary)

    async def _masked(self, content: bytes) -> bytes:
        return (
            await in_thread(self._known.mask, content)
            if self._known and len(content) > _SMALL
            else self._known.mask(content)
        )

    def _options(self, binary: BinaryData, capability: str, origin: Mapping[str, object]) -> PutOptions:
        return {
            "size": binary.size,
            "mime_type": binary.mime_type,
            "filename": binary.filename and self._known.text(binary.filename),  # a download brings its own
            "namespace": capability,
            "meta": origin,
        }


def stored_as(ref: ArtifactRef, also: str = "") -> str:
    """Return what became of content, for a :class:`Step`."""
    return f"{also}stored as {ref.id}" if ref.stored else "not stored"
