"""The binaries of an answer: each fetched once, as it is, measured and let go of."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...artifacts import NoneStore
from ...base import Transport
from ...binary import BinaryData, Download, Handle, verify_size
from ...binary.detect import Found, find
from ...errors import ABPError, UnsupportedBinary
from ...http import download
from .evidence import Piece

__all__ = ["pieces_of"]

_HEAD = 4096
_LIMIT = 1 << 30


async def pieces_of(data: object, transport: Transport | None, *, timeout: float, allow_private: bool) -> list[Piece]:
    """Every binary in ``data``. Raises :class:`~transports.errors.ProtocolError` for an answer that is nested too
    deeply."""
    take = _Taking(transport, timeout, allow_private)
    return [await take.piece(found, _at(data, found)) for found in find(data)]


def _at(data: object, found: Found) -> Mapping[str, object]:
    node = data
    for step in found.path:
        node = node[step]  # type: ignore[index]
    return node if isinstance(node, Mapping) else {}


@dataclass(frozen=True, slots=True)
class _Taking:
    """How content is taken: over ``transport`` where it stayed in the app, within ``timeout`` seconds each."""

    transport: Transport | None
    timeout: float
    allow_private: bool

    async def piece(self, found: Found, node: Mapping[str, object]) -> Piece:
        binary = found.binary
        if isinstance(binary, ABPError):
            return Piece(found.field, node, None, binary)
        piece = Piece(found.field, node, binary)
        try:
            await self._measure(piece, binary)
            verify_size(binary.size, piece.size)
        except ABPError as error:
            piece.error = error
        return piece

    async def _measure(self, piece: Piece, binary: BinaryData) -> None:
        content = binary.content
        if isinstance(content, Download) and not content.url.lower().startswith("blob:"):
            await self._downloaded(piece, binary, content)
        elif isinstance(content, Handle | Download):
            await self._fetched(piece, content if isinstance(content, Handle) else Handle(content.url))
        else:
            chunks = await asyncio.to_thread(lambda: list(binary.chunks()))
            piece.size = sum(map(len, chunks))
            piece.head = b"".join(chunk[:_HEAD] for chunk in chunks[:1])

    async def _fetched(self, piece: Piece, handle: Handle) -> None:
        if self.transport is None:
            raise UnsupportedBinary("the connection to the app is gone, and the content with it")
        with tempfile.TemporaryDirectory(prefix="abp-conformance-") as folder:
            path = Path(folder) / "content"
            try:
                await self.transport.save(handle, path, timeout=self.timeout)
            finally:
                await self.transport.release(handle)
            piece.size = path.stat().st_size
            with path.open("rb") as file:
                piece.head = file.read(_HEAD)

    async def _downloaded(self, piece: Piece, binary: BinaryData, reference: Download) -> None:
        app = self.transport
        async with NoneStore().stage() as staged:
            fetched = await download(
                reference,
                staged,
                timeout=self.timeout,
                size=binary.size,
                limit=_LIMIT,
                base_url=app.url if app is not None else None,
                cookies=app.cookies if app is not None and app.features.cookies else None,
                allow_private=self.allow_private,
            )
            piece.size, piece.attempts = staged.size, fetched.attempts
            piece.strayed = fetched.left_origin and bool(reference.headers or reference.query)
