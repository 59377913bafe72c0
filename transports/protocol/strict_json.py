"""Strict JSON (docs/protocol.md 1.6): what is not exact is refused, never rounded or guessed. No I/O."""

from __future__ import annotations

import gc
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TypeAlias

import msgspec

from ..errors import ProtocolError, UsageError

__all__ = [
    "PARSED_ON_LOOP",
    "JSONValue",
    "decode_given",
    "decode_json",
    "encode_json",
    "inner_values",
    "is_deeper",
    "is_larger",
    "json_lines",
    "without_collection",
]

#: Longest line of JSON Lines, in bytes.
_MAX_LINE = 64 << 20

#: A value as JSON has it.
JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"

#: Bytes of a message up to which it is parsed on the event loop: a thread would be reached later. More is parsed in a
#: thread: the worst 256 KB held the loop for 51 ms.
PARSED_ON_LOOP = 128 * 1024
_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
_CONTAINERS = (dict, list)
#: Length of JSON above which the garbage collector pauses meanwhile.
_PAUSE_ABOVE = 1 << 16


def decode_json(text: str | bytes) -> object:
    """Parse strict JSON: no NaN, no overflowing numbers, no lone surrogates, bounded nesting.

    Raises :class:`~transports.errors.ProtocolError`. The garbage collector of the whole process pauses while more than
    64 KiB is parsed: none of the new values is garbage, and looking for some takes three quarters of the time.
    """
    try:
        return _DECODE(text) if len(text) <= _PAUSE_ABOVE else _decode_long(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"the app sent JSON that cannot be read: {error}") from error


def decode_given(text: str | bytes, where: str, *, fix: str = "correct it") -> object:
    """Parse strict JSON that the user gave, as :func:`decode_json` does. Raises
    :class:`~transports.errors.UsageError`, which names ``where`` it stands, the reason and the ``fix``."""
    try:
        return _DECODE(text) if len(text) <= _PAUSE_ABOVE else _decode_long(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{where} is not JSON ({error}); {fix}") from error


def json_lines(
    file: IO[bytes], where: str, kind: str, refuse: Callable[[str], object] | None = None
) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield the number, the length in bytes and the object of each line of JSON Lines, except empty ones.

    For a line that is no object, or is over 64 MiB, :class:`~transports.errors.UsageError` names ``where`` it stands
    and the ``kind`` of object that it should be. With ``refuse`` it is not raised: that is told of the line instead.
    The one that is too long is the last."""
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        text = line.removeprefix(BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        try:
            document = _object_of(text, f"{where}, line {number}".removeprefix(", "), kind)
        except UsageError as error:
            if refuse is None:
                raise
            refuse(error.message)
            if len(line) > _MAX_LINE:
                return
        else:
            yield number, len(text), document


def _object_of(line: bytes, place: str, kind: str) -> dict[str, object]:
    if len(line) > _MAX_LINE:
        raise UsageError(f"{place} is longer than {_MAX_LINE >> 20} MiB; give files as files")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{place} is not UTF-8 text ({error.reason} at byte {error.start}); correct it") from error
    document = decode_given(text, place)
    if not isinstance(document, dict):
        raise UsageError(f"{place} is no JSON object {kind}")
    return document


def _decode_long(text: str | bytes) -> object:
    with without_collection():
        return _DECODE(text)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the garbage collector of the whole process while many values are made that stay."""
    pausing = gc.isenabled()
    if pausing:
        gc.disable()
    try:
        yield
    finally:
        if pausing:
            gc.enable()


def inner_values(nodes: Iterable[object]) -> list[object]:
    """Return the objects and arrays directly inside ``nodes``: the next level of a tree, for a search that does not
    recurse."""
    return [
        inner
        for outer in nodes
        if isinstance(outer, _CONTAINERS)
        for inner in (outer.values() if isinstance(outer, dict) else outer)
        if isinstance(inner, _CONTAINERS)
    ]


def is_larger(value: object, limit: int) -> bool:
    """Return whether a JSON value has more than ``limit`` values in it, so that looking at each takes a while; 64
    characters of a text count as one. It looks at no more than that many."""
    waiting = [value]
    count = 0
    while waiting:
        node = waiting.pop()
        if isinstance(node, _CONTAINERS):
            count += len(node)
            if count > limit:
                return True
            waiting += node.values() if isinstance(node, dict) else node
        elif isinstance(node, str):
            count += len(node) >> 6
    return count > limit


def is_deeper(value: object, levels: int) -> bool:
    """Return whether objects and arrays of a JSON value stand in each other on more than ``levels`` levels."""
    level = inner_values([[value]])
    for _ in range(levels):
        if not level:
            return False
        level = inner_values(level)
    return bool(level)


def encode_json(value: object) -> bytes:
    """Return JSON as UTF-8 bytes, compact. NaN and infinity become null, as in JavaScript. Raises :class:`TypeError`
    or :class:`ValueError` for values that JSON does not have."""
    return _ENCODE(value)
