"""Decoding of compressed bodies while they arrive, with bounds on what comes out. No I/O.

:func:`accept_encoding` names the codings that can be decoded, :class:`BodyDecoder` decodes one body. ``br`` and
``zstd`` need libraries (extra ``compression``), which are imported with the first body or request that may use them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Protocol

#: Codings (RFC 9110 §8.4.1, RFC 7932, RFC 8878) with the module that decodes each, the preferred first.
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_MODULES = {"zstd": _ZSTD, "br": "brotli", "gzip": "zlib", "deflate": "zlib"}
_ALIASES = {"x-gzip": "gzip"}
#: Codings that IANA lists. Each changes the bytes; any other name may be a mistake of the server.
_LISTED = {*_MODULES, *_ALIASES, "aes128gcm", "compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one body, sizes in bytes."""

    #: A body may come out at most this many times larger than it arrived, but the first megabyte may be of any ratio.
    ratio: int = 200
    free: int = 1 << 20
    #: What comes out in one step. So little is in memory at a time, and one step takes a millisecond at most.
    step: int = 256 << 10
    #: Pieces of the body that are counted, as arrived, before what comes out of them.
    piece: int = 16 << 10
    #: Streams that may be of any size; further ones must have 1 KB on average, since each takes time to begin.
    streams: int = 100
    stream: int = 1 << 10
    #: Largest window of zstd, as a power of two: 8 MB (RFC 9659).
    window: int = 23


LIMITS = Limits()


class BadBody(ValueError):
    """Raised for a body that cannot be decoded, or grows too much. Its text is the reason."""


class _Stream(Protocol):
    """Decoder of one stream, such as one member of a gzip file."""

    @property
    def finished(self) -> bool:
        """True after the end of the stream."""

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        """Return some ``LIMITS.step`` bytes at most, and the rest of ``data``, which is not read yet."""


@cache
def _available(coding: str) -> bool:
    try:
        return find_spec(_MODULES[coding]) is not None
    except ModuleNotFoundError:  # of the package around the module
        return False


def accept_encoding() -> str:
    """Return the value of ``Accept-Encoding`` with the codings that can be decoded here."""
    return ", ".join(filter(_available, _MODULES))


def can_decode(coding: str) -> bool:
    """Return whether a body of this coding, from a ``Content-Encoding`` in lower case, can be decoded here."""
    coding = _ALIASES.get(coding, coding)
    return coding in _MODULES and _available(coding)


def is_unknown(coding: str) -> bool:
    """Return whether a ``Content-Encoding`` in lower case names no coding that exists."""
    return _LISTED.isdisjoint(part.strip() for part in coding.split(","))


class BodyDecoder:
    """Decoder of one body.

    :meth:`decode` yields what comes out of each piece of the body. ``finished`` is true if the body may end here: its
    last stream, whose checksum was right, has ended."""

    def __init__(self, coding: str) -> None:
        #: The name of the coding.
        self.coding = _ALIASES.get(coding, coding)
        self._stream: _Stream | None = None
        self._received = self._produced = self._streams = 0

    @property
    def finished(self) -> bool:
        """True if the body may end here."""
        return self._stream is not None and self._stream.finished

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what comes out of the next piece of the body, in parts of about 256 KB.

        Raises :class:`BadBody` for content that is not of this coding, and for content that comes out more than
        ``LIMITS.ratio`` times larger than it arrived."""
        for start in range(0, len(data), LIMITS.piece):
            part = data[start : start + LIMITS.piece]
            self._received += len(part)
            yield from self._decoded(part)

    def _decoded(self, data: bytes) -> Iterator[bytes]:
        while True:
            if self._stream is None or (self._stream.finished and data):
                self._stream = self._next_stream(data)
            try:
                out, data = self._stream.decode(data)
            except Exception as error:  # each library has an error class of its own
                raise BadBody("cannot be decoded") from error
            if not out and not data:
                return
            self._produced += len(out)
            if self._produced > max(LIMITS.free, LIMITS.ratio * self._received):
                raise BadBody(f"comes out more than {LIMITS.ratio} times larger than it arrived")
            if out:
                yield out

    def _next_stream(self, head: bytes) -> _Stream:
        if self._stream is not None and self.coding in ("br", "deflate"):  # these have one stream alone
            raise BadBody("goes on after its end")
        self._streams += 1
        if self._streams > LIMITS.streams + self._received // LIMITS.stream:
            raise BadBody("is in too many parts")
        return _STREAMS[self.coding](head)


class _Zlib:
    def __init__(self, bits: int) -> None:
        self._decoder = zlib.decompressobj(bits)

    @property
    def finished(self) -> bool:
        return self._decoder.eof

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self.finished:
            return b"", data
        out = self._decoder.decompress(data, LIMITS.step)
        return out, self._decoder.unused_data if self.finished else self._decoder.unconsumed_tail


def _gzip(_: bytes) -> _Stream:
    return _Zlib(16 + zlib.MAX_WBITS)


def _deflate(head: bytes) -> _Stream:
    """Return the decoder of ``deflate``: with the header of zlib, or without one, as some servers send it."""
    return _Zlib(zlib.MAX_WBITS if head[0] & 0x0F == 8 else -zlib.MAX_WBITS)


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._decoder = brotli.Decompressor()

    @property
    def finished(self) -> bool:
        return bool(self._decoder.is_finished())

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self.finished and not data:
            return b"", b""
        if self._decoder.can_accept_more_data():  # also of none: what comes out may wait inside
            return self._process(data), b""
        return self._process(b""), data

    def _process(self, data: bytes) -> bytes:
        out: bytes = self._decoder.process(data, output_buffer_limit=LIMITS.step)
        return out


class _Zstd:
    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        self._decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: LIMITS.window})

    @property
    def finished(self) -> bool:
        return self._decoder.eof

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self.finished or (not data and self._decoder.needs_input):
            return b"", data
        out = self._decoder.decompress(data, LIMITS.step)  # keeps what it has not read
        return out, self._decoder.unused_data if self.finished else b""


_STREAMS: dict[str, Callable[[bytes], _Stream]] = {
    "gzip": _gzip,
    "deflate": _deflate,
    "br": lambda _: _Brotli(),
    "zstd": lambda _: _Zstd(),
}
