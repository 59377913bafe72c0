"""Takes every binary of an answer once, measures it, and keeps nothing."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...artifacts import NoneStore
from ...base import Transport
from ...binary import BinaryData, Download, Handle, verify_size
from ...binary.detect import Found, find
from ...errors import ABPError, UnsupportedBinary
from ...http import cookies_of, download
from ...protocol.messages import Sender
from .evidence import ContentItem

__all__ = ["measured_content"]

#: Bytes that are enough to recognise a kind of file.
_HEAD = 4096
#: Bytes beyond which a download is given up.
_MAX_BYTES = 1 << 30


async def measured_content(
    data: object, transport: Transport | None, sender: Sender | None, *, timeout: float, allow_private: bool
) -> list[ContentItem]:
    """Return every binary in ``data``, measured. ``transport`` is the one the answer came over, ``None`` if it broke,
    and ``sender`` the document that it came from, if that is known; ``timeout`` in seconds is for each binary;
    ``allow_private`` lets downloads go to private addresses.

    Content that cannot be taken is an item with an ``error``. Raises :class:`~transports.errors.ProtocolError` for data
    that is nested deeper than docs/protocol.md 1.3 allows.
    """
    measure = _Measure(transport, sender, timeout, allow_private)
    return [await measure.item(found, _descriptor(data, found)) for found in find(data)]


def _descriptor(data: object, found: Found) -> Mapping[str, object]:
    node = data
    for step in found.path:
        node = node[step]  # type: ignore[index]
    return node if isinstance(node, Mapping) else {}


@dataclass(frozen=True, slots=True)
class _Measure:
    transport: Transport | None
    sender: Sender | None
    timeout: float
    allow_private: bool

    async def item(self, found: Found, node: Mapping[str, object]) -> ContentItem:
        binary = found.binary
        if isinstance(binary, ABPError):
            return ContentItem(found.field, node, None, binary)
        item = ContentItem(found.field, node, binary)
        try:
            await self._measure(item, binary)
            verify_size(binary.size, item.size)
        except ABPError as error:
            item.error = error
        return item

    async def _measure(self, item: ContentItem, binary: BinaryData) -> None:
        content = binary.content
        if isinstance(content, Download) and not content.url.lower().startswith("blob:"):
            await self._download(item, binary, content)
        elif isinstance(content, Handle | Download):
            await self._save(item, content if isinstance(content, Handle) else Handle(content.url))
        else:
            chunks = await asyncio.to_thread(lambda: list(binary.chunks()))
            item.size = sum(map(len, chunks))
            item.head = b"".join(chunk[:_HEAD] for chunk in chunks[:1])

    async def _save(self, item: ContentItem, handle: Handle) -> None:
        if self.transport is None:
            raise UnsupportedBinary("the connection to the app is gone, and the content with it")
        with tempfile.TemporaryDirectory(prefix="abp-conformance-") as folder:
            path = Path(folder) / "content"
            try:
                await self.transport.save(handle, path, timeout=self.timeout)
            finally:
                await self.transport.release(handle)
            item.size = path.stat().st_size
            with path.open("rb") as file:
                item.head = file.read(_HEAD)

    async def _download(self, item: ContentItem, binary: BinaryData, reference: Download) -> None:
        app, sender = self.transport, self.sender
        if reference.expires_at is not None:
            item.expires_in = reference.expires_at / 1000 - time.time()
        async with NoneStore().stage() as staged:
            fetched = await download(
                reference,
                staged,
                timeout=self.timeout,
                size=binary.size,
                limit=_MAX_BYTES,
                base_url=app.url if app is not None else None,
                server_address=app.server_address if app is not None else None,
                sender=sender,
                cookies=cookies_of(app, sender),
                allow_private=self.allow_private,
            )
            item.size, item.attempts = staged.size, fetched.attempts
            item.left_origin = fetched.left_origin and bool(reference.headers or reference.query)
