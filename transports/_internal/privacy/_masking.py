"""Masking: labels or asterisks in place of values, in texts, JSON values and bytes. No I/O.

:class:`Finder` finds the values in all spellings of :data:`SPELLINGS`, in base64 and in hexadecimal digits;
:func:`replaced`, :func:`starred` and :func:`masked_tree` replace them.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, cast

#: Bytes that are searched at a time: a longer search would hold the GIL for too long.
_PIECE = 1 << 18
#: Overlap of two pieces, in bytes for each byte of the longest value: the most that a spelling lengthens a value.
_LONGEST_SPELLING = 16
#: Steps of decoding: one of characters costs 1, one of base64 or hexadecimal digits 2.
_STEPS = 5
#: Shortest decoded form, in bytes, of a value that looks escaped; a shorter one would be found by chance.
_SHORTEST_READ = 6

_HEX = rb"[0-9A-Fa-f]"
_SINGLE: Final = dict(zip(b"abefnrtv0", (b"\a", b"\b", b"\x1b", b"\f", b"\n", b"\r", b"\t", b"\v", b"\0"), strict=True))
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_NOT_BASE64: Final = bytes(set(range(256)) - set(_BASE64))
_ONE_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
_DIGITS: Final = b"0123456789abcdefABCDEF"
_NOT_DIGITS: Final = bytes(set(range(256)) - set(_DIGITS))
#: Separator of the texts of a tree: no value continues in the next text, unless its spelling skips line breaks.
_BETWEEN: Final = b"\n"
#: Fields that make the `content` beside them a file (docs/protocol.md 9).
_DESCRIBING: Final = {"mimeType", "encoding", "size", "filename"}


def to_bytes(text: str) -> bytes:
    """Return text as UTF-8, with lone surrogates encoded like characters."""
    return text.encode("utf-8", "surrogatepass")


def to_text(content: bytes) -> str:
    """Return the text of :func:`to_bytes`."""
    return content.decode("utf-8", "surrogatepass")


def _character(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else b""


def _after_mark(token: bytes) -> bytes:
    """Decode a token of a two-byte mark and hexadecimal digits."""
    return _character(int(token[2:], 16))


def _pair(token: bytes) -> bytes:
    return to_bytes(bytes.fromhex(token[2:6].decode() + token[8:].decode()).decode("utf-16-be"))


def _units(mark: bytes) -> bytes:
    """Return the pattern of a surrogate pair in UTF-16, each unit after a mark."""
    return mark + rb"[dD][89abAB]" + _HEX + rb"{2}" + mark + rb"[dD][c-fC-F]" + _HEX + rb"{2}"


def _entity(token: bytes) -> bytes:
    from html.entities import html5  # late: few programs have secrets, and its table takes 1 ms to load

    found = html5.get(token[1:].decode())
    return token if found is None else to_bytes(found)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A spelling of characters: its name, an example (mostly of an apostrophe), the pattern of one character, and the
    decoder of that into UTF-8."""

    name: str
    example: bytes
    pattern: bytes
    decode: Callable[[bytes], bytes]


#: Spellings of single characters. The first matching one applies.
SPELLINGS: tuple[Spelling, ...] = (
    Spelling("percent-encoding", b"%27", rb"%" + _HEX + rb"{2}", lambda token: bytes([int(token[1:], 16)])),
    Spelling("surrogate pair of escape()", b"%uD83D%uDE00", _units(b"%u"), _pair),
    Spelling("escape() of JavaScript", b"%u0027", rb"%u" + _HEX + rb"{4}", _after_mark),
    Spelling("surrogate pair of JSON", rb"\ud83d\ude00", _units(rb"\\u"), _pair),
    Spelling("\\u of JSON", rb"\u0027", rb"\\u" + _HEX + rb"{4}", _after_mark),
    Spelling(
        "\\u{} of JavaScript",
        rb"\u{27}",
        rb"\\u\{" + _HEX + rb"{1,6}\}",
        lambda token: _character(int(token[3:-1], 16)),
    ),
    Spelling("\\U of Python", rb"\U00000027", rb"\\U" + _HEX + rb"{8}", _after_mark),
    Spelling("\\x", rb"\x27", rb"\\x" + _HEX + rb"{2}", _after_mark),
    Spelling("octal", rb"\047", rb"\\[0-3][0-7]{2}", lambda token: _character(int(token[1:], 8))),
    Spelling("digit of CSS", rb"\37 ", rb"\\3[0-9] ", lambda token: token[2:3]),
    Spelling("backslash and letter", rb"\n", rb"\\[abefnrtv0]", lambda token: _SINGLE[token[1]]),
    # any other backslash is dropped, also in values: it may be a plain character, as in a path
    Spelling("backslash", rb"\'", rb"\\(?:\\{1,30}(?=\\))?", lambda token: b""),
    Spelling("hexadecimal entity of HTML", b"&#x27;", rb"&#[xX]0{0,8}" + _HEX + rb"{1,6};?",
             lambda token: _character(int(token[3:].rstrip(b";"), 16))),
    Spelling("decimal entity of HTML", b"&#39;", rb"&#0{0,8}[0-9]{1,7};?",
             lambda token: _character(int(token[2:].rstrip(b";")))),
    Spelling("named entity of HTML", b"&apos;", rb"&(?:[A-Za-z][A-Za-z0-9]{1,31};|amp|lt|gt|quot)", _entity),
)  # fmt: skip

