"""Detection of binary content in answers, in one walk that applies all rules to every node, and in parameters.

* :func:`find` — the search in an answer; :func:`find_values` — the same by type alone.
* :func:`read_descriptor`, :func:`read_flat_form`, :func:`read_block` — the forms of docs/protocol.md 9 and of MCP.
* :class:`Heuristics` and :class:`Signature` — text that nothing declares as content.
* :func:`prepare_params`, :func:`set_path` — content in the parameters of a call.
"""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace as replace_fields
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, Literal, TypeAlias, cast
from urllib.parse import unquote, unquote_to_bytes

from ..errors import ABPError, BadDescriptor, BadEncoding, ProtocolError, UnsupportedBinary, UsageError
from ._media import extension_for, is_binary_mime, normalise_mime, sniff
from .binary import BinaryData, Broken, Download, Encoded, Handle, padded

#: Levels of nesting that are searched. A deeper answer is an error: content is never missed silently
#: (docs/faults.md 21).
MAX_DEPTH = 64

#: A place in a tree of JSON values: the keys and indexes that lead to it from the top, ``()`` for the top itself.
Place: TypeAlias = tuple[str | int, ...]

#: The rule that recognised content (docs/requirements.md R2-4.1): a form of ABP, an MCP content block, or a heuristic.
Layer: TypeAlias = Literal["abp", "typed", "heuristic"]


@dataclass(frozen=True, slots=True)
class Found:
    """Content at a place of an answer. For an invalid descriptor, ``binary`` is the error, so that other content is not
    lost. ``layer`` is the rule that recognised the content. With ``is_flat``, its type and size stand beside it, not
    in it (docs/protocol.md 9.5)."""

    path: Place
    binary: BinaryData | ABPError
    layer: Layer = "abp"
    is_flat: bool = False

    @property
    def field(self) -> str:
        """Place as text, in the form of :func:`field_of`."""
        return field_of(self.path)


def field_of(place: Place) -> str:
    """Return a place as text: ``document``, ``pages.0.image``, ``""`` for the top.

    A dot or backslash inside a key is escaped by a backslash, so no two places have the same text.
    """
    return ".".join(str(step).replace("\\", "\\\\").replace(".", "\\.") for step in place)


def replace(tree: object, replacements: Mapping[Place, object]) -> object:
    """Return a copy of ``tree`` with other values at the given places.

    Branches without such a place are shared with ``tree``, not copied. Raises ``KeyError`` for a place that is not in
    the tree.
    """
    if not replacements:
        return tree
    if () in replacements:
        return replacements[()]
    below: dict[str | int, dict[Place, object]] = {}
    for path, value in replacements.items():
        below.setdefault(path[0], {})[path[1:]] = value
    copy: object = tree
    if isinstance(tree, dict):
        copy = {
            key: replace(value, below.pop(step)) if (step := str(key)) in below else value
            for key, value in tree.items()
        }
    elif isinstance(tree, list | tuple):
        copy = [replace(value, below.pop(index)) if index in below else value for index, value in enumerate(tree)]
    if below:
        raise KeyError(f"the tree has no place {next(iter(below))!r}")
    return copy


def read_block(node: Mapping[str, object], path: Place) -> tuple[Place, BinaryData | ABPError] | None:
    """Return the content of an MCP block, or its error, with the keys that lead to it from ``node``; ``None`` if
    ``node`` is not a block with content.

    An ``image`` or ``audio`` block is recognised only in a list that is the whole answer, or that is called ``content``
    or ``contents``. A resource is recognised anywhere, by its ``uri`` and ``blob``. A ``resource_link`` has no content:
    ``resources/read`` reads it.
    """
    kind = node.get("type")
    if kind in ("image", "audio"):
        data = node.get("data")
        if _is_in_block_list(path) and isinstance(data, str | BinaryData) and isinstance(node.get("mimeType"), str):
            return ("data",), _binary(data, str(node["mimeType"]), None)
        return None
    inner, steps = (node.get("resource"), ("resource", "blob")) if kind == "resource" else (node, ("blob",))
    if not isinstance(inner, dict):
        return None
    uri, blob, mime_type = inner.get("uri"), inner.get("blob"), inner.get("mimeType")
    if not isinstance(uri, str) or not isinstance(blob, str | BinaryData):
        return None
    return steps, _binary(blob, mime_type if isinstance(mime_type, str) else None, filename_of(uri))


