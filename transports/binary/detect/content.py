"""Content as it stands in a tree: values that are content, and text that is base64 or a ``data:`` URL. No I/O."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_to_bytes

from ...errors import BadEncoding, UnsupportedBinary
from ..data import BinaryData, Broken, Encoded, Handle, padded
from ..media import sniff

__all__ = ["BASE64", "data_url", "is_base64", "is_base64_name", "leaf", "shown", "sniffed"]


def leaf(node: object) -> BinaryData | None:
    """Content that is not text. Raises :class:`~transports.errors.UnsupportedBinary` where there was some."""
    match node:
        case BinaryData():
            return node
        case bytes() | bytearray() | memoryview():
            return BinaryData(bytes(node))
        case Handle():
            return BinaryData(node, size=node.size)
        case Broken(reason):
            raise UnsupportedBinary(f"the app answered content that cannot be read: {reason}")
        case _:
            return None


def is_base64_name(encoding: object) -> bool:
    return isinstance(encoding, str) and encoding.lower().replace("_", "-") in ("base64", "base64url", "base64-url")


_DATA_URL = re.compile(r"data:[^,]*?(;\s*base64\s*)?,", re.IGNORECASE)


def data_url(text: str) -> Encoded | bytes | None:
    """The content of a ``data:`` URL (RFC 2397), as ``canvas.toDataURL`` gives it: it is in hand."""
    head = _DATA_URL.match(text[:1024])
    if head is None:
        return None
    if head[1]:
        return Encoded(unquote(text[head.end() :]), "base64")
    try:
        return unquote_to_bytes(text[head.end() :])
    except UnicodeEncodeError as error:
        raise BadEncoding("the data: URL holds half of a surrogate pair and is no valid UTF-8") from error


#: The shape of base64, standard or URL-safe, in one line.
BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/_-]")


def is_base64(text: str) -> bool:
    return len(padded(text)) % 4 == 0 and BASE64.fullmatch(text) is not None


def sniffed(text: str) -> str | None:
    """The type whose signature base64 text begins with, also if the rest is broken."""
    run = _NO_BASE64.split(text[:5464], maxsplit=1)[0]  # 4,098 bytes
    try:
        return sniff(b"".join(Encoded(run + "A" * (-len(run) % 4), "base64").chunks()))
    except BadEncoding:
        return None


def shown(value: object) -> str:
    """What an app sent, short enough for a message; Python itself refuses to write numbers of over 4,300 digits."""
    return "a huge number" if isinstance(value, int) and value.bit_length() > 128 else repr(value)[:40]
