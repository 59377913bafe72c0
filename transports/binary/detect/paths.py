"""Places in a tree of JSON values, and copies of a tree with other values in them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...errors import ABPError
from ..data import BinaryData

__all__ = ["MAX_DEPTH", "Found", "Layer", "Place", "field_of", "replace"]

#: Levels of nesting that are searched. A deeper answer is an error; none is missed in silence (docs/faults.md 21).
MAX_DEPTH = 64

#: A place in a tree of JSON values: the keys and indexes that lead to it from the top, ``()`` for the top itself.
Place: TypeAlias = tuple[str | int, ...]

#: The rule that recognised content (docs/requirements.md R2-4.1): a form of ABP, an MCP content block, or a heuristic.
Layer: TypeAlias = Literal["abp", "typed", "heuristic"]


@dataclass(frozen=True, slots=True)
class Found:
    """Content at a place of an answer. ``binary`` is the error if its descriptor is invalid, so that the content beside
    it is not lost. ``layer`` is the rule that recognised it."""

    path: Place
    binary: BinaryData | ABPError
    layer: Layer = "abp"

    @property
    def field(self) -> str:
        """The place as text, as :func:`field_of` writes it."""
        return field_of(self.path)


def field_of(place: Place) -> str:
    """Return a place as text: ``document``, ``pages.0.image``, ``""`` for the top.

    A dot or backslash inside a key is escaped by a backslash, so no two places have the same text.
    """
    return ".".join(str(step).replace("\\", "\\\\").replace(".", "\\.") for step in place)


def replace(tree: object, replacements: Mapping[Place, object]) -> object:
    """Return a copy of ``tree`` with other values at the given places.

    Branches without such a place are shared with ``tree``, not copied. Raises ``KeyError`` for a place that is not in
    the tree.
    """
    if not replacements:
        return tree
    if () in replacements:
        return replacements[()]
    below: dict[str | int, dict[Place, object]] = {}
    for path, value in replacements.items():
        below.setdefault(path[0], {})[path[1:]] = value
    copy: object = tree
    if isinstance(tree, dict):
        copy = {
            key: replace(value, below.pop(step)) if (step := str(key)) in below else value
            for key, value in tree.items()
        }
    elif isinstance(tree, list | tuple):
        copy = [replace(value, below.pop(index)) if index in below else value for index, value in enumerate(tree)]
    if below:
        raise KeyError(f"the tree has no place {next(iter(below))!r}")
    return copy
