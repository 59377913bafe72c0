"""Strict JSON parser and encoder (docs/protocol.md 1.6): inexact input is refused, never rounded or guessed."""

from __future__ import annotations

import asyncio
import gc
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import msgspec

from ..errors import ProtocolError, UsageError

P = ParamSpec("P")
T = TypeVar("T")
Text = TypeVar("Text", bytes, str, str | bytes)

#: Longest line of JSON Lines, in bytes.
_MAX_LINE = 64 << 20

#: Largest integer that all readers of JSON keep exactly (RFC 8259 6): the limit of a size, or of a place in a file.
MAX_INTEGER = (1 << 53) - 1
#: JSON value.
JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"

#: Bytes of a message up to which it is parsed on the event loop, where switching to a thread would take longer. Larger
#: messages are parsed in a thread: the worst 256 KB held the loop for 51 ms.
PARSED_ON_LOOP = 128 * 1024
#: Maximum values and names in one incoming JSON text. The parser holds the GIL: so many took 0.04 to 0.17 s (all names
#: different), and 40 MB of them stopped all sessions of the process for several seconds.
MAX_VALUES = 1_000_000
#: The same for an app's list of capabilities: 100,000 entries like those of the reference app (docs/faults.md 22).
MAX_LISTED = 4_000_000
#: The same for a long text that is parsed on the event loop: 17 ms.
MAX_ON_LOOP = 100_000
#: The same for one request to a server of this kit: it is parsed and validated in the event loop shared by all users.
MAX_REQUESTED = 50_000
#: Most levels of objects and arrays in one foreign JSON text. Without a limit, whether a parser fails would depend on
#: the version of Python and on the depth of the stack. Clients that use pydantic read 200 levels.
MAX_JSON_DEPTH = 500
#: Bytes other than the marks ``,:[{``, of which each value and each name has about one, and the bytes counted at once.
_ALL_BUT_MARKS = bytes(sorted({*range(256)} - {*b",:[{"}))
_PIECE_BYTES = 16 * 1024
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode
_CONTAINERS = (dict, list)
#: Brackets as steps of 1 and, in two's complement, -1; and the bytes that are neither brackets nor quotation marks.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_ALL_BUT_STEPS = bytes(set(range(256)) - set(b'[{]}"'))


class OverLimit(ValueError):
    """Raised for foreign data that is too large, for the ``reason``. ``limit`` is the number of the limit, if any."""

    def __init__(self, reason: str, limit: int | None = None) -> None:
        super().__init__(f"it {reason}")
        self.reason = reason
        self.limit = limit


@contextmanager
def parser_limits(text: str | bytes = b"") -> Iterator[None]:
    """Raise :class:`ValueError` if ``text`` is nested too deeply, and where a parser runs out of stack or memory."""
    _check_levels(text, MAX_JSON_DEPTH)
    try:
        yield
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except MemoryError as error:
        raise OverLimit("does not fit into memory") from error


def decode_json(text: str | bytes, *, max_values: int = MAX_VALUES, max_levels: int = MAX_JSON_DEPTH) -> object:
    """Parse strict JSON: no NaN, no overflowing numbers, no lone surrogates, bounded nesting.

    Raises :class:`~transports.errors.ProtocolError`, with the code ``TOO_LARGE`` for more than ``max_values`` values
    and names. The garbage collector pauses while more than 64 KiB is parsed, since it would take three quarters of the
    time and find no garbage among the new values."""
    try:
        return _decode(text, max_values, max_levels)
    except OverLimit as error:
        message = f"the app sent JSON that {error.reason}; ask it for less, or for a file"
        raise ProtocolError(message, code="TOO_LARGE", details={"limit": error.limit}) from error
    except ValueError as error:
        raise ProtocolError(f"the app sent JSON that cannot be read: {_refusal(error, text)}") from error


