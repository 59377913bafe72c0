"""Size of a picture by its head, for installations without Pillow. No I/O."""

from __future__ import annotations

from typing import Literal

from ...protocol._media import sniff

#: Ends of whole pictures, by their types: the last chunk of a PNG, the markers at the end of a JPEG and a GIF.
_ENDS = {"image/png": b"IEND\xaeB`\x82", "image/jpeg": b"\xff\xd9", "image/gif": b";"}
#: JPEG markers with the size of the picture: all "start of frame" but three that share their numbers.
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def picture_size(data: bytes, mime_type: str) -> tuple[int, int] | None:
    """Return the width and height in pixels of a PNG, JPEG, GIF or WebP; ``None`` if it is of another type than
    ``mime_type``, has no size or is cut off. Its pixels are not decoded."""
    if sniff(data[:64]) != mime_type or not data.rstrip(b"\0").endswith(_ENDS.get(mime_type, b"")):
        return None
    match mime_type:
        case "image/png":
            size = (_number(data, 16, 4, "big"), _number(data, 20, 4, "big"))
        case "image/gif":
            size = (_number(data, 6, 2, "little"), _number(data, 8, 2, "little"))
        case "image/webp":
            size = _webp_size(data)
        case _:
            size = _jpeg_size(data)
    return size if min(size) > 0 else None


def _number(data: bytes, start: int, length: int, order: Literal["big", "little"]) -> int:
    return int.from_bytes(data[start : start + length], order)


def _webp_size(data: bytes) -> tuple[int, int]:
    if _number(data, 4, 4, "little") + 8 > len(data):
        return (0, 0)
    if data[12:16] == b"VP8X":
        return (_number(data, 24, 3, "little") + 1, _number(data, 27, 3, "little") + 1)
    if data[12:16] == b"VP8L":
        bits = _number(data, 21, 4, "little")
        return ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    return (_number(data, 26, 2, "little") & 0x3FFF, _number(data, 28, 2, "little") & 0x3FFF)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    start = 2
    while start + 9 <= len(data) and data[start] == 0xFF:
        marker = data[start + 1]
        if marker in _FRAMES:
            return (_number(data, start + 7, 2, "big"), _number(data, start + 5, 2, "big"))
        if marker == 0xFF:  # padding
            start += 1
        else:
            start += 2 + _number(data, start + 2, 2, "big")
    return (0, 0)
