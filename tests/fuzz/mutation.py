"""New inputs out of old ones: all that a fuzzer has which nothing guides, and a part where coverage guides it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .cases import MAX_BYTES

#: Texts that parsers treat in a way of their own.
WORDS: tuple[bytes, ...] = (
    *(
        b"null",
        b"true",
        b"-1",
        b"0",
        b"1e400",
        b"1e-400",
        b"-0.0",
        b"NaN",
        b"9007199254740993",
        b"9" * 400,
        b"9" * 4400,
    ),
    *(b'""', b"{}", b"[]", b'{"":', b"[[[[", b"]]]]", b'"\\ud800"', b'"\\u0000"', b'"\\', b"\\", b"/*"),
    *(b"\0", b"\n", b"\r\n", b"\t", b" " * 40, b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe"),
    *("\u202e\u200b\u0301\u2028İſ".encode(), "\U0001f4a9".encode(), b"../", b"%00", b"%", b"=", b"==", b"-_", b"+/"),
    *(b"data:;base64,", b"://", b"@", b"?", b"#", b";", b":", b",", b"'", b'"', b"<!--", b"-->", b"</", b"<![", b"&#"),
    *(b'"mimeType":"image/png"', b'"encoding":"base64"', b'"content":', b'"downloadUrl":', b'"size":', b'"type":'),
)


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes] = WORDS) -> bytes:
    """Return an input made of ``data``, pieces of ``others`` and ``words``, of at most :data:`~.cases.MAX_BYTES`."""
    new = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
        rng.choice(_CHANGES)(rng, new, others, words)
        del new[MAX_BYTES:]
    return bytes(new)


def _span(rng: random.Random, new: bytearray) -> tuple[int, int]:
    start = rng.randrange(len(new) + 1)
    return start, min(start + rng.choice((1, 1, 2, 4, 8, 16, 64, 256)), len(new))


def _put_bytes(rng: random.Random, new: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    start, end = _span(rng, new)
    new[start:end] = rng.randbytes(rng.randrange(1, 5))


def _flip(rng: random.Random, new: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    if new:
        new[rng.randrange(len(new))] ^= 1 << rng.randrange(8)


def _delete(rng: random.Random, new: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    start, end = _span(rng, new)
    del new[start:end]


def _repeat(rng: random.Random, new: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    """What takes more than linear time shows when a piece of the input stands there a thousand times."""
    start, end = _span(rng, new)
    new[end:end] = new[start:end] * rng.choice((1, 2, 3, 10, 100, 1000))


def _insert_word(rng: random.Random, new: bytearray, _: Sequence[bytes], words: Sequence[bytes]) -> None:
    start, end = _span(rng, new)
    new[start : rng.choice((start, end))] = rng.choice(words)


def _splice(rng: random.Random, new: bytearray, others: Sequence[bytes], _: Sequence[bytes]) -> None:
    other = bytearray(rng.choice(others)) if others else bytearray()
    start, end = _span(rng, other)
    begin, until = _span(rng, new)
    new[begin : rng.choice((begin, until))] = other[start : rng.choice((end, len(other)))]


def _nest(rng: random.Random, new: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    start, end = _span(rng, new)
    before, after = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'"', b'"'), (b"<", b">"), (b"(", b")")))
    times = rng.choice((1, 2, 60, 70, 130, 500))
    new[start:end] = before * times + new[start:end] + after * times


_CHANGES: tuple[Callable[[random.Random, bytearray, Sequence[bytes], Sequence[bytes]], None], ...] = (
    _put_bytes,
    _flip,
    _delete,
    _repeat,
    _insert_word,
    _splice,
    _nest,
)
