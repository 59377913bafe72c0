"""Puts labels or asterisks in the place of values, in texts, in JSON values and in bytes. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..binary import BinaryData
from .spellings import Finder, Found, to_bytes, to_text

__all__ = ["masked_tree", "replaced", "starred"]

#: Stands between the texts of a tree: a value does not go on in the next one, unless its spelling skips line breaks.
_BETWEEN: Final = b"\n"
#: Fields beside `content` that say that it is a file (docs/protocol.md 9).
_DESCRIBING: Final = {"mimeType", "encoding", "size", "filename"}
#: Returns the text of a file without values, or ``None`` for another text. The flag says that it is described as one.
MaskFile = Callable[[str, bool], str | None]


def replaced(texts: Sequence[str], finder: Finder, between: bytes = b"") -> list[str]:
    """Return texts with the labels of values in their place. The next text goes on where one ended, after ``between``;
    a value that lies across several has its label in each."""
    if not finder:
        return list(texts)
    contents = [to_bytes(text) for text in texts]
    spans = _spans(contents, finder, between)
    return [_labelled(content, spans[at]) if at in spans else texts[at] for at, content in enumerate(contents)]


def starred(content: bytes, found: Iterable[Found]) -> bytes:
    """Return content with asterisks in the place of what was found, as many as it had bytes."""
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
    """Return JSON values with the labels of values in their place, in keys and names of files too, and of those
    ``numbers`` that equal one; what has none is returned as it is.

    ``file`` masks texts that are files. The values of keys that ``keep`` names stay as they are, as do those keys,
    and ``names``."""
    if not finder:
        return node
    tree = _Tree(numbers, keep, frozenset(names))
    tree.gather(node)
    contents = [to_bytes(text) for text in tree.texts]
    tree.spans = _spans(contents, finder, _BETWEEN)
    return tree.rebuilt(node, file) if tree.spans or tree.has_numbers else node


class _Tree:
    """The texts of JSON values, in one order for gathering and for rebuilding."""

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
            case BinaryData(filename=str(name)):
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
            case BinaryData(filename=str(name)):
                return replace(node, filename=self._text(name, None))
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
    """Return what was found in each of ``contents``, by its index."""
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
    """Return a span that cuts no character in two."""
    while start and 0x80 <= content[start] < 0xC0:
        start -= 1
    while end < len(content) and 0x80 <= content[end] < 0xC0:
        end += 1
    return start, end