def _binary(value: str | BinaryData, mime_type: str | None, filename: str | None) -> BinaryData | ABPError:
    """Return base64 text, or content that a transport has already decoded, with these declarations."""
    if isinstance(value, str):
        try:
            return BinaryData(block_content(value), mime_type, None, filename)
        except BadEncoding as error:
            return error
    return replace_fields(value, mime_type=mime_type or value.mime_type, filename=filename or value.filename)


def block_content(text: str) -> Encoded | bytes:
    """Return the content of an MCP block, which servers send as base64 of either alphabet, in one line or several
    (RFC 2045), or as a ``data:`` URL. Base64 is not decoded yet.

    Raises :class:`~transports.errors.BadEncoding` for a lone surrogate in a ``data:`` URL."""
    inline = decode_data_url(text)
    if inline is not None:
        return inline
    if "\n" in text:
        text = text.replace("\r", "").replace("\n", "")
    return Encoded(text.strip(), "base64")


def _is_in_block_list(path: Place) -> bool:
    return bool(path) and isinstance(path[-1], int) and (len(path) == 1 or path[-2] in ("content", "contents"))


def filename_of(uri: object) -> str | None:
    """Return the last segment of a URI, if it looks like a file name."""
    if not isinstance(uri, str):
        return None
    last = uri.partition("?")[0].partition("#")[0].rpartition("/")[2]
    return last if "." in last.strip(".") else None


