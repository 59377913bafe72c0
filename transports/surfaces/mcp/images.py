"""Images inside answers: as they are if they are small, else as thumbnails made in a process of their own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_types import ImageContent

from ...artifacts import ArtifactRef, ArtifactStore

__all__ = ["pictures"]

#: What clients render (seed 003).
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST = 4
_LARGEST_SOURCE = 64 << 20
_SECONDS = 20.0
_MAKER = Path(__file__).with_name("thumbnail.py")


async def pictures(refs: Sequence[ArtifactRef], store: ArtifactStore, max_bytes: int) -> list[ImageContent]:
    """The first few images among ``refs``, ``max_bytes`` at most together, before base64."""
    shown: list[ImageContent] = []
    left = max_bytes
    for ref in [ref for ref in refs if ref.mime_type in _SHOWN][:_MOST]:
        if ref.size_bytes > _LARGEST_SOURCE or left <= 0:
            continue
        data = await store.get(ref.id)
        small, mime_type = (data, ref.mime_type) if len(data) <= left else (await _thumbnail(data, left), "")
        if small:
            shown.append(
                ImageContent(
                    data=base64.b64encode(small).decode(),
                    mime_type=mime_type or ("image/png" if small.startswith(b"\x89PNG") else "image/jpeg"),
                    _meta={"artifact": ref.id, "thumbnail": not mime_type},
                )
            )
            left -= len(small)
    return shown


async def _thumbnail(data: bytes, max_bytes: int) -> bytes:
    """At most 800 pixels a side, or nothing: without Pillow, for what it refuses, and where it takes too long."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_MAKER),
        str(max_bytes),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, _ = await process.communicate(data)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return out if process.returncode == 0 and len(out) <= max_bytes else b""
