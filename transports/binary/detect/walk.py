"""The search for content in an answer: one walk over the tree, which applies the rules to every node. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from types import NoneType

from ...errors import ABPError, ProtocolError
from ..data import BinaryData
from .content import content_value
from .descriptors import read_descriptor
from .flat_form import read_flat_form
from .heuristics import Heuristics
from .mcp_blocks import read_block
from .paths import MAX_DEPTH, Found, Place

__all__ = ["find", "find_values", "is_plain"]

#: Types that never hold content. They are skipped before any other test: an answer may hold a million numbers.
_NUMBERS = frozenset((int, float, bool, NoneType))
_PLAIN = _NUMBERS | {str, list, dict, tuple}
_DEFAULT, _OFF = Heuristics(), Heuristics(min_chars=1 << 62)
#: Keys of descriptors, of the flat form and of content blocks.
_DECLARING = frozenset(("mimeType", "content", "type", "blob"))
_BLOCKS = frozenset(("image", "audio", "resource"))


def find(
    data: object,
    *,
    heuristics: Heuristics | None = _DEFAULT,
    others: list[tuple[Place, object]] | None = None,
) -> list[Found]:
    """Return all content in an answer's ``data``, in order.

    Text that nothing declares is checked by the ``heuristics`` (``None``: never). Content whose descriptor is invalid
    is returned as its error, so that the content beside it is not lost. Values that are neither JSON nor content are
    added to ``others`` with their places.

    Raises :class:`~transports.errors.ProtocolError` for nesting deeper than :data:`MAX_DEPTH`.
    """
    heuristics = heuristics or _OFF
    search = _Search(heuristics, others)
    search.walk(data, ())
    return search.found


def is_plain(data: object, min_chars: int, *, at_most: int) -> bool:
    """Return whether ``data`` is an object or array of JSON in which nothing can be content: no key declares any, and
    every text is shorter than ``min_chars``.

    It looks at ``at_most`` values; where there are more, or more than :data:`MAX_DEPTH` levels, it returns false. Most
    answers are plain, and this takes a fraction of the time of a search, which knows the place of all that it looks at.
    """
    if type(data) is not dict and type(data) is not list:
        return False
    level: list[object] = [data]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for node in level:
            values: Collection[object]
            if type(node) is dict:
                if not _DECLARING.isdisjoint(node) and _declares(node):
                    return False
                values = node.values()
            else:
                values = node  # type: ignore[assignment]
            at_most -= len(values)
            if at_most < 0:
                return False
            for value in values:
                kind = type(value)
                if kind is str:
                    if len(value) >= min_chars:  # type: ignore[arg-type]
                        return False
                elif kind is dict or kind is list:
                    below.append(value)
                elif kind not in _NUMBERS:
                    return False
        if not below:
            return True
        level = below
    return False


def _declares(node: dict[str, object]) -> bool:
    """Whether the keys and types of an object say that there may be content in it."""
    return _is_block(node) or isinstance(node.get("mimeType"), str) or type(node.get("content")) not in _PLAIN


def _is_block(node: dict[str, object]) -> bool:
    kind = node.get("type")
    return (type(kind) is str and kind in _BLOCKS) or "blob" in node


def find_values(data: object, *, others: list[tuple[Place, object]] | None = None) -> list[Found]:
    """Return the values that are content by their type alone: ``bytes``, :class:`~transports.BinaryData`, handles.

    No descriptor is read and no heuristic is applied. ``others`` as in :func:`find`; raises as it does.
    """
    search = _Search(_OFF, others)
    search.walk_values(data, ())
    return search.found


class _Search:
    """A search of one answer: its settings, and what it has found so far."""

    __slots__ = ("_heuristics", "_min_chars", "_others", "found")

    def __init__(self, heuristics: Heuristics, others: list[tuple[Place, object]] | None) -> None:
        self.found: list[Found] = []
        self._heuristics = heuristics
        self._min_chars = heuristics.min_chars
        self._others = others

    def walk_values(self, node: object, path: Place) -> None:
        """Look for content by its type in ``node``."""
        if isinstance(node, dict | list | tuple):
            _check_depth(path)
            for step, value in node.items() if isinstance(node, dict) else enumerate(node):
                if type(value) not in _NUMBERS:
                    self.walk_values(value, (*path, step if isinstance(step, int) else str(step)))
        else:
            self._leaf(node, path)

    def walk(self, node: object, path: Place) -> None:
        """Look for content of all forms in ``node``."""
        if isinstance(node, dict):
            _check_depth(path)
            self._object(node, path)
        elif isinstance(node, list | tuple):
            _check_depth(path)
            min_chars = self._min_chars
            for index, value in enumerate(node):
                kind = type(value)
                if kind not in _NUMBERS and (kind is not str or len(value) >= min_chars):
                    self.walk(value, (*path, index))
        elif isinstance(node, str):
            if len(node) >= self._min_chars and (binary := self._heuristics.recognise(node)) is not None:
                self.found.append(Found(path, binary, "heuristic"))
        else:
            self._leaf(node, path)

    def _object(self, node: dict[str, object], path: Place) -> None:
        found, min_chars = self.found, self._min_chars
        block_keys: Place = ()
        if _is_block(node) and (block := read_block(node, path)):
            block_keys = block[0]
            found.append(Found((*path, *block_keys), block[1], "typed"))
        if not block_keys and (isinstance(node.get("mimeType"), str) or type(node.get("content")) not in _PLAIN):
            try:
                if (binary := read_descriptor(node)) is not None:
                    found.append(Found(path, binary))
                    return
            except ABPError as error:
                found.append(Found(path, error))
                return
            flat = read_flat_form(node)
        else:
            flat = None
        for name, value in node.items():
            kind = type(value)
            if flat is not None and name == flat[0]:
                found.append(Found((*path, flat[0]), flat[1]))
            elif kind in _NUMBERS or (kind is str and len(value) < min_chars) or (block_keys and name == block_keys[0]):  # type: ignore[arg-type]
                continue
            else:
                self.walk(value, (*path, str(name)))

    def _leaf(self, node: object, path: Place) -> None:
        try:
            binary: BinaryData | ABPError | None = content_value(node)
        except ABPError as error:
            binary = error
        if binary is not None:
            self.found.append(Found(path, binary))
        elif self._others is not None and type(node) not in _PLAIN:
            self._others.append((path, node))


def _check_depth(path: Place) -> None:
    if len(path) >= MAX_DEPTH:
        raise ProtocolError(f"the answer is nested deeper than {MAX_DEPTH} levels at {'.'.join(map(str, path[:6]))}…")