def decode_user_json(text: str | bytes, where: str, *, fix: str = "correct it") -> object:
    """Raises :class:`~transports.errors.UsageError`, which names ``where`` the JSON is, the reason and the ``fix``."""
    try:
        return _decode(text, MAX_VALUES, MAX_JSON_DEPTH)
    except OverLimit as error:
        raise UsageError(f"{where} {error.reason}; give less at once", code="TOO_LARGE") from error
    except ValueError as error:
        raise UsageError(f"{where} is not JSON ({_refusal(error, text)}); {fix}") from error


def _decode(text: str | bytes, max_values: int, max_levels: int) -> object:
    # For a short text, pausing the garbage collector and counting values would cost more than they save.
    long_text = 64 * 1024
    if len(text) > long_text:
        if has_more_values(text, max_values):
            raise OverLimit(f"has more than {max_values:,} values and names, which is the limit", max_values)
        _check_levels(text, max_levels)
        with parser_limits(), without_collection():
            return _DECODE(text)

    # A text with fewer characters cannot be nested deeper.
    if len(text) > max_levels:
        _check_levels(text, max_levels)
    # Without parser_limits(): a context manager would cost seven more calls for a small message.
    try:
        return _DECODE(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


#: A pair of surrogates, half of one, or any other escape.
_ESCAPE = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..|\\.", re.DOTALL)


def _refusal(error: ValueError, text: str | bytes) -> str:
    """Return why strict JSON was refused. The parser calls half of a surrogate pair the end of its input."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if without_half_pairs(data) != data:
        return "a text in it has half of a surrogate pair, as after a cut in the middle of an emoji"
    return str(error)


def without_half_pairs(text: bytes) -> bytes:
    """Put U+FFFD in the place of each half of a pair of surrogates. JavaScript and Python write a half for a text that
    was cut in the middle of a character; strict parsers refuse it."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text

    def replace_half(escape: re.Match[bytes]) -> bytes:
        is_half = len(escape[0]) == len(rb"\ud800")
        return rb"\ufffd" if is_half else escape[0]

    return _ESCAPE.sub(replace_half, text)


def _check_levels(text: str | bytes, levels: int) -> None:
    if has_more_levels(text, levels):
        raise ValueError(f"it is nested more than {levels} levels deep, which is the limit")


def has_more_levels(text: str | bytes, limit: int) -> bool:
    """Nothing is parsed. JSON that breaks off counts as deep as it begins."""
    if len(text) <= limit:
        return False
    data = text.encode(errors="replace") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") <= limit:
        return False

    # Without escapes, each quotation mark begins or ends a text.
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Remove empty pairs of quotation marks: what is inside a text stays inside a text.
    steps = data.translate(_STEPS, _ALL_BUT_STEPS).replace(b'""', b"")
    if b'"' in steps:
        # Every second part is outside texts.
        steps = b"".join(steps.split(b'"')[::2])

    # Remove the innermost brackets a few times: few texts are nested deeper, and this is much faster than counting.
    level = 0
    while level < min(limit, 4):
        if steps.count(b"\x01") <= limit - level:
            return False
        steps = steps.replace(b"\x01\xff", b"")
        level += 1

    for start in range(0, len(steps), _PIECE_BYTES):
        levels = [*accumulate(memoryview(steps[start : start + _PIECE_BYTES]).cast("b"), initial=level)]
        if max(levels) > limit:
            return True
        level = levels[-1]
    return False


def has_more_values(text: str | bytes, limit: int) -> bool:
    """Count commas, colons and opening brackets outside texts, without parsing. It takes a few milliseconds for a
    megabyte and never holds the GIL for long."""
    if len(text) <= limit:
        return False

    # First an upper bound, which includes marks in texts: it decides most cases, and is fast.
    upper_bounds = accumulate(map(_count_marks, _split_into_pieces(text)))
    if not any(bound > limit for bound in upper_bounds):
        return False

    counter = ValueCounter()
    return any(counter.add(piece) > limit for piece in _split_into_pieces(text))


class ValueCounter:
    """Counter of the values and names of JSON that comes in pieces, by the rules of :func:`has_more_values`."""

    def __init__(self) -> None:
        self.count = 0
        self._inside_text = False
        # The first half of an escape, held back until the next piece.
        self._held = b""

    def add(self, piece: bytes) -> int:
        piece = self._held + piece
        self._held = b""
        backslashes_at_end = len(piece) - len(piece.rstrip(b"\\"))
        if backslashes_at_end % 2:
            # The piece ends within an escape.
            self._held = piece[-1:]

        # Without escapes, each quotation mark begins or ends a text.
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        # Every second part is outside texts.
        first_outside = 1 if self._inside_text else 0
        self.count += _count_marks(b"".join(parts[first_outside::2]))
        has_odd_quotation_marks = len(parts) % 2 == 0
        self._inside_text ^= has_odd_quotation_marks
        return self.count


def _count_marks(data: bytes) -> int:
    return len(data.translate(None, _ALL_BUT_MARKS))


def _split_into_pieces(text: str | bytes) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE_BYTES):
        piece = text[start : start + _PIECE_BYTES]
        yield piece.encode(errors="replace") if isinstance(piece, str) else piece


