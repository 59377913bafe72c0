"""The BinaryData union: the one shape that every binary result takes, however it travelled. No I/O.

``BinaryData.content`` is one of

* ``bytes`` — in hand already,
* :class:`Encoded` — text of an answer: base64, or utf-8,
* :class:`Handle` — still on the far side (in the page); a transport fetches it,
* :class:`Download` — behind a ``downloadUrl``,
* :class:`LocalFile` — a file of ours, on its way in.

Nothing here trusts a declaration: sizes are compared in bytes, base64 is decoded strictly. Which parts of an answer
are binaries is decided in :mod:`transports.binary.detect`.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pybase64

from ..errors import BadEncoding, SizeMismatch, UsageError
from .media import sniff

__all__ = ["BinaryData", "Broken", "Content", "Download", "Encoded", "Handle", "LocalFile", "verify_size"]


_SLICE = 4 << 20  # characters of base64 decoded at a time; a multiple of four


@dataclass(frozen=True, slots=True)
class Encoded:
    """Content as text. ``encoding`` is how the text becomes bytes. A ``memoryview`` is a long run of padded, standard
    base64 in a message that was received: it is never copied."""

    text: str | memoryview = field(repr=False)
    encoding: Literal["base64", "utf-8"]

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a few megabytes at a time. Raises :class:`~transports.errors.BadEncoding`."""
        if isinstance(self.text, memoryview):
            yield from _decoded(self.text, None)
        elif self.encoding == "utf-8":
            for start in range(0, len(self.text), _SLICE):
                try:
                    yield self.text[start : start + _SLICE].encode()
                except UnicodeEncodeError as error:
                    raise BadEncoding("the text holds half of a surrogate pair and is no valid UTF-8") from error
        else:
            yield from _decoded(padded(self.text), b"-_" if _is_url_safe(self.text) else None)


def _decoded(text: str | memoryview, altchars: bytes | None) -> Iterator[bytes]:
    for start in range(0, len(text), _SLICE):
        part = text[start : start + _SLICE]
        if part[-1:] in ("=", b"=") and start + _SLICE < len(text):
            raise BadEncoding(f"base64 padding stands in the middle of the text, before character {start + _SLICE}")
        try:
            yield pybase64.b64decode(part, altchars=altchars, validate=True, canonical=True)
        except (binascii.Error, ValueError) as error:
            raise BadEncoding(
                f"the text is not strictly valid base64 ({error}) within characters {start}-{start + len(part)}; "
                "the app must send standard, padded base64"
            ) from error


def _is_url_safe(text: str) -> bool:
    """Whether the text can be read in the URL-safe alphabet: where it uses both, neither reading would be right."""
    return "+" not in text and "/" not in text


def padded(text: str) -> str:
    """Missing padding is added where only one reading is possible."""
    rest = len(text) % 4
    return text if rest < 2 or "=" in text else text + "=" * (4 - rest)


@dataclass(frozen=True, slots=True)
class Handle:
    """Content that stayed on the far side. ``id`` means something to the transport that made it only."""

    id: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """Stands where the far side had content that it could not read; ``reason`` says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Download:
    """A ``downloadUrl``. ``expires_at`` is Unix milliseconds; ``headers`` and ``query`` are credentials, sent to the
    URL's own origin only and never shown."""

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
    """Content and what is known of it. ``size`` in bytes and ``mime_type`` are declarations, not yet verified;
    ``extra`` are the other fields of the app's descriptor."""

    content: Content
    mime_type: str | None = None
    size: int | None = None
    filename: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def from_path(cls, path: str | Path, *, mime_type: str | None = None) -> BinaryData:
        """A file as a parameter. Raises :class:`~transports.errors.UsageError` if it cannot be read."""
        path = Path(path)
        try:
            if path.exists() and not path.is_file():  # opening a pipe would wait, and reading it here would empty it
                raise UsageError(f"cannot read {path}: it is not a regular file")
            with path.open("rb") as file:
                head = file.read(4096)
                size = os.fstat(file.fileno()).st_size
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot read {str(path)!r}: {reason}") from error
        return cls(LocalFile(path), mime_type or sniff(head), size, path.name)

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, *, mime_type: str | None = None, filename: str | None = None
    ) -> BinaryData:
        """Bytes as a parameter."""
        data = bytes(data)
        return cls(data, mime_type or sniff(data[:4096]), len(data), filename)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of content that needs no I/O but a local file's, decoded strictly and **not** yet compared with
        ``size``. Raises :class:`~transports.errors.BadEncoding`."""
        match self.content:
            case bytes() as data:
                yield data
            case Encoded() as encoded:
                yield from encoded.chunks()
            case LocalFile(path):
                with path.open("rb") as file:
                    while chunk := file.read(_SLICE):
                        yield chunk
            case _:
                raise TypeError(f"{type(self.content).__name__} content is fetched by a transport or a download")

    def read(self) -> bytes:
        """:meth:`chunks` in one piece, verified. Raises also :class:`~transports.errors.SizeMismatch`."""
        data = b"".join(self.chunks())
        verify_size(self.size, len(data))
        return data


def verify_size(declared: int | None, actual: int) -> None:
    """Raises :class:`~transports.errors.SizeMismatch` if a declared size in bytes is not the real one (seed 001)."""
    if declared is not None and declared != actual:
        raise SizeMismatch(
            f"the app declared {declared} bytes and {actual} arrived; nothing of it was stored",
            details={"declared": declared, "actual": actual},
        )