def content_value(node: object) -> BinaryData | None:
    """Return a value that is content by its type (bytes, a handle, :class:`BinaryData`); ``None`` for any other.

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


_DATA_URL = re.compile(r"[\x00-\x20]*data:[^,]*?(;\s*base64\s*)?,", re.IGNORECASE)


def decode_data_url(text: str) -> Encoded | bytes | None:
    """Return the content of a ``data:`` URL (RFC 2397), such as that of ``canvas.toDataURL``; ``None`` for other text.

    Base64 is not decoded yet, but spaces and line ends are removed from it, as in a browser (WHATWG URL and Fetch).
    Raises :class:`~transports.errors.BadEncoding` for a lone surrogate.
    """
    head = _DATA_URL.match(text[:1024])
    if head is None:
        return None
    if head[1]:
        bare = unquote(text[head.end() :])
        for space in "\t\n\f\r ":
            bare = bare.replace(space, "")
        return Encoded(bare, "base64")
    try:
        return unquote_to_bytes(text[head.end() :])
    except UnicodeEncodeError as error:
        raise BadEncoding("the data: URL holds half of a surrogate pair and is not valid UTF-8") from error


#: The form of base64, standard or URL-safe, in one line.
BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/_-]")


def is_base64(text: str) -> bool:
    """Return whether all of ``text`` has the form of base64, with or without padding. Nothing is decoded."""
    return len(padded(text)) % 4 == 0 and BASE64.fullmatch(text) is not None


def sniff_base64(text: str) -> str | None:
    """Return the MIME type by the signature of base64 text, even if the rest is broken; ``None`` without one."""
    return sniff(base64_head(text))


def base64_head(text: str) -> bytes:
    """Return the first 4,098 bytes of base64 text, or fewer if it ends or is broken before that. Missing bits at the
    end of a broken text are zero."""
    run = _NO_BASE64.split(text[:5464], maxsplit=1)[0]
    try:
        return b"".join(Encoded(run + "A" * (-len(run) % 4), "base64").chunks())
    except BadEncoding:
        return b""


def excerpt(value: object) -> str:
    """Return the ``repr`` of a value, cut to 40 characters for a message.

    Python refuses to write numbers of more than 4,300 digits, so huge ones are only named.
    """
    return "a huge number" if isinstance(value, int) and value.bit_length() > 128 else repr(value)[:40]


#: Shortest text, in characters, that is taken for a file without a declaration (docs/requirements.md R2-4.2).
MIN_GUESSED = 1000
#: Longest text, in characters, whose decoded bytes are kept. Longer content is decoded again when it is stored.
_MAX_KEPT_CHARS = 64 << 20
#: Control characters that are common in files and absent from text.
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_HEAD = 4096
#: Shortest signature in bytes: text matches shorter ones by chance.
_MIN_MAGIC = 3


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
        if len(self.magic) < _MIN_MAGIC or not 0 <= self.offset <= _HEAD - len(self.magic):
            raise UsageError(
                f"Signature: magic must have at least {_MIN_MAGIC} bytes, all within the first {_HEAD:,} of a file"
            )
        if normalise_mime(self.mime_type) is None:
            raise UsageError(f"Signature: {self.mime_type!r} is not a MIME type, such as application/x-report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristics:
    """Settings of the search for files without a declaration (docs/requirements.md R2-4.2).

    Text of at least ``min_chars`` characters is checked if it decodes to at most ``max_decode_bytes`` (``None``: no
    limit). ``signatures`` are tried before those of :func:`~transports.protocol._media.sniff`, or instead of them
    without ``known_signatures``. With ``require_magic_bytes=False``, base64 without a known signature is a file of
    unknown type, too; hashes, keys and long words of one alphabet are then taken for files as well.
    """

    min_chars: int = MIN_GUESSED
    signatures: Sequence[Signature] = ()
    known_signatures: bool = True
    require_magic_bytes: bool = True
    max_decode_bytes: int | None = None

    def recognise(self, text: str) -> BinaryData | None:
        """Return ``text`` as content if it is a file; ``None`` otherwise.

        A file may be base64 in one line or several (RFC 2045), in the standard or the URL-safe alphabet, a ``data:``
        URL, or a binary string. All of the text must be strictly valid; invalid text is plain text, not an error.
        """
        if len(text) < self.min_chars:
            return None
        inline = decode_data_url(text)
        bare = text if inline is None else str(inline.text) if isinstance(inline, Encoded) else ""
        if (first := bare[:100].find("\n")) > 0 and BASE64.fullmatch(bare[: first - (bare[first - 1] == "\r")]):
            bare = bare.replace("\r", "").replace("\n", "")  # RFC 2045: lines of 60, 64 or 76 characters
        head = base64_head(bare)
        own = self._own_type(head)
        mime_type = own or self._known_type(head)
        if mime_type is None:
            return self._binary_string(text) or (None if self.require_magic_bytes else self._unknown(bare))
        content = self._decode(bare)
        if content is None or not (own or _plausible(mime_type, content)):
            return None
        data, _ = content
        return BinaryData(data if data is not None else Encoded(bare, "base64"), mime_type)

    def _own_type(self, head: bytes) -> str | None:
        return next((own.mime_type for own in self.signatures if head.startswith(own.magic, own.offset)), None)

    def _known_type(self, head: bytes) -> str | None:
        return sniff(head) if self.known_signatures else None

    def _unknown(self, bare: str) -> BinaryData | None:
        content = self._decode(bare) if bare else None
        return None if content is None else BinaryData(Encoded(bare, "base64"))

    def _decode(self, bare: str) -> tuple[bytes | None, bytes] | None:
        return _decode(bare) if self._within(len(bare) * 3 // 4) else None

    def _binary_string(self, text: str) -> BinaryData | None:
        """Return the content of a binary string (a character per byte), as of ``atob`` or ``readAsBinaryString``."""
        try:
            head = text[:_HEAD].encode("latin-1")
            own = self._own_type(head)
            mime_type = own or self._known_type(head)
            if mime_type is None or not self._within(len(text)) or not _CONTROL_CHARS.search(text):
                return None
            data = text.encode("latin-1")
        except UnicodeEncodeError:
            return None
        return BinaryData(data, mime_type) if own or _plausible(mime_type, (data, head)) else None

    def _within(self, size: int) -> bool:
        return self.max_decode_bytes is None or size <= self.max_decode_bytes


def _decode(text: str) -> tuple[bytes | None, bytes] | None:
    """Return the bytes of base64 text (``None`` if too many to keep) and their head; ``None`` for invalid text."""
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
    """Return whether content passes a second check, for signatures that are short or common in tables of numbers."""
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
    """Return whether a second frame of MPEG audio follows the first one (ISO 11172-3 §2.4.2.3)."""
    version, layer, bitrate, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    samples = 1152 if layer == 2 or version == 3 else 576
    bits = 1000 * _KBITS[version == 3, layer][bitrate - 1]
    length = samples // 8 * bits // _RATES[version][rate] + (head[2] >> 1 & 1)
    return head[length : length + 1] == b"\xff" and head[length + 1 : length + 2] == head[1:2]


def _first_icon(content: bytes) -> bool:
    """Return whether the first entry of an icon's directory is plausible, with a picture at its offset."""
    count, _, _, _, _, planes, _, size, offset = struct.unpack_from("<HBBBBHHII", content.ljust(22, b"\0"), 4)
    picture = content[offset : offset + 4] in (b"\x89PNG", b"\x28\0\0\0")  # a PNG, or a BITMAPINFOHEADER
    return 0 < count <= 100 and planes <= 1 and picture and offset >= 6 + 16 * count and offset + size <= len(content)


