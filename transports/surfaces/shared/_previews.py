"""Previews of files for a model: pictures, made small, and the beginnings of texts and PDFs."""

from __future__ import annotations

import codecs
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..._internal.readers._reader_process import MAX_SOURCE, run_reader
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, UsageError
from ...routing._router import is_textual
from ._picture_head import picture_size

#: Image types that clients show, and image types that are sent as PNG.
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CONVERTED = ("image/bmp", "image/tiff", "image/avif")
#: Most images in one result (docs/requirements.md R3-9b).
_MAX_IMAGES = 4
#: Most pixels of a side of an image, and of each of several: models' APIs refuse a request with a larger one
#: (docs/agents.md).
_MAX_SIDE, _MAX_SIDE_OF_MANY = 8000, 2000


@dataclass(frozen=True, slots=True)
class Picture:
    """Image of a file for a model: its bytes and their type.

    ``label`` has the file's name, size and changes; it is empty for the only image. ``thumbnail`` is true if it is
    not the file as it is."""

    ref: ArtifactRef
    data: bytes = field(repr=False)
    mime_type: str
    thumbnail: bool = False
    label: str = ""


@dataclass(slots=True)
class Pictures:
    """Images of a result. ``note`` gives the number of missing images and the reason; it is empty if none is
    missing."""

    shown: list[Picture] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of the images in one result, in bytes before base64: of each image, and of all of them."""

    each: int
    total: int


async def read_pictures(refs: Sequence[ArtifactRef], store: ArtifactStore, limits: ImageLimits) -> Pictures:
    """Return the first four images among ``refs`` within ``limits``. If Pillow is installed, large images are made
    smaller, and types that clients do not show are converted. What is no image, or only a part of one, is not shown:
    a model's API would refuse the request."""
    images = [ref for ref in refs if ref.mime_type in (*_SHOWN, *_CONVERTED)]
    result = Pictures()
    if not images or not limits.each or not limits.total:
        return result
    chosen = images[:_MAX_IMAGES]
    max_side = _MAX_SIDE if len(chosen) == 1 else _MAX_SIDE_OF_MANY
    for number, (ref, share) in enumerate(zip(chosen, _shares(chosen, limits), strict=True), 1):
        made = await _picture(ref, store, share, max_side)
        if made is not None:
            label = f"Image {number} of {len(images)}: {ref.filename}{made.label}" if len(images) > 1 else ""
            result.shown.append(replace(made, label=label))
    if (shown := len(result.shown)) < len(images):
        result.note = f"Images: {shown} of {len(images)} shown; the others are behind their links"
        if shown < len(chosen) and _has_pillow():
            result.note += ", and those among the first four cannot be decoded or made small enough"
        elif shown < len(chosen):
            result.note += "; large ones and other formats need Pillow: pip install 'abp-transports[images]'"
    return result


