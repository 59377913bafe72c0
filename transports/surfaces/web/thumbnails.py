"""``/artifacts/{id}/thumbnail``: pictures of what a browser shows in no card by itself: a PDF's first page, a TIFF."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from aiohttp import web

from ...artifacts import ArtifactRef
from ..shared.reader_process import MAX_SOURCE, run_reader
from .access import Visitor
from .artifacts import ArtifactRoutes
from .responses import RequestRefused

__all__ = ["ThumbnailRoutes"]

#: The program for a type, and its argument: pixels of width, or bytes of the picture.
_PROGRAMS = {
    "application/pdf": ("pdf_page", 480),
    **{f"image/{kind}": ("thumbnail", 300_000) for kind in ("tiff", "png", "jpeg", "gif", "webp", "bmp", "avif")},
}
#: Bytes of pictures that are remembered, and programs that run at a time.
_MAX_REMEMBERED, _MAX_AT_ONCE = 16 << 20, 2


class ThumbnailRoutes:
    """Makes each picture once, in a process of its own, and remembers the latest; also that there is none."""

    def __init__(self, artifacts: ArtifactRoutes) -> None:
        self._artifacts = artifacts
        self._made: OrderedDict[str, bytes] = OrderedDict()
        self._making: dict[str, asyncio.Task[None]] = {}
        self._running = asyncio.Semaphore(_MAX_AT_ONCE)

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /artifacts/{id}/thumbnail`` with PNG or JPEG, or 404 where there is no picture."""
        view = self._artifacts.view(visitor)
        ref = await view.stat(request.match_info["id"])
        key = f"{ref.mime_type} {ref.sha256}"
        if key not in self._made:
            if key not in self._making:
                self._making[key] = making = asyncio.ensure_future(self._make(key, ref, visitor))
                making.add_done_callback(lambda _: self._making.pop(key, None))
            await asyncio.shield(self._making[key])  # one client that goes away stops it for no other
        if not (picture := self._made.get(key)):
            raise RequestRefused(404, "NOT_FOUND", "there is no picture of this artifact")
        self._made.move_to_end(key)
        kind = "image/png" if picture.startswith(b"\x89PNG") else "image/jpeg"
        headers = {"Cache-Control": "private, max-age=86400", "ETag": f'"{ref.sha256}-thumbnail"'}
        return web.Response(body=picture, content_type=kind, headers=headers)

    async def _make(self, key: str, ref: ArtifactRef, visitor: Visitor) -> None:
        made = None
        if ref.mime_type in _PROGRAMS and ref.size_bytes <= MAX_SOURCE:
            async with self._running:
                data = await self._artifacts.view(visitor).get(ref.id)
                made = await run_reader(_PROGRAMS[ref.mime_type][0], data, _PROGRAMS[ref.mime_type][1])
        self._remember(key, b"" if made is None else made[1])

    def _remember(self, key: str, picture: bytes) -> None:
        self._made[key] = picture
        size = sum(map(len, self._made.values()))
        while len(self._made) > 1 and (size > _MAX_REMEMBERED or len(self._made) > 2000):
            size -= len(self._made.popitem(last=False)[1])