def _font_table(head: bytes) -> bool:
    """Return whether the first table of a font has a name of four printable characters and follows the directory."""
    count, tag, offset, length = struct.unpack_from(">H6x4s4xII", head.ljust(28, b"\0"), 4)
    printable = all(0x20 <= byte < 0x7F for byte in chain(tag))
    return bool(0 < count <= 64 and printable and offset >= 12 + 16 * count and length)


_MAX_SIZE = 2**53 - 1  # the largest whole number that JavaScript represents exactly

#: Fields of a descriptor that describe its content. All other fields are metadata.
DESCRIPTOR_KEYS = {"content", "mimeType", "encoding", "size", "filename", "downloadUrl", "expiresAt", "auth"}


def read_descriptor(node: Mapping[str, object]) -> BinaryData | None:
    """Return the content of the descriptor ``node`` with its declarations; ``None`` if ``node`` is plain data.

    ``downloadUrl`` takes precedence over ``content`` (docs/protocol.md 10.1). Content other than text needs no
    ``mimeType``. Raises
    :class:`~transports.errors.BadDescriptor` for an invalid ``size``, ``expiresAt`` or ``auth``,
    :class:`~transports.errors.BadEncoding` for an unknown ``encoding`` of a binary type, and
    :class:`~transports.errors.UnsupportedBinary` for content that the page could not read.
    """
    mime_type, content, url = node.get("mimeType"), node.get("content"), node.get("downloadUrl")
    bare: BinaryData | None
    if isinstance(mime_type, str) and isinstance(url, str) and url:
        inline = decode_data_url(url)
        bare = BinaryData(_download(url, node) if inline is None else inline)
    elif isinstance(content, str):
        bare = _text_content(content, mime_type, node) if isinstance(mime_type, str) else None
    else:
        bare = content_value(content)
    if bare is None:
        return None
    return with_declared(bare, node, {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS})


def with_declared(bare: BinaryData, node: Mapping[str, object], extra: Mapping[str, object]) -> BinaryData:
    """Return content with the declarations of its descriptor ``node``, and ``extra`` as its metadata.

    Missing declarations are taken from the content: a ``Blob`` or ``File`` of a page has a type and a name.
    Raises :class:`~transports.errors.BadDescriptor` for an invalid ``size``.
    """
    mime_type, filename, size = node.get("mimeType"), node.get("filename"), _size(node.get("size"))
    return BinaryData(
        bare.content,
        mime_type if isinstance(mime_type, str) and mime_type else bare.mime_type,
        bare.size if size is None else size,
        filename if isinstance(filename, str) and filename else bare.filename,
        extra,
    )


#: Binary types (docs/protocol.md 9.2) whose content is text: without `encoding` it is UTF-8 unless it can be base64.
_TEXTUAL = re.compile(r"[+/](x-)?(xml|json|javascript|ecmascript|yaml|rtf|postscript|sql|sh)$")