def json_lines(
    file: IO[bytes], where: str, kind: str, refuse: Callable[[int, str], object] | None = None
) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield the number, the length in bytes and the object of each line, except empty lines.

    A line that is not an object, or is over 64 MiB, raises :class:`~transports.errors.UsageError`, which names
    ``where`` the line is and the expected ``kind`` of object. ``refuse`` gets the number of the line and the fault
    instead. Reading ends at a line that is too long."""
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        text = line.removeprefix(BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        # ``where`` may be empty.
        place = f"{where}, line {number}".removeprefix(", ")
        try:
            document = _parse_object(text, place, kind)
        except UsageError as error:
            if refuse is None:
                raise
            refuse(number, error.message.removeprefix(place))
            if len(line) > _MAX_LINE:
                return
        else:
            yield number, len(text), document


def _parse_object(line: bytes, place: str, kind: str) -> dict[str, object]:
    if len(line) > _MAX_LINE:
        raise UsageError(f"{place} is longer than {_MAX_LINE >> 20} MiB; give files as files")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{place} is not UTF-8 text ({error.reason} at byte {error.start}); correct it") from error
    document = decode_user_json(text, place)
    if not isinstance(document, dict):
        raise UsageError(f"{place} is not a JSON object {kind}")
    return document


async def in_thread_if_long(
    work: Callable[Concatenate[Text, P], T], text: Text, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return ``work(text, …)``. A text that would hold the event loop is processed in a thread."""
    if len(text) <= PARSED_ON_LOOP:
        return work(text, *args, **kwargs)
    return await asyncio.to_thread(work, text, *args, **kwargs)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the garbage collector of the whole process while many long-lived values are created."""
    pausing = gc.isenabled()
    if pausing:
        gc.disable()
    try:
        yield
    finally:
        if pausing:
            gc.enable()


def inner_values(nodes: Iterable[object]) -> list[object]:
    """Return the objects and arrays directly inside ``nodes``: the next level of a tree, for iterative walks."""
    members: list[object] = []
    for node in nodes:
        if isinstance(node, _CONTAINERS):
            members += node.values() if isinstance(node, dict) else node
    return [member for member in members if isinstance(member, _CONTAINERS)]


def objects_in(tree: object) -> Iterator[dict[str, object]]:
    """Go level by level, without recursion. The values of an object may be replaced before the next is requested."""
    level: list[object] = [tree]
    while level:
        yield from (node for node in level if isinstance(node, dict))
        level = inner_values(level)


def members_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def items_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def is_larger(value: object, limit: int) -> bool:
    """64 characters of a text count as one value. The work is bounded by ``limit``."""
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
    level = inner_values([[value]])
    for _ in range(levels):
        if not level:
            return False
        level = inner_values(level)
    return bool(level)


def encode_json(value: object) -> bytes:
    """NaN and infinity become null, as in JavaScript. Raises :class:`TypeError` or :class:`ValueError` for values that
    JSON does not have, and for what is nested too deeply to write."""
    try:
        return _ENCODE(value)
    except RecursionError as error:
        raise ValueError("it is nested too deeply, or holds itself") from error
