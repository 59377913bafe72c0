"""Previews of files for a model: pictures, made small, and the beginnings of texts and PDFs."""

from __future__ import annotations

import codecs
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..._internal.readers import MAX_SOURCE, run_reader
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, UsageError
from ...protocol._media import sniff
from ...routing._given_files import is_textual

#: Image types that clients show.
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF = "application/pdf"


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that is shown with a result. ``label`` has the file's name, size and changes; it is empty for the only
    image. ``thumbnail`` is true if the picture is smaller than the file, or of lower quality."""

    ref: ArtifactRef
    data: bytes = field(repr=False)
    mime_type: str
    thumbnail: bool = False
    label: str = ""


@dataclass(slots=True)
class Pictures:
    """The images of a result. ``note`` gives the number of missing images and the reason; it is empty if none is
    missing."""

    shown: list[Picture] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of the images in one result, in bytes before base64: of each image, and of all of them."""

    each: int
    total: int


async def read_pictures(refs: Sequence[ArtifactRef], store: ArtifactStore, limits: ImageLimits) -> Pictures:
    """Read the first four images, each with the same share of the total. With Pillow, large images are made smaller,
    and types that clients do not show are converted. A file that is not a whole image is left out, since a model's API
    would refuse the request."""
    sent_as_png = ("image/bmp", "image/tiff", "image/avif")
    images = [ref for ref in refs if ref.mime_type in (*_SHOWN, *sent_as_png)]
    result = Pictures()
    if not images or not limits.each or not limits.total:
        return result

    max_images = 4  # docs/requirements.md R3-9b
    chosen_images = images[:max_images]
    # Models' APIs refuse a request with a larger image, or with several images of which one is larger (docs/agents.md).
    max_side = 8000 if len(chosen_images) == 1 else 2000
    max_bytes = min(limits.each, limits.total // len(chosen_images))
    for number, ref in enumerate(chosen_images, 1):
        picture = await _read_picture(ref, store, max_bytes, max_side)
        if picture is None:
            continue
        label = ""
        if len(images) > 1:
            label = f"Image {number} of {len(images)}: {ref.filename}{picture.label}"
        result.shown.append(replace(picture, label=label))

    result.note = _missing_note(len(result.shown), len(chosen_images), len(images))
    return result


def _missing_note(shown: int, chosen: int, total: int) -> str:
    """Say how many images are not shown, and why; the text is empty if all are shown."""
    if shown == total:
        return ""
    note = f"Images: {shown} of {total} shown; the others are behind their links"
    if shown == chosen:
        return note
    if _has_pillow():
        return f"{note}, and those among the first four cannot be decoded or made small enough"
    return f"{note}; large ones and other formats need Pillow: pip install 'abp-transports[images]'"


def _has_pillow() -> bool:
    return importlib.util.find_spec("PIL") is not None


async def _read_picture(ref: ArtifactRef, store: ArtifactStore, max_bytes: int, max_side: int) -> Picture | None:
    """Return an image within the limits, or ``None`` if it cannot be read or made small enough."""
    if ref.size_bytes > MAX_SOURCE:
        return None
    try:
        data = await store.get(ref)
    except ABPError:
        # The artifact was removed meanwhile, or is damaged. The result still has its reference.
        return None

    unchanged = f" ({ref.size_bytes:,} bytes)"
    if not _has_pillow():
        size = _picture_size(data, ref.mime_type)
        is_small = size is not None and max(size) <= max_side and len(data) <= max_bytes
        return Picture(ref, data, ref.mime_type, label=unchanged) if is_small else None

    thumbnail = await run_reader("thumbnail", data, max_bytes, max_side)
    if thumbnail is None:
        return None
    about, smaller_data = thumbnail
    if not smaller_data:
        return Picture(ref, data, f"image/{about['kind'].lower()}", label=unchanged)

    return _smaller_picture(ref, about, smaller_data)


def _smaller_picture(ref: ArtifactRef, about: Mapping[str, Any], data: bytes) -> Picture:
    """Return a picture that was made smaller or converted. ``data`` is its content, ``about`` what the reader wrote."""
    kind = "PNG" if data.startswith(b"\x89PNG") else "JPEG"
    (width, height), (source_width, source_height) = about["size"], about["source"]
    change = f"shown as a {kind} of {width} × {height}"
    if about["frames"] > 1:
        change += f", the first of {about['frames']} frames"

    label = f" ({source_width} × {source_height} pixels, {change})"
    has_fewer_pixels = (width, height) != (source_width, source_height)
    # With all its pixels, a picture of a type that clients do not show was only converted.
    is_thumbnail = has_fewer_pixels or ref.mime_type in _SHOWN
    return Picture(ref, data, f"image/{kind.lower()}", thumbnail=is_thumbnail, label=label)


# --- sizes of pictures, for installations without Pillow --------------------------------------------------------------


def _picture_size(data: bytes, mime_type: str) -> tuple[int, int] | None:
    """Return the width and height of a picture, without decoding its pixels. Return ``None`` if it has another type
    than ``mime_type``, or is cut off."""
    # These bytes are at the end of each file: the last chunk of a PNG, and the end markers of a JPEG and a GIF.
    ends = {"image/png": b"IEND\xaeB`\x82", "image/jpeg": b"\xff\xd9", "image/gif": b";"}
    is_cut_off = not data.rstrip(b"\0").endswith(ends.get(mime_type, b""))
    if is_cut_off or sniff(data[:64]) != mime_type:
        return None

    match mime_type:
        case "image/png":
            size = (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))
        case "image/gif":
            size = (int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
        case "image/webp":
            size = _webp_size(data)
        case _:
            size = _jpeg_size(data)
    if min(size) <= 0:
        return None
    return size


def _webp_size(data: bytes) -> tuple[int, int]:
    """Return the width and height in the first chunk of a WebP (RFC 9649), which has one of three formats; zeros if the
    file is cut off."""
    size_of_file = 8 + int.from_bytes(data[4:8], "little")
    if size_of_file > len(data):
        return (0, 0)

    lowest_14_bits = 0x3FFF
    chunk_type = data[12:16]
    if chunk_type == b"VP8X":
        return (int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1)
    if chunk_type == b"VP8L":
        both_sides = int.from_bytes(data[21:25], "little")
        return ((both_sides & lowest_14_bits) + 1, (both_sides >> 14 & lowest_14_bits) + 1)
    width = int.from_bytes(data[26:28], "little") & lowest_14_bits
    height = int.from_bytes(data[28:30], "little") & lowest_14_bits
    return (width, height)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return the width and height in the first "start of frame" segment of a JPEG; zeros without one."""
    # Three markers in this range begin other segments: tables and extensions.
    start_of_frame = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
    position = 2
    while position + 9 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker in start_of_frame:
            height = int.from_bytes(data[position + 5 : position + 7], "big")
            width = int.from_bytes(data[position + 7 : position + 9], "big")
            return (width, height)

        is_padding = marker == 0xFF
        if is_padding:
            position += 1
        else:
            segment_length = int.from_bytes(data[position + 2 : position + 4], "big")
            position += 2 + segment_length
    return (0, 0)


# --- texts and PDFs ---------------------------------------------------------------------------------------------------


async def read_texts(refs: Sequence[ArtifactRef], store: ArtifactStore, max_chars: int) -> list[str]:
    """Return the first four texts, SVGs or PDFs, each below a line with its name; ``max_chars`` at most in total."""
    max_texts = 4
    texts: list[str] = []
    chars_left = max_chars
    readable = [ref for ref in refs if ref.mime_type == _PDF or is_textual(ref.mime_type)]
    for ref in readable[:max_texts]:
        read_beginning = _pdf_beginning if ref.mime_type == _PDF else _text_beginning
        # A model has no other way to read a PDF or SVG.
        limit = 4000 if ref.mime_type in (_PDF, "image/svg+xml") else 500
        try:
            text = await read_beginning(ref, store, min(chars_left, limit))
        except ABPError:
            # The artifact was removed meanwhile, or is damaged. The result still has its reference.
            continue

        if text:
            texts.append(text)
            chars_left -= len(text)
        if chars_left <= 0:
            break
    return texts


async def document_text(ref: ArtifactRef, store: ArtifactStore) -> str:
    """Return the text of a PDF, at most ten million characters."""
    _require_readable_pdf("text", ref)
    document = await _read_pdf_text(await store.get(ref), 10_000_000)
    if document is None:
        raise _unreadable_error("text", ref)
    return document.text


@dataclass(frozen=True, slots=True)
class Page:
    """Page of a PDF: its text, which may be cut, and the number of pages of the document."""

    text: str
    pages: int
    picture: Picture | None = None


async def read_page(ref: ArtifactRef, store: ArtifactStore, number: int, *, max_chars: int, width: int = 0) -> Page:
    """Read a page of a PDF; ``number`` counts from 1. With a ``width``, it has a picture of that many pixels."""
    _require_readable_pdf("page", ref)
    data = await store.get(ref)
    document = await _read_pdf_text(data, max_chars, number)
    if document is None:
        raise _unreadable_error("page", ref)
    if not document.pages_read:
        raise UsageError(f"page: {ref.filename} has {document.pages} pages; the first is 1")

    page = Page(document.text, document.pages)
    if not width:
        return page
    drawing = await run_reader("pdf_page", data, width, number)
    if drawing is None:
        return page
    _, png = drawing
    label = f"Page {number} of {ref.filename}"
    return replace(page, picture=Picture(ref, png, "image/png", thumbnail=True, label=label))


class _PdfText(NamedTuple):
    """Text of the first ``pages_read`` of the ``pages`` of a PDF, or of one page."""

    text: str
    pages: int
    pages_read: int


async def _read_pdf_text(data: bytes, max_chars: int, *only_page: int) -> _PdfText | None:
    """Return the text of a PDF, or of ``only_page``; ``None`` if the PDF cannot be read."""
    reading = await run_reader("pdf_text", data, max_chars, *only_page)
    if reading is None:
        return None
    about, text = reading
    return _PdfText(text.decode(), about["pages"], about["read"])


def _require_readable_pdf(argument: str, ref: ArtifactRef) -> None:
    if ref.mime_type != _PDF or ref.size_bytes > MAX_SOURCE:
        raise UsageError(
            f"{argument}: {ref.filename} is not a PDF of at most {MAX_SOURCE:,} bytes; read it without `{argument}`"
        )


def _unreadable_error(argument: str, ref: ArtifactRef) -> UsageError:
    reason = "it cannot be read"
    if importlib.util.find_spec("pypdfium2") is None:
        reason = "pypdfium2 is needed: pip install 'abp-transports[pdf]'"
    return UsageError(f"{argument}: {ref.filename}: {reason}")


async def _text_beginning(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    """Return the first ``limit`` characters of a text file below a line with its name; empty if it is not UTF-8."""
    # A character has at most four bytes.
    data = await store.get(ref, offset=0, length=4 * limit)
    is_whole_file = len(data) == ref.size_bytes
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data, final=is_whole_file)
    except UnicodeDecodeError:
        return ""

    if is_whole_file and len(text) <= limit:
        return f"{ref.filename}:\n{text}"
    return f"{ref.filename} begins:\n{text[:limit]}\n… (truncated; {ref.size_bytes:,} bytes in all)"


async def _pdf_beginning(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    """Return the first ``limit`` characters of a PDF's text below a line with its name, or say why it has none. Return
    an empty text if the PDF cannot be read."""
    if importlib.util.find_spec("pypdfium2") is None:
        return f"The text of {ref.filename} needs pypdfium2: pip install 'abp-transports[pdf]'"
    if ref.size_bytes > MAX_SOURCE:
        return ""
    document = await _read_pdf_text(await store.get(ref), limit)
    if document is None:
        return ""

    if not document.text.strip():
        return f"{ref.filename} has {document.pages} pages and no text in the first {document.pages_read}"
    is_whole_document = document.pages_read == document.pages and len(document.text) < limit
    if is_whole_document:
        return f"Text of {ref.filename}:\n{document.text}"
    return f"Text of {ref.filename}, from its beginning:\n{document.text}\n… (truncated; {document.pages} pages in all)"
