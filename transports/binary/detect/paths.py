"""Places in a tree of JSON values, and trees with something else in them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...errors import ABPError
from ..data import BinaryData

__all__ = ["MAX_DEPTH", "Found", "Layer", "Place", "field_of", "replace"]

#: Deepest nesting of an answer that is looked at; more is an error, never silence (FAULTS 21).
MAX_DEPTH = 64

#: Where something stands in a tree of JSON values: the keys and indexes that lead to it.
Place: TypeAlias = tuple[str | int, ...]

#: Which rule recognised something (seed 002 §4.1): ABP's own forms, an MCP content block, or a long look.
Layer: TypeAlias = Literal["abp", "typed", "heuristic"]


@dataclass(frozen=True, slots=True)
class Found:
    """A binary and its place: ``path`` in the tree. ``binary`` is an error where its description is invalid. ``layer``
    is the rule that recognised it."""

    path: Place
    binary: BinaryData | ABPError
    layer: Layer = "abp"

    @property
    def field(self) -> str:
        return field_of(self.path)


def field_of(place: Place) -> str:
    """A place as people write it: ``document``, ``pages.0.image``, ``""`` for the top. A dot inside a key is escaped,
    so two places never share a name."""
    return ".".join(str(step).replace("\\", "\\\\").replace(".", "\\.") for step in place)


def replace(tree: object, replacements: Mapping[Place, object]) -> object:
    """A copy of ``tree`` with the values at the given places replaced; what no place leads to is shared, not copied.

    Raises ``KeyError`` for a place that is not in the tree.
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
        copy = {key: replace(value, below.pop(str(key), {})) for key, value in tree.items()}
    elif isinstance(tree, list | tuple):
        copy = [replace(value, below.pop(index, {})) for index, value in enumerate(tree)]
    if below:
        raise KeyError(f"the tree has no place {next(iter(below))!r}")
    return copy
