"""Long JSON of many small values, read as it arrives and never parsed as a whole: outlines with the first items of each
list, and messages whose long values stay in the file.

* :class:`Outline` — the beginning of one JSON value.
* :class:`Carver` — a message without its long values.
* :func:`preview`, :func:`shape` — an outline for people and models."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

#: Items of a list that an outline has, bytes after which it begins no further item of a list, or field of an object.
_ITEMS, _LIST_BYTES, _OBJECT_BYTES = 64, 256 * 1024, 1 << 20
#: Deepest nesting of an outline. Deeper JSON has none.
_DEPTH = 64
#: Smallest value in bytes that a carver leaves in the file, and most bytes of the rest of the message.
_CARVED, MAX_SHORT = 256 * 1024, 16 << 20
#: Longest text in a text that is searched for an outline, in bytes.
_MAX_HELD = 1 << 20
#: Bytes that are skipped at once: few first, since most lists are short.
_FIRST_WINDOW, _WINDOW = 1024, 128 * 1024
#: Most rounds in which innermost lists and objects are removed; what is deeper is counted one by one.
_ROUNDS = 8
#: Fields of a message whose own fields are looked at one by one.
_FRAMES = frozenset({b'"result"', b'"params"', b'"error"'})
_MAX_FRAMES = 4
#: Head of the texts and names that stand for items that are left out. It cannot be guessed.
_MORE = secrets.token_hex(16)
_MORE_ITEMS = re.compile(rf"{_MORE}(\d+)")

#: Whole texts and everything between texts.
_WHOLE = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)
_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_EMPTY = re.compile(rb"\[,*+\]|\{,*+\}")
_LEFT = re.compile(rb",++|[\[{]|[\]}]")
_NO_MARKS = bytes(sorted({*range(256)} - {*b",[]{}"}))


class Outline:
    """The beginning of one JSON value, which comes in pieces: of each list the first 64 items, and their number.

    ``ended`` is true after the value's last byte. ``is_whole`` is false if the value is nested too deeply."""

    def __init__(self) -> None:
        self.ended = False
        self.is_whole = True
        self._out = bytearray()
        self._open: list[list[int]] = []  # kind and number of commas
        self._skipped = 0  # depth below the list whose items are left out
        self._window = _FIRST_WINDOW

    @classmethod
    def of(cls, pieces: Iterable[bytes]) -> bytes | None:
        """Return the outline of a whole list or object, or ``None`` for anything else."""
        outline, held = cls(), b""
        for piece in pieces:
            held += piece
            if not outline._open:
                held = held.lstrip()
                if held and held[:1] not in b"[{":
                    return None
            at = outline.feed(held, 0, whole_end(held, 0, len(held)))
            held = held[at:]
            if (outline.ended and held.strip()) or len(held) > _MAX_HELD or not outline.is_whole:
                return None
        return outline.text() if outline.ended else None

    def text(self) -> bytes | None:
        """Return the outline as JSON, with marks in the place of items that are left out."""
        return bytes(self._out) if self.is_whole and self.ended else None

    def feed(self, data: bytes, at: int, end: int) -> int:
        """Read ``data`` from ``at`` to ``end``, which is not within a text, and return where the value ended, or
        ``end``."""
        while at < end and not self.ended:
            at = self._skip(data, at, end) if self._skipped else self._keep(data, at, end)
        return at

    def _keep(self, data: bytes, at: int, end: int) -> int:
        for found in _TOKEN.finditer(data, at, end):
            mark = data[found.start()]
            if mark == 0x22:  # a text
                continue
            if mark in b"[{":
                self._open.append([mark, 0])
                if len(self._open) > _DEPTH:
                    self.is_whole = False
                    self._out += data[at : found.start()]
                    self._skipped = 1
                    return found.end()
            elif mark == 0x2C:  # a comma
                top = self._open[-1]
                top[1] += 1
                most = _LIST_BYTES if top[0] == 0x5B else _OBJECT_BYTES
                if (top[0] == 0x5B and top[1] >= _ITEMS) or len(self._out) + found.start() - at > most:
                    self._out += data[at : found.start()]
                    self._skipped = 1
                    return found.end()
            elif self._close():
                self._out += data[at : found.end()]
                return found.end()
        self._out += data[at:end]
        return end

    def _close(self) -> bool:
        self._open.pop()
        self.ended = not self._open
        return self.ended

    def _skip(self, data: bytes, at: int, end: int) -> int:
        """Leave out items up to the end of their list or object, or of the window."""
        stop, window = at, self._window
        while stop == at:  # a text may be longer than the window
            stop = whole_end(data, at, min(end, at + window))
            window *= 2
        self._window = min(window, _WINDOW)
        depth, commas = self._counted(data, at, stop)
        if depth > 0:
            self._skipped = depth
            self._open[-1][1] += commas
            return stop
        depth = self._skipped
        for token in _TOKEN.finditer(data, at, stop):
            mark = data[token.start()]
            if mark in b"[{":
                depth += 1
            elif mark in b"]}":
                depth -= 1
                if not depth:
                    return self._resume(token.start())
            elif mark == 0x2C and depth == 1:
                self._open[-1][1] += 1
        raise AssertionError("the end has been counted")

    def _counted(self, data: bytes, at: int, stop: int) -> tuple[int, int]:
        """Return the depth at ``stop``, 0 if the list ends before, and the number of its own commas."""
        part = data[at:stop]
        bare = _TEXT.sub(b"", part) if b"\\" in part else b"".join(part.split(b'"')[::2])
        marks = bare.translate(None, _NO_MARKS)
        for _ in range(_ROUNDS):
            marks, found = _EMPTY.subn(b"", marks)
            if not found:
                break
        depth, commas = self._skipped, 0
        for left in _LEFT.finditer(marks):
            if left[0][:1] == b",":
                commas += len(left[0]) if depth == 1 else 0
            else:
                depth += 1 if left[0] in b"[{" else -1
                if not depth:
                    return 0, 0
        return depth, commas

    def _resume(self, at: int) -> int:
        self._skipped, self._window = 0, _FIRST_WINDOW
        kind, commas = self._open[-1]
        total = b"%d" % (commas + 1)
        more = _MORE.encode()
        self._out += b',"%s%s"' % (more, total) if kind == 0x5B else b',"%s":%s' % (more, total)
        return at


