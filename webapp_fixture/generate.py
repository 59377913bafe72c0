"""Deterministic bytes, the same as ``static/generate.js`` makes, so that a test can know a file's digest beforehand.

One pseudo-random megabyte is made from the seed (xorshift32, little-endian words). A file is that megabyte over and
over, each copy with its index stamped into its first 8 bytes (little-endian), the last copy cut to the file's size.
"""

import hashlib
from collections.abc import Iterator
from functools import lru_cache

BLOCK_SIZE = 1 << 20


@lru_cache(maxsize=8)
def _pattern(seed: int) -> bytes:
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"seed must be an unsigned 32-bit number, not {seed}")
    state = (seed ^ 0x9E3779B9) or 1
    out = bytearray()
    for _ in range(BLOCK_SIZE // 4):
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        out += state.to_bytes(4, "little")
    return bytes(out)


def block(index: int, seed: int = 0) -> bytes:
    """Return the megabyte with an index (from 0) of every file made from ``seed``."""
    return index.to_bytes(8, "little") + _pattern(seed)[8:]


def generate(size: int, seed: int = 0, start: int = 0) -> Iterator[bytes]:
    """Yield bytes ``start`` to ``size`` of the file of that size, in pieces of at most 1 MiB."""
    while start < size:
        index, offset = divmod(start, BLOCK_SIZE)
        piece = block(index, seed)
        if offset or size - start < BLOCK_SIZE:
            piece = piece[offset : offset + size - start]
        yield piece
        start += len(piece)


def digest(size: int, seed: int = 0) -> str:
    """Return the SHA-256 of the file of that size, in hex."""
    sha256 = hashlib.sha256()
    for piece in generate(size, seed):
        sha256.update(piece)
    return sha256.hexdigest()