_ESCAPE = re.compile(b"|".join(spelling.pattern for spelling in SPELLINGS))


@lru_cache(maxsize=4096)
def _decoded(token: bytes) -> bytes:
    """Return the character of one token of :data:`_ESCAPE`."""
    return next(one.decode(token) for one in SPELLINGS if re.match(one.pattern, token))


_Back = Callable[[int, int], tuple[int, int]]


class _Escapes:
    """Map of positions in decoded content to positions in the escaped content, built at the first :meth:`span`."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] = []
        self._after: list[int] = []

    def _look(self) -> None:
        begins, ends, before, after = [0], [0], [0], [0]
        length = 0
        for found in _ESCAPE.finditer(self._content):
            start, end = found.span()
            begins.append(length := length + start - after[-1])
            ends.append(length := length + len(_decoded(found[0])))
            before.append(start)
            after.append(end)
        self._begins, self._ends, self._before, self._after = begins, ends, before, after

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the escaped content for a span in the decoded content."""
        if not self._begins:
            self._look()
        first, last = bisect_right(self._begins, start) - 1, bisect_right(self._begins, end - 1) - 1
        if first and start == self._begins[first]:
            low = self._before[bisect_left(self._begins, start, 1)]  # with dropped backslashes before it
        elif start < self._ends[first]:
            low = self._before[first]
        else:
            low = self._after[first] + start - self._ends[first]
        high = self._after[last] if end - 1 < self._ends[last] else self._after[last] + end - self._ends[last]
        return low, high


def _unescaped(content: bytes) -> bytes:
    """Return content with each escaped character decoded once."""
    if b"%" not in content and b"\\" not in content and b"&" not in content:
        return content
    return _ESCAPE.sub(lambda found: _decoded(found[0]), content)


