"""Images inside tool results: as they are if they are small, else as thumbnails made in a process of their own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_types import ImageContent

from ...artifacts import ArtifactRef, ArtifactStore

__all__ = ["image_blocks"]

#: Image types that clients render (docs/requirements.md R3-4).
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
#: Images in one result, the largest file in bytes that a thumbnail is made of, and seconds to make it.
_MAX_IMAGES, _MAX_SOURCE, _TIMEOUT = 4, 64 << 20, 20.0
_THUMBNAIL_PROGRAM = Path(__file__).with_name("thumbnail.py")


async def image_blocks(refs: Sequence[ArtifactRef], store: ArtifactStore, max_bytes: int) -> list[ImageContent]:
    """Return the first four images among ``refs``, ``max_bytes`` at most together before base64. An image that does not
    fit as a thumbnail either is left out."""
    blocks: list[ImageContent] = []
    remaining = max_bytes
    for ref in [ref for ref in refs if ref.mime_type in _IMAGE_TYPES][:_MAX_IMAGES]:
        if ref.size_bytes > _MAX_SOURCE or remaining <= 0:
            continue
        data = await store.get(ref.id)
        small, mime_type = (data, ref.mime_type) if len(data) <= remaining else (await _thumbnail(data, remaining), "")
        if small:
            blocks.append(
                ImageContent(
                    data=base64.b64encode(small).decode(),
                    mime_type=mime_type or ("image/png" if small.startswith(b"\x89PNG") else "image/jpeg"),
                    _meta={"artifact": ref.id, "thumbnail": not mime_type},
                )
            )
            remaining -= len(small)
    return blocks


async def _thumbnail(data: bytes, max_bytes: int) -> bytes:
    """An image of at most 800 pixels a side; empty without Pillow, for content that it refuses, and after 20
    seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_THUMBNAIL_PROGRAM),
        str(max_bytes),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            out, _ = await process.communicate(data)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return out if process.returncode == 0 and len(out) <= max_bytes else b""
