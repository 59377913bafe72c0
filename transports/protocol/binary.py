"""The BinaryData union, the common form of all binary results and parameters, and text that encodes bytes.

``BinaryData.content`` is one of

* ``bytes`` — content in memory,
* :class:`Encoded` — text of an answer that encodes bytes: base64 or UTF-8,
* :class:`Handle` — content that stayed on the far side, such as a page, for a transport to fetch,
* :class:`Download` — content behind a ``downloadUrl``,
* :class:`LocalFile` — a file on this machine, for parameters.

Declarations are not trusted: sizes are compared in bytes and base64 is decoded strictly (RFC 4648).
:mod:`transports.protocol._find_content` finds the content in an answer. It asks this module which text is base64
(:func:`is_base64`, :func:`sniff_base64`) or a ``data:`` URL (:func:`decode_data_url`).
"""

from __future__ import annotations

import binascii
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, unquote_to_bytes

import pybase64

from .._internal.arguments import validate_arguments
from .._internal.files import open_regular
from ..errors import BadEncoding, SizeMismatch, UsageError
from ._media import HEAD_BYTES, sniff

#: Characters decoded at a time (a multiple of four, to cut base64 there), and bytes of a file read at a time.
_CHUNK_CHARS = 4 << 20


@dataclass(frozen=True, slots=True)
class Encoded:
    """A ``memoryview`` is a long run of padded, standard base64 inside a received message; it is never copied."""

    text: str | memoryview = field(repr=False)
    encoding: Literal["base64", "utf-8"]

    def chunks(self) -> Iterator[bytes]:
        """Decode at most 4 MiB of text at a time. Raises :class:`~transports.errors.BadEncoding` for text that is not
        strictly valid, possibly after some bytes were yielded."""
        if isinstance(self.text, memoryview):
            yield from _decode_base64(self.text)
        elif self.encoding == "utf-8":
            for start in range(0, len(self.text), _CHUNK_CHARS):
                try:
                    yield self.text[start : start + _CHUNK_CHARS].encode()
                except UnicodeEncodeError as error:
                    raise BadEncoding("the text holds half of a surrogate pair and is not valid UTF-8") from error
        else:
            yield from _decode_base64(padded(self.text))


def _decode_base64(text: str | memoryview) -> Iterator[bytes]:
    altchars = b"-_" if _is_url_safe(text) else None
    for start in range(0, len(text), _CHUNK_CHARS):
        part = text[start : start + _CHUNK_CHARS]
        if part[-1:] in ("=", b"=") and start + _CHUNK_CHARS < len(text):
            raise BadEncoding(
                f"base64 padding stands in the middle of the text, before character {start + _CHUNK_CHARS}"
            )
        try:
            yield pybase64.b64decode(part, altchars=altchars, validate=True, canonical=True)
        except (binascii.Error, ValueError) as error:
            raise BadEncoding(
                f"the text is not strictly valid base64 ({error}) within characters {start}-{start + len(part)}; "
                'the app must send standard, padded base64, or declare the encoding "utf-8" of a text'
            ) from error


def _is_url_safe(text: str | memoryview) -> bool:
    """Return whether the text may be in the URL-safe alphabet; text that mixes both alphabets is in neither."""
    if isinstance(text, str):
        return "+" not in text and "/" not in text
    parts = (bytes(text[start : start + _CHUNK_CHARS]) for start in range(0, len(text), _CHUNK_CHARS))
    return not any(b"+" in part or b"/" in part for part in parts)


def padded(text: str) -> str:
    """Return base64 text with missing padding added, if only one padding is possible."""
    rest = len(text) % 4
    # One character more than whole groups holds no whole byte.
    if rest < 2 or "=" in text:
        return text
    return text + "=" * (4 - rest)


#: The form of base64, standard or URL-safe, in one line.
BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/_-]")
_DATA_URL = re.compile(r"[\x00-\x20]*data:[^,]*?(;\s*base64\s*)?,", re.IGNORECASE)


def is_base64(text: str) -> bool:
    """Return whether all of ``text`` has the form of base64, with or without padding. Nothing is decoded."""
    return len(padded(text)) % 4 == 0 and BASE64.fullmatch(text) is not None


def sniff_base64(text: str) -> str | None:
    """Return the MIME type by the signature of base64 text, even if the rest is broken; ``None`` without one."""
    return sniff(base64_head(text))


def base64_head(text: str) -> bytes:
    """Return the first 4,098 bytes, or fewer if the text ends or is broken before. Missing bits at the end are zero."""
    # Four characters are three bytes: 5,464 characters are 4,098 bytes.
    valid_start = _NOT_BASE64.split(text[:5464], maxsplit=1)[0]
    # The character "A" stands for six zero bits.
    missing = "A" * (-len(valid_start) % 4)
    try:
        return b"".join(Encoded(valid_start + missing, "base64").chunks())
    except BadEncoding:
        return b""


