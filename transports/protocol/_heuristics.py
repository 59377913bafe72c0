"""Files that nothing declares: text of an answer that decodes to content with a known signature."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadEncoding, UsageError
from ._media import HEAD_BYTES, normalise_mime, sniff
from .binary import BASE64, BinaryData, Encoded, base64_head, decode_data_url

#: Shortest text, in characters, that is taken for a file without a declaration (docs/requirements.md R2-4.2).
MIN_GUESSED = 1000
#: Control characters that are common in files and absent from text.
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")

#: How files begin whose bytes were decoded as UTF-8, with U+FFFD in the place of others.
_DECODED_HEADS = {
    "%PDF-": "application/pdf",
    "PK\x03\x04": "application/zip",
    "GIF8": "image/gif",
    "\ufffdPNG\r\n": "image/png",
    "\ufffd\ufffd\ufffd\ufffd\0\x10JFIF": "image/jpeg",
    "\x1f\ufffd\x08": "application/gzip",
}


def loss_by_decoding(text: str) -> str | None:
    """Return what a text is that was a file, if a program decoded its bytes as text, which lost some of them."""
    for head, mime_type in _DECODED_HEADS.items():
        if text.startswith(head) and "\ufffd" in text:
            return (
                f"a file ({mime_type}) that was decoded as text, which lost some of its bytes; the app must read it as "
                "an ArrayBuffer or Blob"
            )
    return None


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a file type: bytes at an ``offset``, at least three, within the first 4,096.

    Raises :class:`~transports.errors.UsageError` for a signature out of these bounds, and for a type that is not a MIME
    type.
    """

    magic: bytes
    mime_type: str
    offset: int = 0

    def __post_init__(self) -> None:
        is_within_head = 0 <= self.offset <= HEAD_BYTES - len(self.magic)
        # Two bytes are found in many texts by chance.
        if len(self.magic) < 3 or not is_within_head:
            bounds = f"at least 3 bytes, all within the first {HEAD_BYTES:,} of a file"
            raise UsageError(f"Signature: magic must have {bounds}")
        if normalise_mime(self.mime_type) is None:
            raise UsageError(f"Signature: {self.mime_type!r} is not a MIME type, such as application/x-report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristics:
    """Settings of the search for files without a declaration (docs/requirements.md R2-4.2).

    Longer text than ``max_decode_bytes`` is not decoded. ``signatures`` are tried before those of
    :func:`~transports.protocol._media.sniff`, or instead of them without ``known_signatures``. With
    ``require_magic_bytes=False``, base64 without a known signature is a file of unknown type, too; hashes, keys and
    long words of one alphabet are then taken for files as well."""

    min_chars: int = MIN_GUESSED
    signatures: Sequence[Signature] = ()
    known_signatures: bool = True
    require_magic_bytes: bool = True
    max_decode_bytes: int | None = None

    def recognise(self, text: str) -> BinaryData | None:
        """A file may be base64 in one line or several (RFC 2045), in the standard or the URL-safe alphabet, a ``data:``
        URL, or a binary string. All of the text must be strictly valid; invalid text is plain text, not an error."""
        if len(text) < self.min_chars:
            return None

        base64 = _base64_in(text)
        head = base64_head(base64)
        custom_type = self._custom_type(head)
        mime_type = custom_type or self._known_type(head)
        if mime_type is None:
            return self._read_binary_string(text) or self._read_unknown_file(base64)

        data = self._decode(base64)
        if data is None:
            return None
        if custom_type is None and not _is_plausible(mime_type, data):
            return None
        return BinaryData(data, mime_type)

    def _read_binary_string(self, text: str) -> BinaryData | None:
        """Return the content of a binary string (a character per byte), as of ``atob`` or ``readAsBinaryString``."""
        try:
            head = text[:HEAD_BYTES].encode("latin-1")
            custom_type = self._custom_type(head)
            mime_type = custom_type or self._known_type(head)
            if mime_type is None or not self._may_decode(len(text)):
                return None
            # A PDF may be text from its beginning to its end, as jsPDF's is.
            is_whole_pdf = mime_type == "application/pdf" and "%%EOF" in text[-1024:]
            if not is_whole_pdf and not _CONTROL_CHARS.search(text):
                return None
            data = text.encode("latin-1")
        except UnicodeEncodeError:
            return None
        if custom_type is None and not _is_plausible(mime_type, data):
            return None
        return BinaryData(data, mime_type)

    def _read_unknown_file(self, base64: str) -> BinaryData | None:
        if self.require_magic_bytes or not base64 or self._decode(base64) is None:
            return None
        return BinaryData(Encoded(base64, "base64"))

    def _custom_type(self, head: bytes) -> str | None:
        for signature in self.signatures:
            if head.startswith(signature.magic, signature.offset):
                return signature.mime_type
        return None

    def _known_type(self, head: bytes) -> str | None:
        return sniff(head) if self.known_signatures else None

    def _decode(self, base64: str) -> bytes | None:
        if not self._may_decode(len(base64) * 3 // 4):
            return None
        try:
            return b"".join(Encoded(base64, "base64").chunks())
        except BadEncoding:
            return None

    def _may_decode(self, size: int) -> bool:
        return self.max_decode_bytes is None or size <= self.max_decode_bytes


def _base64_in(text: str) -> str:
    """Return the part of ``text`` that may be base64, in one line: that of a ``data:`` URL, or all of it."""
    try:
        inline = decode_data_url(text)
    except BadEncoding:
        return ""
    if isinstance(inline, Encoded):
        text = str(inline.text)
    elif inline is not None:
        return ""

    # RFC 2045: the lines have 60, 64 or 76 characters.
    line_end = text[:100].find("\n")
    if line_end > 0 and BASE64.fullmatch(text[:line_end].removesuffix("\r")):
        return text.replace("\r", "").replace("\n", "")
    return text


def _is_plausible(mime_type: str, data: bytes) -> bool:
    """Return whether content passes a second check, for signatures that are short or common in tables of numbers."""
    head = data[:HEAD_BYTES]
    match mime_type:
        case "audio/mpeg" if not head.startswith(b"ID3"):
            return _has_second_frame(head)
        case "image/bmp":
            return bool(struct.unpack_from("<I", head, 2)[0] == len(data))  # the header has the size of the file
        case "image/x-icon":
            return _has_first_icon(data)
        case "font/ttf":
            return _has_font_table(head)
        case "application/gzip":
            return len(head) > 18 and head[3] < 0x20  # RFC 1952: three bits are reserved
        case "image/jpeg":
            return head[3:4] >= b"\xc0"  # no lower byte is the code of a marker there
        case _:
            return True


#: Samples a second of MPEG audio, by the bits of its version and of its rate.
_MPEG_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
#: Kilobits a second of MPEG audio, by version 1 or not, the bits of its layer, and those of its bit rate.
_MPEG_KBITS = {
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 1): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def _has_second_frame(head: bytes) -> bool:
    """Return whether a second frame of MPEG audio follows the first one (ISO 11172-3 §2.4.2.3)."""
    # The bits count downwards: version 1 is 3 and version 2 is 2, layer II is 2 and layer III is 1.
    version = head[1] >> 3 & 3
    layer = head[1] >> 1 & 3
    bitrate_index = head[2] >> 4
    rate_index = head[2] >> 2 & 3
    padding = head[2] >> 1 & 1

    is_version_1 = version == 3
    is_layer_2 = layer == 2
    samples = 1152 if is_layer_2 or is_version_1 else 576
    bits_per_second = 1000 * _MPEG_KBITS[is_version_1, layer][bitrate_index - 1]
    frame_bytes = samples // 8 * bits_per_second // _MPEG_RATES[version][rate_index] + padding

    # The first two bytes of all frames are the same.
    return head[frame_bytes : frame_bytes + 1] == b"\xff" and head[frame_bytes + 1 : frame_bytes + 2] == head[1:2]


def _has_first_icon(content: bytes) -> bool:
    # The number of pictures, then an entry of 16 bytes for each.
    count, _, _, _, _, planes, _, size, offset = struct.unpack_from("<HBBBBHHII", content.ljust(22, b"\0"), 4)
    is_picture = content[offset : offset + 4] in (b"\x89PNG", b"\x28\0\0\0")  # a PNG, or a BITMAPINFOHEADER
    is_behind_directory = offset >= 6 + 16 * count
    is_whole = offset + size <= len(content)
    return 0 < count <= 100 and planes <= 1 and is_picture and is_behind_directory and is_whole


def _has_font_table(head: bytes) -> bool:
    # The number of tables, then an entry of 16 bytes for each.
    count, tag, offset, length = struct.unpack_from(">H6x4s4xII", head.ljust(28, b"\0"), 4)
    is_printable = all(0x20 <= byte < 0x7F for byte in tag)
    return bool(0 < count <= 64 and is_printable and offset >= 12 + 16 * count and length)