def _text_content(text: str, mime_type: str, node: Mapping[str, object]) -> BinaryData | None:
    """Return ``content`` that arrived as text; ``None`` if the descriptor is plain data.

    An ``encoding`` decides for any type. Without one, content of a binary type is base64 (docs/protocol.md 9.2), and
    content of a text type is a file only if the descriptor also has a file name or a size.
    """
    encoding = node.get("encoding")
    if is_base64_encoding(encoding):
        inline = decode_data_url(text)
        return BinaryData(Encoded(text, "base64") if inline is None else inline)
    bare = normalise_mime(mime_type)
    if bare is None:
        return None
    if isinstance(encoding, str) and encoding.lower() in ("utf-8", "utf8"):
        return BinaryData(Encoded(text, "utf-8"))
    binary = is_binary_mime(bare)
    if binary and encoding is not None:
        raise BadEncoding(f"unknown encoding {excerpt(encoding)}; ABP knows 'base64' and 'utf-8'")
    if not binary and (encoding is not None or not _is_named_or_measured(node)):
        return None
    if (inline := decode_data_url(text)) is not None:
        return BinaryData(inline)
    literal = not binary or (_TEXTUAL.search(bare) and not is_base64(text))
    return BinaryData(Encoded(text, "utf-8" if literal else "base64"))


def _is_named_or_measured(node: Mapping[str, object]) -> bool:
    """Return whether a descriptor has a file name, or a numeric size: ``size: "12pt"`` is that of a font."""
    filename, size = node.get("filename"), node.get("size")
    named = isinstance(filename, str) and bool(filename)
    return named or (isinstance(size, int | float) and not isinstance(size, bool))


def declares_base64(mime_type: object, encoding: object) -> bool:
    """Return whether a type and an encoding alone declare text as base64."""
    if encoding is not None:
        return is_base64_encoding(encoding)
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    return bare is not None and is_binary_mime(bare) and not _TEXTUAL.search(bare)


def _size(value: object) -> int | None:
    """Return the declared size in bytes. Any other value than a whole number in range is an error, never corrected."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise BadDescriptor(f"size must be a whole number of bytes, the app sent {excerpt(value)}")
    if not 0 <= value <= _MAX_SIZE:
        raise BadDescriptor(f"size must be between 0 and 2^53-1 bytes, the app sent {excerpt(value)}")
    return int(value)


def _download(url: str, node: Mapping[str, object]) -> Download:
    return Download(url, _expiry(node.get("expiresAt")), *_credentials(node.get("auth")))


def _expiry(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_SIZE:
        raise BadDescriptor(f"expiresAt must be Unix milliseconds, the app sent {excerpt(value)}")
    return float(value)


_HEADER_LINE = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):\s*(\S.*)")


def _credentials(auth: object) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and query fields of ``auth``, in its documented forms (docs/protocol.md 10.3)."""
    if auth is None:
        return {}, {}
    if not isinstance(auth, dict):
        raise BadDescriptor("auth must be an object with a type")
    kind, token, header = auth.get("type"), auth.get("token"), auth.get("header")
    for secret in (token, header):
        if secret is not None and (not isinstance(secret, str) or re.search(r"[\x00-\x1f\x7f]", secret)):
            raise BadDescriptor("auth.token and auth.header must be one line of text")
    kind = kind.lower() if isinstance(kind, str) else kind
    token, header = (token or "").strip(), (header or "").strip()
    if kind == "query" and token:
        return {}, {"token": token}
    if kind == "bearer" and header:
        if line := _HEADER_LINE.fullmatch(header):
            return {line[1]: line[2]}, {}
        return {"Authorization": header if " " in header else f"Bearer {header}"}, {}
    if kind == "bearer" and token:
        return {"Authorization": f"Bearer {token}"}, {}
    raise BadDescriptor("auth must be {type:'bearer', header|token} or {type:'query', token}")


_GENERIC_KEYS = {"data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"}
_HEX = re.compile(r"(?=\D*\d)[0-9a-fA-F]*")  # with a digit: a run of "A" is base64 of zero bytes