def decode_data_url(text: str) -> Encoded | bytes | None:
    """Return ``None`` for text that is no such URL (RFC 2397). Base64 is not decoded yet, but spaces and line ends are
    removed from it, as in a browser (WHATWG URL and Fetch)."""
    # A head is short; without the cut, each long text would be searched for a comma.
    head = _DATA_URL.match(text[:1024])
    if head is None:
        return None

    body = text[head.end() :]
    is_base64_body = bool(head[1])
    if is_base64_body:
        base64 = unquote(body)
        for space in "\t\n\f\r ":
            base64 = base64.replace(space, "")
        return Encoded(base64, "base64")
    try:
        return unquote_to_bytes(body)
    except UnicodeEncodeError as error:
        raise BadEncoding("the data: URL holds half of a surrogate pair and is not valid UTF-8") from error


@dataclass(frozen=True, slots=True)
class Handle:
    """Content that stayed on the far side. ``id`` has a meaning only for the transport that made the handle. ``size``
    is in bytes, measured by the far side."""

    id: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """Marker for content that the far side could not read, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Download:
    """Content behind a ``downloadUrl``. ``expires_at`` is in Unix milliseconds. ``headers`` and ``query`` are
    credentials: they are sent to the URL's own origin only and never shown."""

    url: str
    expires_at: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this machine, for parameters."""

    path: Path


Content: TypeAlias = bytes | Encoded | Handle | Download | LocalFile


@dataclass(frozen=True, slots=True)
class BinaryData:
    """Content with the fields of its descriptor.

    ``size`` (bytes), ``mime_type`` and ``filename`` are declarations, not verified yet. ``extra`` has the other fields
    of the descriptor.
    """

    content: Content
    mime_type: str | None = None
    size: int | None = None
    filename: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    @validate_arguments
    def from_path(cls, path: str | Path, *, mime_type: str | None = None) -> BinaryData:
        """Return a file as a parameter. Its content is read when the call is sent, or by the browser.

        Without ``mime_type`` the type is that of the file's signature, if known. Raises
        :class:`~transports.errors.UsageError` if the file cannot be read or is not a regular file.
        """
        path = Path(path)
        try:
            # Only a regular file: opening a pipe would wait, and reading it here would empty it.
            with open_regular(path) as file:
                head = file.read(HEAD_BYTES)
                size = os.fstat(file.fileno()).st_size
        except (OSError, ValueError) as error:
            # ValueError: there is a NUL in the name.
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{str(path)!r} cannot be read ({reason}); correct the path") from error
        return cls(LocalFile(path), mime_type or sniff(head), size, name_of_file(path))

    @classmethod
    @validate_arguments
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, *, mime_type: str | None = None, filename: str | None = None
    ) -> BinaryData:
        """Return bytes as a parameter. Without ``mime_type`` the type is that of their signature, if known."""
        data = bytes(data)
        return cls(data, mime_type or sniff(data[:HEAD_BYTES]), len(data), filename)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of content that is in memory or in a local file, decoded strictly.

        The number of bytes is **not** compared with ``size``. Raises :class:`~transports.errors.BadEncoding`,
        ``OSError`` for a local file that cannot be read, and ``TypeError`` for content that a transport or a download
        has to fetch.
        """
        match self.content:
            case bytes() as data:
                yield data
            case Encoded() as encoded:
                yield from encoded.chunks()
            case LocalFile(path):
                with open_regular(path) as file:
                    while chunk := file.read(_CHUNK_CHARS):
                        yield chunk
            case _:
                raise TypeError(f"{type(self.content).__name__} content has to be fetched by a transport or a download")

    def read(self) -> bytes:
        """Return the bytes in one piece, compared with ``size``.

        Raises :class:`~transports.errors.SizeMismatch`, and the errors of :meth:`chunks`.
        """
        data = b"".join(self.chunks())
        verify_size(self.size, len(data))
        return data


def verify_size(declared: int | None, actual: int) -> None:
    """Raise :class:`~transports.errors.SizeMismatch` if the sizes differ (docs/protocol.md 9.9)."""
    if declared is not None and declared != actual:
        raise SizeMismatch(
            f"the app declared {declared} bytes and {actual} arrived; nothing was stored",
            details={"declared": declared, "actual": actual},
        )


def name_of_file(path: str | Path) -> str:
    """Return the name of a file as text: bytes of it that are not UTF-8 become U+FFFD."""
    return os.fsencode(Path(path).name).decode(errors="replace")