class Carver:
    """A message without its long values, which comes in pieces. Fields of ``result``, ``params`` and ``error`` that are
    lists or objects of 256 KiB or more are replaced by marks."""

    def __init__(self, mark: Callable[[int], bytes]) -> None:
        #: Begin and end of the values in the message, and their outlines.
        self.values: list[tuple[int, int, bytes | None]] = []
        self._mark = mark
        self._out = bytearray()
        self._frames = 0
        self._last = b""
        self._held = b""
        self._base = 0  # of `_held` in the message
        self._outline: Outline | None = None
        self._start = 0
        self._value = bytearray()
        self._ended = self._failed = False

    def feed(self, data: bytes) -> None:
        """Read a piece of the message."""
        if self._failed:
            return
        data = self._held + data
        end, at = whole_end(data, 0, len(data)), 0
        while at < end and not self._failed:
            at = self._in_frame(data, at, end) if self._outline is None else self._in_value(data, at, end)
        self._held = data[end:]
        self._base += end
        if len(self._out) > MAX_SHORT:
            self._failed = True
            self._out, self._value = bytearray(), bytearray()

    def finish(self) -> bytes:
        """Return the message without its long values; nothing if it is still too long, or no JSON object."""
        return b"" if self._failed or not self._ended or self._held.strip() else bytes(self._out)

    def _in_frame(self, data: bytes, at: int, end: int) -> int:
        for found in _BRACKET.finditer(data, at, end):
            mark = data[found.start()]
            if mark == 0x22:
                self._last = found[0]
            elif mark == 0x7B and (not self._frames or (self._last in _FRAMES and self._frames < _MAX_FRAMES)):
                self._frames += 1
                self._last = b""
            elif mark in b"[{":
                self._failed = not self._frames  # a list: nothing that has an id
                self._out += data[at : found.start()]
                self._outline, self._start = Outline(), self._base + found.start()
                return found.start()
            elif mark == 0x7D and self._frames:
                self._frames -= 1
                self._ended = not self._frames
            else:
                self._failed = True
        self._out += data[at:end]
        return end

    def _in_value(self, data: bytes, at: int, end: int) -> int:
        assert self._outline is not None
        stop = self._outline.feed(data, at, end)
        size = self._base + stop - self._start
        if size < _CARVED:
            self._value += data[at:stop]
        if self._outline.ended:
            if size < _CARVED:
                self._out += self._value
            else:
                self._out += b'"%s"' % self._mark(len(self.values))
                self.values.append((self._start, self._base + stop, self._outline.text()))
            self._outline, self._value = None, bytearray()
        return stop


def whole_end(data: bytes, at: int, end: int) -> int:
    """Return where the last whole text of ``data`` from ``at`` to ``end`` ends, and everything up to the next text."""
    if data.find(b"\\", at, end) < 0:  # each quotation mark begins or ends a text
        return data.rfind(b'"', at, end) if data.count(b'"', at, end) % 2 else end
    found = _WHOLE.match(data, at, end)
    assert found is not None
    return found.end()


#: Returns a text to show in the place of one.
Shown: TypeAlias = Callable[[str], str]


def preview(tree: object, kept: int, shown: Shown, *, plain: bool) -> object:
    """Return an outline with ``kept`` items of each list. Unless ``plain``, it says how many items are left out."""
    if isinstance(tree, str):
        return shown(tree)
    if isinstance(tree, Mapping):
        made = {key: preview(value, kept, shown, plain=plain) for key, value in tree.items() if key != _MORE}
        if _MORE in tree and not plain:
            made["…"] = f"{tree[_MORE] - len(made):,} more fields"
        return made
    if isinstance(tree, list):
        items = [preview(item, kept, shown, plain=plain) for item in _listed(tree, kept)]
        left = count(tree) - len(items)
        return [*items, f"… {left:,} more items"] if left and not plain else items
    return tree


def _listed(items: list[object], kept: int) -> Iterator[object]:
    yield from items[: min(kept, len(items) - (_total(items) is not None))]


def _total(items: list[object]) -> int | None:
    found = _MORE_ITEMS.fullmatch(items[-1]) if items and isinstance(items[-1], str) else None
    return int(found[1]) if found else None


def count(items: list[object]) -> int:
    """Return the number of items of a list, also of one in an outline."""
    total = _total(items)
    return len(items) if total is None else total


def names(value: Mapping[str, object]) -> tuple[list[str], int]:
    """Return the names of the fields of an object, and their number, also of one in an outline."""
    listed = [str(key) for key in value if key != _MORE]
    total = value.get(_MORE)
    return listed, total if isinstance(total, int) else len(listed)