def read_flat_form(node: Mapping[str, object]) -> tuple[str, BinaryData | ABPError] | None:
    """Return the key of ``node`` that holds content in the flat form, with the content or its error; ``None`` without
    content.

    The type must be binary or the encoding base64, as in a descriptor (docs/protocol.md 9.2). Keys named after the
    type (``image``, ``png``, ``jpg``) are tried first, then generic names (``data``), then all others; the first with
    content wins. ``{name, mimeType, size}`` in a list of files has no content and stays data.
    """
    mime_type, encoding, size = node.get("mimeType"), node.get("encoding"), node.get("size")
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    certain = is_base64_encoding(encoding)
    if bare is None or not (certain or (encoding is None and is_binary_mime(bare))):
        return None
    own = {*bare.split("/"), extension_for(bare)[1:]}
    ranked = [
        (0 if key.lower() in own else 1 if key.lower() in _GENERIC_KEYS else 2, key)
        for key in node
        if isinstance(key, str) and key not in DESCRIPTOR_KEYS
    ]
    for rank, key in sorted(ranked, key=lambda item: item[0]):
        try:
            content = _flat_content(node[key], named=rank < 2, certain=certain, size=size)
            if content is not None:
                return key, with_declared(content, node, {})
        except ABPError as error:
            return key, error
    return None


def _flat_content(value: object, *, named: bool, certain: bool, size: object) -> BinaryData | None:
    """Return ``value`` as content, or ``None``. Under a key that is not ``named`` for content, it needs a signature."""
    if not isinstance(value, str):
        return content_value(value) if named else None
    if named and (inline := decode_data_url(value)) is not None:
        return BinaryData(inline)
    signed = sniff_base64(value) is not None
    by_name = certain or signed or _decodes_to(value, size) or _looks_encoded(value)
    return BinaryData(Encoded(value, "base64")) if (by_name if named else signed and len(value) >= 64) else None


def _decodes_to(text: str, size: object) -> bool:
    """Return whether ``text`` is base64 of exactly the declared ``size``, unlike short words and paths."""
    return bool(text) and len(text.rstrip("=")) * 3 // 4 == size and is_base64(text)


def _looks_encoded(text: str) -> bool:
    """Return whether ``text`` is long and begins like base64. If it is broken later on, it is an error, not data.

    Prose, paths, code and tokens have a space, dot or colon early on; hashes are short or hexadecimal.
    """
    start = text[:256]
    return len(text) >= 100 and BASE64.fullmatch(start) is not None and not _HEX.fullmatch(start)


#: Types that never hold content. They are skipped before any other test: an answer may hold a million numbers.
_NUMBERS = frozenset((int, float, bool, NoneType))
_PLAIN = _NUMBERS | {str, list, dict, tuple}
_DEFAULT, _OFF = Heuristics(), Heuristics(min_chars=1 << 62)
#: Keys of descriptors, of the flat form and of content blocks.
_DECLARING = frozenset(("mimeType", "content", "type", "blob"))
_BLOCKS = frozenset(("image", "audio", "resource"))


def find(
    data: object,
    *,
    heuristics: Heuristics | None = _DEFAULT,
    others: list[tuple[Place, object]] | None = None,
) -> list[Found]:
    """Return all content in an answer's ``data``, in order.

    Text without a declaration is checked by the ``heuristics`` (``None``: never). Content with an invalid descriptor is
    returned as its error, so that other content is not lost. Values that are neither JSON nor content are added to
    ``others`` with their places.

    Raises :class:`~transports.errors.ProtocolError` for nesting deeper than :data:`MAX_DEPTH`.
    """
    heuristics = heuristics or _OFF
    search = _Search(heuristics, others)
    search.walk(data, ())
    return search.found


def _is_block(node: dict[str, object]) -> bool:
    kind = node.get("type")
    return (type(kind) is str and kind in _BLOCKS) or "blob" in node


def find_values(data: object, *, others: list[tuple[Place, object]] | None = None) -> list[Found]:
    """Return the values that are content by their type: ``bytes``, :class:`~transports.BinaryData`, handles.

    No descriptor is read and no heuristic is applied. ``others`` and errors are those of :func:`find`.
    """
    search = _Search(_OFF, others)
    search.walk_values(data, ())
    return search.found