def _shares(refs: Sequence[ArtifactRef], limits: ImageLimits) -> list[int]:
    """Return the size limit of each image in bytes. Small images leave their unused share to larger ones."""
    shares, left = [0] * len(refs), limits.total
    by_size = sorted(range(len(refs)), key=lambda at: (refs[at].mime_type in _CONVERTED, refs[at].size_bytes))
    for images, at in zip(range(len(refs), 0, -1), by_size, strict=True):
        shares[at] = min(limits.each, left // images)
        as_it_is = refs[at].mime_type in _SHOWN
        left -= min(shares[at], refs[at].size_bytes) if as_it_is else shares[at]
    return shares


def _has_pillow() -> bool:
    return importlib.util.find_spec("PIL") is not None


async def _picture(ref: ArtifactRef, store: ArtifactStore, max_bytes: int, max_side: int) -> Picture | None:
    """Return an image, with its size and changes as its label; ``None`` if it cannot be shown."""
    if ref.size_bytes > MAX_SOURCE:
        return None
    try:
        data = await store.get(ref)
    except ABPError:  # removed meanwhile, or damaged: the result still has its reference
        return None
    unchanged = f" ({ref.size_bytes:,} bytes)"
    if not _has_pillow():
        size = picture_size(data, ref.mime_type)
        fits = size is not None and max(size) <= max_side and len(data) <= max_bytes
        return Picture(ref, data, ref.mime_type, label=unchanged) if fits else None
    if (made := await run_reader("thumbnail", data, max_bytes, max_side)) is None:
        return None
    about, smaller_data = made
    if not smaller_data:
        return Picture(ref, data, f"image/{about['kind'].lower()}", label=unchanged)
    data = smaller_data
    mime_type = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    (width, height), (wide, high) = about["size"], about["source"]
    if smaller := (width, height) != (wide, high):
        change = f"shown as {width} × {height}"
    else:
        change = "with fewer colours or details" if ref.mime_type in _SHOWN else f"{ref.mime_type} as PNG"
    frames = f", the first of {about['frames']}" if about["frames"] > 1 else ""
    label = f" ({wide} × {high} pixels, {change}{frames})"
    return Picture(ref, data, mime_type, thumbnail=smaller or ref.mime_type in _SHOWN, label=label)


_PDF, _SVG = "application/pdf", "image/svg+xml"
#: Most previewed files of one result, and most characters of a text and of an SVG or PDF, which has more because a
#: model cannot read it in another way.
_MAX_FILES, _MAX_TEXT, _MAX_DOCUMENT = 4, 500, 4000
#: Most characters read from a PDF.
_MAX_ALL = 10_000_000


async def read_texts(refs: Sequence[ArtifactRef], store: ArtifactStore, max_chars: int) -> list[str]:
    """Return the beginnings of the first four files that are text, SVG or PDF, each below a line with its name, with
    ``max_chars`` at most in total."""
    texts: list[str] = []
    for ref in [ref for ref in refs if ref.mime_type == _PDF or is_textual(ref.mime_type)][:_MAX_FILES]:
        limit = min(max_chars, _MAX_DOCUMENT if ref.mime_type in (_PDF, _SVG) else _MAX_TEXT)
        try:
            text = await (_pdf(ref, store, limit) if ref.mime_type == _PDF else _head(ref, store, limit))
        except ABPError:  # removed meanwhile, or damaged: the result still has its reference
            continue
        if text:
            texts.append(text)
            max_chars -= len(text)
        if max_chars <= 0:
            break
    return texts


async def document_text(ref: ArtifactRef, store: ArtifactStore) -> str:
    """Return the text of a PDF, at most ten million characters.

    Raises :class:`~transports.errors.UsageError` for another type, for a PDF that cannot be read or has more than
    64 MiB, and without pypdfium2. Propagates errors of the store."""
    if ref.mime_type != _PDF or ref.size_bytes > MAX_SOURCE:
        raise UsageError(f"text: {ref.filename} is not a PDF of at most {MAX_SOURCE:,} bytes; read it without `text`")
    made = await run_reader("pdf_text", await store.get(ref), _MAX_ALL)
    if made is None:
        raise _unreadable("text", ref)
    return made[1].decode()


@dataclass(frozen=True, slots=True)
class Page:
    """Page of a PDF: its text, which may be cut, and the number of pages of the document. ``picture`` is ``None``
    unless it was asked for and could be made."""

    text: str
    pages: int
    picture: Picture | None = None


async def read_page(ref: ArtifactRef, store: ArtifactStore, number: int, *, max_chars: int, width: int = 0) -> Page:
    """Return a page of a PDF, counted from 1, with a picture of ``width`` pixels unless that is 0.

    Raises :class:`~transports.errors.UsageError` for a page that is not there, a PDF that cannot be read or has more
    than 64 MiB, and without pypdfium2. Propagates errors of the store."""
    if ref.mime_type != _PDF or ref.size_bytes > MAX_SOURCE:
        raise UsageError(f"page: {ref.filename} is not a PDF of at most {MAX_SOURCE:,} bytes; read it without `page`")
    data = await store.get(ref)
    made = await run_reader("pdf_text", data, max_chars, number)
    if made is None:
        raise _unreadable("page", ref)
    about, text = made
    if not about["read"]:
        raise UsageError(f"page: {ref.filename} has {about['pages']} pages; the first is 1")
    drawn = await run_reader("pdf_page", data, width, number) if width else None
    label = f"Page {number} of {ref.filename}"
    picture = None if drawn is None else Picture(ref, drawn[1], "image/png", thumbnail=True, label=label)
    return Page(text.decode(), about["pages"], picture)


def _unreadable(argument: str, ref: ArtifactRef) -> UsageError:
    missing = importlib.util.find_spec("pypdfium2") is None
    reason = "pypdfium2 is needed: pip install 'abp-transports[pdf]'" if missing else "it cannot be read"
    return UsageError(f"{argument}: {ref.filename}: {reason}")


async def _head(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    data = await store.get(ref, offset=0, length=4 * limit)  # a character has at most four bytes
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == ref.size_bytes)
    except UnicodeDecodeError:
        return ""
    if len(text) <= limit and len(data) == ref.size_bytes:
        return f"{ref.filename}:\n{text}"
    return f"{ref.filename} begins:\n{text[:limit]}\n… (truncated; {ref.size_bytes:,} bytes in all)"


async def _pdf(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    if importlib.util.find_spec("pypdfium2") is None:
        return f"The text of {ref.filename} needs pypdfium2: pip install 'abp-transports[pdf]'"
    if ref.size_bytes > MAX_SOURCE or (made := await run_reader("pdf_text", await store.get(ref), limit)) is None:
        return ""
    about, data = made
    text, pages = data.decode(), about["pages"]
    if not text.strip():
        return f"{ref.filename} has {pages} pages and no text in the first {about['read']}"
    whole = about["read"] == pages and len(text) < limit
    end = "" if whole else f"\n… (truncated; {pages} pages in all)"
    return f"Text of {ref.filename}{'' if whole else ', from its beginning'}:\n{text}{end}"
