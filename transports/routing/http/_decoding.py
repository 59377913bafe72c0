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
    """Limits of what a compressed body may become."""

    #: A body may come out at most this many times larger than it arrived.
    ratio: int = 200
    #: Bytes that may come out at any ratio.
    free_bytes: int = 1 << 20
    #: Bytes that come out in one step: it takes a millisecond at most, and little is in memory at a time.
    step_bytes: int = 256 << 10
    #: Bytes of the body that are counted as arrived before what comes out of them.
    piece_bytes: int = 16 << 10
    #: Streams that may be of any size; more streams must have 1 KB on average, since each takes time to begin.
    free_streams: int = 100
    bytes_per_stream: int = 1 << 10
    #: Largest window of zstd, as a power of two: 8 MB (RFC 9659).
    zstd_window_log: int = 23


LIMITS = Limits()


class BadBody(ValueError):
    """Raised for a body that cannot be decoded, or grows too much. Its text is the reason."""


class _Stream(Protocol):
    @property
    def finished(self) -> bool:
        """True after the end of the stream."""

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        """Return about ``LIMITS.step_bytes`` at most, and the rest of ``data``, which is not read yet."""


@cache
def _is_installed(coding: str) -> bool:
    try:
        return find_spec(_MODULES[coding]) is not None
    except ModuleNotFoundError:
        # The package around the module is not installed.
        return False


def accept_encoding() -> str:
    return ", ".join(filter(_is_installed, _MODULES))


def can_decode(coding: str) -> bool:
    coding = _ALIASES.get(coding, coding)
    return coding in _MODULES and _is_installed(coding)


def is_unknown(coding: str) -> bool:
    """Return whether a ``Content-Encoding`` in lower case names no coding that exists."""
    return _LISTED.isdisjoint(part.strip() for part in coding.split(","))


class BodyDecoder:
    """Decoder of one body in the coding ``coding``, which may consist of several streams."""

    def __init__(self, coding: str) -> None:
        self.coding = _ALIASES.get(coding, coding)
        self._stream: _Stream | None = None
        self._received = 0
        self._produced = 0
        self._streams = 0

    @property
    def finished(self) -> bool:
        """True if the body may end here: its last stream, whose checksum was right, has ended."""
        return self._stream is not None and self._stream.finished

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes of a body, and yield parts of about 256 KB.

        Raises :class:`BadBody` for content that is not of this coding, and for content that comes out more than
        ``LIMITS.ratio`` times larger than it arrived."""
        for start in range(0, len(data), LIMITS.piece_bytes):
            piece = data[start : start + LIMITS.piece_bytes]
            self._received += len(piece)
            yield from self._decode_piece(piece)

    def _decode_piece(self, data: bytes) -> Iterator[bytes]:
        """Decode a piece, which may end one stream and begin others."""
        while True:
            if self._stream is None or (self._stream.finished and data):
                self._stream = self._next_stream(data)
            try:
                decoded, data = self._stream.decode(data)
            except Exception as error:
                # Each library has its own error class.
                raise BadBody("cannot be decoded") from error
            if not decoded and not data:
                return

            self._produced += len(decoded)
            if self._produced > max(LIMITS.free_bytes, LIMITS.ratio * self._received):
                raise BadBody(f"comes out more than {LIMITS.ratio} times larger than it arrived")
            if decoded:
                yield decoded

    def _next_stream(self, head: bytes) -> _Stream:
        is_single = self.coding in ("br", "deflate")
        if is_single and self._stream is not None:
            raise BadBody("goes on after its end")
        self._streams += 1
        if self._streams > LIMITS.free_streams + self._received // LIMITS.bytes_per_stream:
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
        decoded = self._decoder.decompress(data, LIMITS.step_bytes)
        if self.finished:
            return decoded, self._decoder.unused_data
        return decoded, self._decoder.unconsumed_tail


def _gzip(_: bytes) -> _Stream:
    # 16 stands for the header and trailer of gzip (zlib.decompressobj).
    return _Zlib(16 + zlib.MAX_WBITS)


def _deflate(head: bytes) -> _Stream:
    """Return the decoder of ``deflate``: with the header of zlib, or without one, as some servers send it."""
    # The header begins with the method of compression, which is always 8 (RFC 1950); negative bits mean no header.
    has_header = head[0] & 0x0F == 8
    return _Zlib(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)


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
        rest = b""
        if not self._decoder.can_accept_more_data():
            # Decoded bytes wait inside the decoder, and must come out before it takes more.
            data, rest = b"", data
        decoded: bytes = self._decoder.process(data, output_buffer_limit=LIMITS.step_bytes)
        return decoded, rest


class _Zstd:
    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: LIMITS.zstd_window_log}
        self._decoder = zstd.ZstdDecompressor(options=options)

    @property
    def finished(self) -> bool:
        return self._decoder.eof

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self.finished or (not data and self._decoder.needs_input):
            return b"", data
        # The decoder itself keeps what it has not read, so the rest is empty until the stream ends.
        decoded = self._decoder.decompress(data, LIMITS.step_bytes)
        return decoded, self._decoder.unused_data if self.finished else b""


_STREAMS: dict[str, Callable[[bytes], _Stream]] = {
    "gzip": _gzip,
    "deflate": _deflate,
    "br": lambda _: _Brotli(),
    "zstd": lambda _: _Zstd(),
}