class _Places:
    """Positions in content of the bytes of an alphabet, built at the first :meth:`span`."""

    def __init__(self, content: bytes, alphabet: bytes) -> None:
        self._content = content
        self._alphabet = alphabet
        self._kept: list[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in content of the bytes ``start`` to ``end`` of the alphabet, with base64 padding after
        them. Other bytes do not count."""
        if self._kept is None:
            self._kept = [index for index, byte in enumerate(self._content) if byte in self._alphabet]
        low, high = self._kept[start], self._kept[min(end, len(self._kept)) - 1] + 1
        while self._alphabet is _BASE64 and self._content[high : high + 1] == b"=":
            high += 1
        return low, high


def _from_base64(content: bytes) -> Iterator[tuple[bytes, _Back]]:
    """Yield all base64 in content decoded, of either alphabet, with or without line breaks and padding: four times, for
    each offset in a group of four characters."""
    stream = content.translate(_ONE_ALPHABET, _NOT_BASE64)
    places = _Places(content, _BASE64)
    for phase in range(4):
        group = stream[phase:]
        if len(group) % 4 == 1:
            group = group[:-1]

        def back(start: int, end: int, phase: int = phase) -> tuple[int, int]:
            return places.span(phase + start * 4 // 3, phase + -(-end * 4 // 3))

        yield binascii.a2b_base64(group + b"=" * (-len(group) % 4)), back


def _from_digits(content: bytes) -> Iterator[tuple[bytes, _Back]]:
    """Yield all hexadecimal digits in content decoded, for both offsets in a pair, ignoring other bytes."""
    stream = content.translate(None, _NOT_DIGITS)
    places = _Places(content, _DIGITS)
    for phase in range(2):

        def back(start: int, end: int, phase: int = phase) -> tuple[int, int]:
            return places.span(phase + start * 2, phase + end * 2)

        yield binascii.unhexlify(stream[phase : len(stream) - (len(stream) - phase) % 2]), back


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """An occurrence of a value in content: its span in bytes, and its label."""

    start: int
    end: int
    label: str


class Finder:
    """Search for ``values``, each with a label, in content. A value is found unchanged and in every mix of the
    spellings of :data:`SPELLINGS`, spaces as ``+``, base64 and hexadecimal digits, up to five steps of decoding."""

    def __init__(self, values: Mapping[str, str]) -> None:
        needles: dict[bytes, str] = {}
        for value, label in values.items():
            for needle in _needles(value):
                needles.setdefault(needle, label)
        self._needles = sorted(needles.items(), key=lambda one: -len(one[0]))
        self._shortest = min(map(len, needles), default=0)
        self._longest = max(map(len, needles), default=0)

    def __bool__(self) -> bool:
        return bool(self._needles)

    def find(self, content: bytes) -> list[Found]:
        """Return the occurrences of values in order, without overlaps."""
        if not self._needles or len(content) < self._shortest:
            return []
        overlap = self._longest * _LONGEST_SPELLING
        size = max(_PIECE, overlap)
        found: set[Found] = set()
        for at in range(0, max(1, len(content) - overlap), size):
            piece = content[at : at + size + overlap] if len(content) > size + overlap else content
            found |= {Found(at + start, at + end, label) for start, end, label in self._search(piece, _STEPS)}
            if piece is content:
                break
        return _apart(found)

    def _search(self, content: bytes, steps: int) -> set[tuple[int, int, str]]:
        if len(content) < self._shortest:
            return set()
        found: set[tuple[int, int, str]] = set()
        flat = content.replace(b" ", b"+")
        for needle, label in self._needles:
            at = flat.find(needle)
            while at >= 0:
                found.add((at, at + len(needle), label))
                at = flat.find(needle, at + len(needle))
        for cost, read in _READINGS:
            if cost <= steps:
                for decoded, back in read(content):
                    found |= {(*back(start, end), label) for start, end, label in self._search(decoded, steps - cost)}
        return found


def _unescaping(content: bytes) -> Iterator[tuple[bytes, _Back]]:
    """Yield content with each escaped character decoded once, if there is any."""
    decoded = _unescaped(content)
    if decoded != content:
        yield decoded, _Escapes(content).span


_READINGS: Final[tuple[tuple[int, Callable[[bytes], Iterable[tuple[bytes, _Back]]]], ...]] = (
    (1, _unescaping),
    (2, _from_base64),
    (2, _from_digits),
)


def _needles(value: str) -> set[bytes]:
    """Return the byte strings to search for: a value as UTF-8, as Latin-1, as UTF-8 misread as Latin-1 or Windows-1252,
    and the decoded form of a value that looks escaped."""
    written = {to_bytes(value)}
    if not value.isascii():
        read_as = to_bytes(value).decode("latin-1")
        windows = "".join(bytes([ord(one)]).decode("cp1252", "ignore") or one for one in read_as)
        written |= {to_bytes(read_as), to_bytes(windows)}
        latin = b"".join(bytes([ord(one)]) if ord(one) < 256 else to_bytes(one) for one in value)
        written |= {latin, to_bytes(latin.decode("utf-8", "replace"))}  # Latin-1 misread as UTF-8
    if any(ord(character) > 0xFFFF for character in value):  # UTF-16 that was escaped unit by unit
        units = value.encode("utf-16-be", "surrogatepass")
        written.add(b"".join(_character(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2)))
    for one in tuple(written):
        for _ in range(_STEPS):
            if len(one := _unescaped(one)) < _SHORTEST_READ:
                break
            written.add(one)
    return {one.replace(b" ", b"+") for one in written}


def _apart(found: set[Found]) -> list[Found]:
    """Merge overlapping occurrences; the longest keeps its label."""
    apart: list[Found] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if apart and one.start < apart[-1].end:
            last = apart[-1]
            if one.end > last.end:
                label = last.label if last.end - last.start >= one.end - one.start else one.label
                apart[-1] = Found(last.start, one.end, label)
        else:
            apart.append(one)
    return apart


#: Returns the text of a file without values, or ``None`` for any other text. The flag is true if a descriptor makes it
#: a file.
MaskFile = Callable[[str, bool], str | None]


def replaced(texts: Sequence[str], finder: Finder, between: bytes = b"") -> list[str]:
    """Return texts with labels in place of values. The texts are searched as one, joined by ``between``; a value that
    lies across several texts has its label in each."""
    if not finder:
        return list(texts)
    contents = [to_bytes(text) for text in texts]
    spans = _spans(contents, finder, between)
    return [_labelled(content, spans[at]) if at in spans else texts[at] for at, content in enumerate(contents)]


def starred(content: bytes, found: Iterable[Found]) -> bytes:
    """Return content of the same length with asterisks in place of the found values."""
    out = bytearray(content)
    for one in found:
        out[one.start : one.end] = b"*" * (one.end - one.start)
    return bytes(out)


def masked_tree(
    node: object,
    finder: Finder,
    numbers: Mapping[float, str],
    *,
    file: MaskFile | None = None,
    keep: Callable[[str], bool] | None = None,
    names: Collection[str] = (),
) -> object:
    """Return JSON values with labels in place of values, also in keys and file names, and in place of numbers
    in ``numbers``. A node without values is returned unchanged.

    ``file`` masks texts that are files. Keys for which ``keep`` is true stay, with their values, as do the keys in
    ``names``.
    """
    if not finder:
        return node
    tree = _Tree(numbers, keep, frozenset(names))
    tree.gather(node)
    contents = [to_bytes(text) for text in tree.texts]
    tree.spans = _spans(contents, finder, _BETWEEN)
    return tree.rebuilt(node, file) if tree.spans or tree.has_numbers else node


class _Tree:
    """The texts of JSON values, gathered and rebuilt in the same order."""

    def __init__(self, numbers: Mapping[float, str], keep: Callable[[str], bool] | None, names: frozenset[str]) -> None:
        self.texts: list[str] = []
        self.spans: Mapping[int, list[Found]] = {}
        self.has_numbers = False
        self._numbers = numbers
        self._keep = keep
        self._names = names
        self._next = 0

    def gather(self, node: object) -> None:
        match node:
            case str():
                self.texts.append(node)
            case Mapping():
                for key, value in node.items():
                    if not self._stays(key):
                        if isinstance(key, str) and key not in self._names:
                            self.texts.append(key)
                        self.gather(value)
            case list() | tuple():
                for one in node:
                    self.gather(one)
            case object(filename=str(name)):  # a file
                self.texts.append(name)
            case int() | float() if self._numbers and not isinstance(node, bool):
                self.has_numbers = self.has_numbers or self._number(node) is not None

    def rebuilt(self, node: object, file: MaskFile | None) -> object:
        match node:
            case str():
                return self._text(node, file)
            case Mapping():
                described = isinstance(node.get("content"), str) and not _DESCRIBING.isdisjoint(node)
                out: dict[object, object] = {}
                for key, value in node.items():
                    if self._stays(key):
                        out[key] = value
                        continue
                    new = self._text(key, None) if isinstance(key, str) and key not in self._names else key
                    is_file = described and key == "content" and isinstance(value, str)
                    out[new] = self._text(value, file, described=True) if is_file else self.rebuilt(value, file)
                return out
            case list() | tuple():
                return [self.rebuilt(one, file) for one in node]
            case object(filename=str(name)):  # a file
                return replace(cast(Any, node), filename=self._text(name, None))
            case int() | float() if self._numbers and not isinstance(node, bool):
                label = self._number(node)
                return node if label is None else label
            case _:
                return node

    def _text(self, text: str, file: MaskFile | None, *, described: bool = False) -> str:
        at, self._next = self._next, self._next + 1
        if at not in self.spans:
            return text
        masked = None if file is None else file(text, described)
        return _labelled(to_bytes(text), self.spans[at]) if masked is None else masked

    def _stays(self, key: object) -> bool:
        return self._keep is not None and isinstance(key, str) and self._keep(key)

    def _number(self, node: float) -> str | None:
        try:
            return self._numbers.get(float(node))
        except OverflowError:
            return None


def _spans(contents: Sequence[bytes], finder: Finder, between: bytes) -> dict[int, list[Found]]:
    """Return the found values in ``contents``, by index; spans are relative to the content."""
    begins: list[int] = []
    at = 0
    for content in contents:
        begins.append(at)
        at += len(content) + len(between)
    spans: dict[int, list[Found]] = {}
    for found in finder.find(between.join(contents)):
        index = bisect_right(begins, found.start) - 1
        while index < len(contents) and begins[index] < found.end:
            begin, length = begins[index], len(contents[index])
            start, end = max(found.start - begin, 0), min(found.end - begin, length)
            if start < end:
                spans.setdefault(index, []).append(Found(start, end, found.label))
            index += 1
    return spans


def _labelled(content: bytes, spans: Iterable[Found]) -> str:
    pieces: list[str] = []
    at = 0
    for one in spans:
        start, end = _whole(content, one.start, one.end)
        pieces += (to_text(content[at : max(start, at)]), one.label)
        at = max(end, at)
    return "".join((*pieces, to_text(content[at:])))


def _whole(content: bytes, start: int, end: int) -> tuple[int, int]:
    """Extend a span to whole UTF-8 characters."""
    while start and 0x80 <= content[start] < 0xC0:
        start -= 1
    while end < len(content) and 0x80 <= content[end] < 0xC0:
        end += 1
    return start, end