class _Search:
    """A search of one answer: its settings, and the content found so far."""

    __slots__ = ("_heuristics", "_min_chars", "_others", "found")

    def __init__(self, heuristics: Heuristics, others: list[tuple[Place, object]] | None) -> None:
        self.found: list[Found] = []
        self._heuristics = heuristics
        self._min_chars = heuristics.min_chars
        self._others = others

    def walk_values(self, node: object, path: Place) -> None:
        """Search ``node`` for content by its type."""
        if isinstance(node, dict | list | tuple):
            if len(path) >= MAX_DEPTH:
                raise _too_deep(path)
            for step, value in node.items() if isinstance(node, dict) else enumerate(node):
                if type(value) not in _NUMBERS:
                    self.walk_values(value, (*path, step if isinstance(step, int) else str(step)))
        else:
            self._leaf(node, path)

    def walk(self, node: object, path: Place) -> None:
        """Search ``node`` for content of all forms."""
        if isinstance(node, dict | list | tuple) and len(path) >= MAX_DEPTH:
            raise _too_deep(path)
        if isinstance(node, dict):
            self._walk_object(node, path)
        elif isinstance(node, list | tuple):
            for index, value in enumerate(node):
                kind = type(value)
                if kind not in _NUMBERS and (kind is not str or len(value) >= self._min_chars):
                    self.walk(value, (*path, index))
        elif isinstance(node, str):
            if len(node) >= self._min_chars and (binary := self._heuristics.recognise(node)) is not None:
                self.found.append(Found(path, binary, "heuristic"))
        else:
            self._leaf(node, path)

    def _walk_object(self, node: dict[str, object], path: Place) -> None:
        block_keys: Place = ()
        flat: tuple[str, BinaryData | ABPError] | None = None
        if not _DECLARING.isdisjoint(node):
            if _is_block(node) and (block := read_block(node, path)):
                block_keys, binary = block
                self.found.append(Found((*path, *block_keys), binary, "typed"))
            elif isinstance(node.get("mimeType"), str) or type(node.get("content")) not in _PLAIN:
                described = _described_content(node)
                if described is not None:
                    self.found.append(Found(path, described))
                    return
                flat = read_flat_form(node)

        for name, value in node.items():
            kind = type(value)
            if flat is not None and name == flat[0]:
                self.found.append(Found((*path, name), flat[1], is_flat=True))
            elif kind in _NUMBERS or (kind is str and len(value) < self._min_chars):  # type: ignore[arg-type]
                continue
            elif not block_keys or name != block_keys[0]:
                self.walk(value, (*path, str(name)))

    def _leaf(self, node: object, path: Place) -> None:
        try:
            binary: BinaryData | ABPError | None = content_value(node)
        except ABPError as error:
            binary = error
        if binary is not None:
            self.found.append(Found(path, binary))
        elif self._others is not None and type(node) not in _PLAIN:
            self._others.append((path, node))


def _described_content(node: Mapping[str, object]) -> BinaryData | ABPError | None:
    """Return :func:`read_descriptor` of an object, or its error."""
    try:
        return read_descriptor(node)
    except ABPError as error:
        return error


def _too_deep(path: Place) -> ProtocolError:
    beginning = ".".join(map(str, path[:6]))
    return ProtocolError(f"the answer is nested deeper than {MAX_DEPTH} levels at {beginning}…")


_INDEX = re.compile(r"[0-9]{1,9}")


class FileToRead(Exception):
    """Raised for an open file in parameters that are prepared in an event loop; prepare them in a thread."""


def prepare_params(params: object, *, read_files: bool = True) -> tuple[object, list[Found]]:
    """Return a copy of ``params`` with every ``bytes``, ``Path``, open binary file and :class:`BinaryData` as a
    :class:`BinaryData`, and their places.

    Open files are read from where they stand to their end; without ``read_files`` they raise :class:`FileToRead`.

    ``{"content": b"…", "mimeType": "image/png"}`` is one binary: the descriptor and its content together. The
    descriptor takes precedence over properties of the content.

    Raises :class:`~transports.errors.UsageError` for a file that cannot be read, a value that is neither JSON nor
    content, and nesting deeper than :data:`MAX_DEPTH`, the limit for answers, too.
    """
    found: list[Found] = []
    return _prepare(params, (), found, read_files), found


