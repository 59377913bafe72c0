"""Heuristics for files that nothing declares: long base64 and binary strings whose bytes have a known signature
(docs/requirements.md R2-4.2, R2-A). No I/O.

A false positive would take text away from an answer, so a text counts only if all of it decodes strictly and its head
is that of a file beyond the signature. tests/support/recall.py measures both rates.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from ...errors import BadEncoding, UsageError
from ..data import BinaryData, Encoded
from ..media import normalise_mime
from ..signatures import sniff
from .content import BASE64, base64_head, decode_data_url

__all__ = ["MIN_GUESSED", "Heuristics", "Signature"]

#: Characters below which text is never taken for a file unless something declares it (docs/requirements.md R2-4.2).
MIN_GUESSED = 1000
#: Characters up to which the decoded bytes are kept. Longer content is decoded again when it is stored.
_MAX_KEPT_CHARS = 64 << 20
#: Control characters that are common in files and absent from text.
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_HEAD = 4096
#: Bytes of a signature at least: text matches shorter ones by chance.
_MIN_MAGIC = 3


@dataclass(frozen=True, slots=True)
class Signature:
    """Bytes that files of a type have at an ``offset``: at least three, of the first 4,096.

    Raises :class:`~transports.errors.UsageError` for bytes and places that cannot be looked for, and for a type that is
    no MIME type.
    """

    magic: bytes
    mime_type: str
    offset: int = 0

    def __post_init__(self) -> None:
        if len(self.magic) < _MIN_MAGIC or not 0 <= self.offset <= _HEAD - len(self.magic):
            raise UsageError(
                f"Signature: magic must have at least {_MIN_MAGIC} bytes, all within the first {_HEAD:,} of a file"
            )
        if normalise_mime(self.mime_type) is None:
            raise UsageError(f"Signature: {self.mime_type!r} is no MIME type, such as application/x-report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristics:
    """Settings of the search for files that nothing declares (docs/requirements.md R2-4.2).

    Text of ``min_chars`` characters or more is looked at, if it decodes to ``max_decode_bytes`` at most (``None``: no
    limit). ``signatures`` are tried before those of :func:`~transports.binary.signatures.sniff`. With
    ``require_magic_bytes=False``, base64 without a known signature is a file too, of no known type; then hashes, keys
    and long words of one alphabet are taken for files as well.
    """

    min_chars: int = MIN_GUESSED
    signatures: Sequence[Signature] = ()
    require_magic_bytes: bool = True
    max_decode_bytes: int | None = None

    def recognise(self, text: str) -> BinaryData | None:
        """Return ``text`` as content if it is a file, else ``None``.

        It may be base64 in one line or several (RFC 2045), in the standard or the URL-safe alphabet, a ``data:`` URL,
        or a binary string. All of it must be strictly valid; what is not is no error but plain text.
        """
        if len(text) < self.min_chars:
            return None
        inline = decode_data_url(text)
        bare = text if inline is None else str(inline.text) if isinstance(inline, Encoded) else ""
        if (first := bare[:100].find("\n")) > 0 and BASE64.fullmatch(bare[: first - (bare[first - 1] == "\r")]):
            bare = bare.replace("\r", "").replace("\n", "")  # as RFC 2045 has it: lines of 60, 64 or 76 characters
        head = base64_head(bare)
        own = self._own_type(head)
        mime_type = own or sniff(head)
        if mime_type is None:
            return self._binary_string(text) or (None if self.require_magic_bytes else self._unknown(bare))
        content = self._decode(bare)
        if content is None or not (own or _plausible(mime_type, content)):
            return None
        data, _ = content
        return BinaryData(data if data is not None else Encoded(bare, "base64"), mime_type)

    def _own_type(self, head: bytes) -> str | None:
        return next((own.mime_type for own in self.signatures if head.startswith(own.magic, own.offset)), None)

    def _unknown(self, bare: str) -> BinaryData | None:
        content = self._decode(bare) if bare else None
        return None if content is None else BinaryData(Encoded(bare, "base64"))

    def _decode(self, bare: str) -> tuple[bytes | None, bytes] | None:
        return _decode(bare) if self._within(len(bare) * 3 // 4) else None

    def _binary_string(self, text: str) -> BinaryData | None:
        """A binary string, in which each character is a byte: pages get it from ``atob`` and ``readAsBinaryString``."""
        try:
            head = text[:_HEAD].encode("latin-1")
            own = self._own_type(head)
            mime_type = own or sniff(head)
            if mime_type is None or not self._within(len(text)) or not _CONTROL_CHARS.search(text):
                return None
            data = text.encode("latin-1")
        except UnicodeEncodeError:
            return None
        return BinaryData(data, mime_type) if own or _plausible(mime_type, (data, head)) else None

    def _within(self, size: int) -> bool:
        return self.max_decode_bytes is None or size <= self.max_decode_bytes


def _decode(text: str) -> tuple[bytes | None, bytes] | None:
    """The bytes of base64 text (``None`` if there are too many to keep) and their head; ``None`` if it is not valid."""
    chunks = Encoded(text, "base64").chunks()
    try:
        if len(text) <= _MAX_KEPT_CHARS:
            data = b"".join(chunks)
            return data, data[:_HEAD]
        first = next(chunks)
        for _ in chunks:
            pass
    except BadEncoding:
        return None
    return None, first[:_HEAD]


def _plausible(mime_type: str, content: tuple[bytes | None, bytes]) -> bool:
    """Whether content passes a second check where its signature is short, or where tables of numbers begin like it."""
    data, head = content
    match mime_type:
        case "audio/mpeg" if not head.startswith(b"ID3"):
            return _second_frame(head)
        case "image/bmp":
            return data is None or struct.unpack_from("<I", head, 2)[0] == len(data)
        case "image/x-icon":
            return data is None or _first_icon(data)
        case "font/ttf":
            return _font_table(head)
        case "application/gzip":
            return len(head) > 18 and head[3] < 0x20  # RFC 1952: three bits are reserved
        case "image/jpeg":
            return head[3:4] >= b"\xc0"
        case _:
            return True


_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
_KBITS = {
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 1): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def _second_frame(head: bytes) -> bool:
    """Whether a frame of MPEG audio ends where another begins (ISO 11172-3 §2.4.2.3)."""
    version, layer, bitrate, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    samples = 1152 if layer == 2 or version == 3 else 576
    bits = 1000 * _KBITS[version == 3, layer][bitrate - 1]
    length = samples // 8 * bits // _RATES[version][rate] + (head[2] >> 1 & 1)
    return head[length : length + 1] == b"\xff" and head[length + 1 : length + 2] == head[1:2]


def _first_icon(content: bytes) -> bool:
    """Whether the first entry of an icon's directory can be one: a picture begins where it says."""
    count, _, _, _, _, planes, _, size, offset = struct.unpack_from("<HBBBBHHII", content.ljust(22, b"\0"), 4)
    picture = content[offset : offset + 4] in (b"\x89PNG", b"\x28\0\0\0")  # a PNG, or a BITMAPINFOHEADER
    return 0 < count <= 100 and planes <= 1 and picture and offset >= 6 + 16 * count and offset + size <= len(content)


def _font_table(head: bytes) -> bool:
    """Whether the first table of a font has a name of four printable characters and stands behind the directory."""
    count, tag, offset, length = struct.unpack_from(">H6x4s4xII", head.ljust(28, b"\0"), 4)
    printable = all(0x20 <= byte < 0x7F for byte in chain(tag))
    return bool(0 < count <= 64 and printable and offset >= 12 + 16 * count and length)
