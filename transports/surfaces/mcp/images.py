"""Images inside tool results (docs/requirements.md R3-4, R3-5): as they are if clients show them and they are small,
else as PNG or as thumbnails."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field

from mcp_types import ImageContent, TextContent

from ...artifacts import ArtifactRef, ArtifactStore
from ...errors import ABPError
from ..shared.reader_process import MAX_SOURCE, run_reader

__all__ = ["Images", "read_images"]

#: Types that clients show, and types that are sent as PNG.
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CONVERTED = ("image/bmp", "image/tiff", "image/avif")
#: Images in one result: docs/requirements.md R3-9b.
_MAX_IMAGES = 4


@dataclass(slots=True)
class Images:
    """The images of a result as content blocks, each after a label if there are several. ``note`` says how many of them
    are missing and why; it is empty if all are there."""

    blocks: list[TextContent | ImageContent] = field(default_factory=list)
    note: str = ""


async def read_images(refs: Sequence[ArtifactRef], store: ArtifactStore, max_bytes: int) -> Images:
    """Return the first four images among ``refs``, ``max_bytes`` at most together before base64. Those that are too
    large or that clients do not show are made smaller or converted, if Pillow is installed."""
    images = [ref for ref in refs if ref.mime_type in (*_SHOWN, *_CONVERTED)]
    result = Images()
    if not images or not max_bytes:
        return result
    shown = 0
    chosen = images[:_MAX_IMAGES]
    for number, (ref, share) in enumerate(zip(chosen, _shares(chosen, max_bytes), strict=True), 1):
        made = await _image(ref, store, share)
        if made is None:
            continue
        block, how = made
        shown += 1
        if len(images) > 1:
            result.blocks.append(TextContent(text=f"Image {number} of {len(images)}: {ref.filename}{how}"))
        result.blocks.append(block)
    if shown < len(images):
        result.note = f"Images: {shown} of {len(images)} shown; the others are behind their links"
        if shown < len(chosen) and importlib.util.find_spec("PIL") is None:
            result.note += "; large ones and other formats need Pillow: pip install 'abp-transports[images]'"
    return result


def _shares(refs: Sequence[ArtifactRef], max_bytes: int) -> list[int]:
    """The bytes that each image may have: what small ones leave is shared by the larger ones."""
    shares = [0] * len(refs)
    by_size = sorted(range(len(refs)), key=lambda at: (refs[at].mime_type in _CONVERTED, refs[at].size_bytes))
    for left, at in zip(range(len(refs), 0, -1), by_size, strict=True):
        shares[at] = max_bytes // left
        as_it_is = refs[at].mime_type in _SHOWN
        max_bytes -= min(shares[at], refs[at].size_bytes) if as_it_is else shares[at]
    return shares


async def _image(ref: ArtifactRef, store: ArtifactStore, max_bytes: int) -> tuple[ImageContent, str] | None:
    """An image and how it differs from the file; ``None`` if it cannot be shown."""
    if ref.size_bytes > MAX_SOURCE:
        return None
    try:
        data = await store.get(ref.id)
    except ABPError:  # removed meanwhile, or damaged: the result has its reference all the same
        return None
    if ref.mime_type in _SHOWN and len(data) <= max_bytes:
        return _block(ref, data, ref.mime_type, thumbnail=False), f" ({ref.size_bytes:,} bytes)"
    if (made := await run_reader("thumbnail", data, max_bytes)) is None:
        return None
    about, data = made
    mime_type = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    (width, height), (wide, high) = about["size"], about["source"]
    if smaller := (width, height) != (wide, high):
        change = f"shown as {width} × {height}"
    else:
        change = "with fewer colours or details" if ref.mime_type in _SHOWN else f"{ref.mime_type} as PNG"
    frames = f", the first of {about['frames']}" if about["frames"] > 1 else ""
    block = _block(ref, data, mime_type, thumbnail=smaller or ref.mime_type in _SHOWN)
    return block, f" ({wide} × {high} pixels, {change}{frames})"


def _block(ref: ArtifactRef, data: bytes, mime_type: str, *, thumbnail: bool) -> ImageContent:
    meta = {"artifact": ref.id, "thumbnail": thumbnail}
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type, _meta=meta)