def set_path(params: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Set the value at a path of ``params``, in place.

    Missing objects on the path are created. In a list, a step is the index of an item, or of the next item to append.
    Raises :class:`~transports.errors.UsageError` if a step leads into a value that is neither an object nor a list.
    """
    inner: Any = params
    for count, step in enumerate(path, 1):
        at: Any = step
        if isinstance(inner, list) and _INDEX.fullmatch(step) and int(step) <= len(inner):
            at = int(step)
            inner += [{}] if at == len(inner) else []
        elif isinstance(inner, dict):
            inner.setdefault(step, {})
        else:
            conflict = f"{path[count - 2]!r} already has a value that is not an object"
            raise UsageError(f"{'.'.join(path)}: {conflict}; give the whole at once")
        if count == len(path):
            inner[at] = value
        inner = inner[at]


def _prepare(node: object, path: Place, found: list[Found], read_files: bool) -> object:
    match node:
        case None | bool() | int():
            return node
        case str():
            return _text(node, path)
        case float():
            if not math.isfinite(node):
                raise UsageError(f"params: {node} at {_dotted(path)} is not a JSON value")
            return node
        case dict() | list() | tuple() if len(path) >= MAX_DEPTH:
            raise UsageError(f"params are nested deeper than {MAX_DEPTH} levels at {_dotted(path[:6])}…")
        case dict():
            binary = _described(node, path, read_files)
            if binary is None:
                return {
                    _text(key, path): _prepare(value, (*path, key), found, read_files) for key, value in node.items()
                }
        case list() | tuple():
            return [_prepare(value, (*path, index), found, read_files) for index, value in enumerate(node)]
        case _:
            binary = _content(node, path, read_files)
            if binary is None:
                raise UsageError(
                    f"params: {type(node).__name__} at {_dotted(path)} cannot be sent; "
                    "use JSON values, bytes, pathlib.Path, a file that is open in binary mode, or BinaryData"
                )
    found.append(Found(path, binary))
    return binary


def _described(node: dict[object, object], path: Place, read_files: bool) -> BinaryData | None:
    """Return the content of a descriptor; ``None`` if ``node`` is not a descriptor."""
    mime_type, filename = node.get("mimeType"), node.get("filename")
    if not isinstance(mime_type, str) or (raw := _content(node.get("content"), path, read_files)) is None:
        return None
    inner: list[Found] = []
    extra = _prepare({key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS}, path, inner, read_files)
    if inner or not isinstance(extra, dict):
        raise UsageError(f"params: the binary at {_dotted(path)} holds another binary beside its content")
    filename = filename if isinstance(filename, str) else raw.filename
    return BinaryData(raw.content, mime_type, raw.size, filename, {**raw.extra, **extra})


def _content(node: object, path: Place, read_files: bool) -> BinaryData | None:
    match node:
        case BinaryData():
            return node
        case bytes() | bytearray() | memoryview():
            return BinaryData.from_bytes(node)
        case Path():
            return BinaryData.from_path(node)
        case None | str():
            return None
        case _:
            file = getattr(node, "file", node)  # of a temporary file, or of an upload
            if not isinstance(file, io.IOBase):
                return None
            if isinstance(file, io.TextIOBase):
                raise UsageError(f"params: {_dotted(path)} is a file in text mode; open it with open(path, 'rb')")
            if not read_files:
                raise FileToRead
            return _read_file(file, getattr(node, "name", None), path)


def _read_file(file: io.IOBase, name: object, path: Place) -> BinaryData:
    try:
        data = cast(BinaryIO, file).read()
        is_exhausted = not data and file.seekable() and file.tell() > 0
    except (OSError, ValueError) as error:  # ValueError: it is closed
        raise UsageError(f"params: the file at {_dotted(path)} cannot be read: {error}") from error
    if is_exhausted:
        raise UsageError(f"params: the file at {_dotted(path)} has been read to its end; call its seek(0) first")
    return BinaryData.from_bytes(data, filename=Path(name).name if isinstance(name, str) else None)


def _text(text: object, path: Place) -> str:
    if not isinstance(text, str):
        raise UsageError(f"params: the key {text!r} at {_dotted(path)} must be text")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"params: the text at {_dotted(path)} holds half of a surrogate pair") from None
    return text


def _dotted(path: Place) -> str:
    return ".".join(map(str, path)) or "the top"
