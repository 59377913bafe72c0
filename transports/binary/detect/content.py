"""Values of a tree that are content by themselves, and text that is base64 or a ``data:`` URL. No I/O."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_to_bytes

from ...errors import BadEncoding, UnsupportedBinary
from ..data import BinaryData, Broken, Encoded, Handle, padded
from ..signatures import sniff

__all__ = [
    "BASE64",
    "base64_head",
    "content_value",
    "decode_data_url",
    "excerpt",
    "is_base64",
    "is_base64_encoding",
    "sniff_base64",
]


def content_value(node: object) -> BinaryData | None:
    """Return a value that is content by its type (bytes, a handle, :class:`BinaryData`), or ``None``.

    Raises :class:`~transports.errors.UnsupportedBinary` for content that the far side could not read.
    """
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


def is_base64_encoding(encoding: object) -> bool:
    """Return whether the ``encoding`` of a descriptor names base64; ``base64url`` is accepted as another name."""
    return isinstance(encoding, str) and encoding.lower().replace("_", "-") in ("base64", "base64url", "base64-url")


_DATA_URL = re.compile(r"data:[^,]*?(;\s*base64\s*)?,", re.IGNORECASE)


def decode_data_url(text: str) -> Encoded | bytes | None:
    """Return the content of a ``data:`` URL (RFC 2397), such as ``canvas.toDataURL`` makes, or ``None`` if ``text`` is
    none.

    Base64 is not decoded yet. Raises :class:`~transports.errors.BadEncoding` for text that is no Unicode.
    """
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
    """Return whether all of ``text`` has the shape of base64, with its padding or without. Nothing is decoded."""
    return len(padded(text)) % 4 == 0 and BASE64.fullmatch(text) is not None


def sniff_base64(text: str) -> str | None:
    """Return the MIME type whose signature base64 text begins with, even if the rest is broken, or ``None``."""
    return sniff(base64_head(text))


def base64_head(text: str) -> bytes:
    """Return the first 4,098 bytes of base64 text, fewer if it ends or is broken before that. Bits that are missing at
    the end of a broken text are zero."""
    run = _NO_BASE64.split(text[:5464], maxsplit=1)[0]
    try:
        return b"".join(Encoded(run + "A" * (-len(run) % 4), "base64").chunks())
    except BadEncoding:
        return b""


def excerpt(value: object) -> str:
    """Return a value of an app, cut to 40 characters for a message.

    Python refuses to write numbers of more than 4,300 digits, so huge ones are only named.
    """
    return "a huge number" if isinstance(value, int) and value.bit_length() > 128 else repr(value)[:40]
