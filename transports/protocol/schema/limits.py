"""Limits of a schema and of a value, and of the work that one makes for the other. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import NoneType
from urllib.parse import unquote

from ...binary.detect import MAX_DEPTH
from ..urls import redact_url

__all__ = [
    "MAX_NODES",
    "MAX_STEPS",
    "NotChecked",
    "count_steps",
    "count_values",
    "references_and_patterns",
    "shorten",
    "target_of",
]

#: A schema above any of these is not checked.
MAX_NODES = 10_000
_MAX_PATTERNS = 100
#: Steps of the validator (measured: below 0.1 µs, and 1 to 2 µs to count one: 0.03 s on a slow machine).
MAX_STEPS = 15_000
_HEAD, _TAIL = 60, 70
_NUMBERS, _LISTS = frozenset((int, float, bool, NoneType)), (list, tuple)


class NotChecked(Exception):
    """The reason why a value is not checked against a schema."""


def shorten(text: str) -> str:
    """Return ``text`` without its middle if it is longer than 130 characters. A validator's message begins with the
    value and ends with the rule."""
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}…{text[-_TAIL:]}"


def count_values(tree: object, limit: int, what: str) -> int:
    """Return how many values ``tree`` has; 64 characters of a text count as one.

    Raises :class:`NotChecked` above ``limit`` values and below 64 levels: a nest of 100,000 ends the process if the
    validator follows it. ``what`` names the tree in the message.
    """
    level: list[object] = [tree]
    size = depth = 0
    while level:
        size += len(level)
        if size > limit:  # before a look at each: there may be millions
            raise NotChecked(f"{what} has more than {limit:,} values")
        inner: list[object] = []
        for node in level:
            if type(node) in _NUMBERS:
                continue
            if isinstance(node, dict):
                inner += node.values()
                size += sum(len(name) >> 6 for name in node if isinstance(name, str))
            elif isinstance(node, _LISTS):
                inner += node
            elif isinstance(node, str):
                size += len(node) >> 6
        if size > limit:
            raise NotChecked(f"{what} has more than {limit:,} values")
        depth += 1
        if depth > MAX_DEPTH + 1:  # the leaves of the deepest level that is allowed
            raise NotChecked(f"{what} is nested deeper than {MAX_DEPTH} levels")
        level = inner
    return size


def references_and_patterns(schema: dict[str, object]) -> tuple[bool, int]:
    """Return whether a schema has references, and how many patterns. Raises :class:`NotChecked` for a reference that is
    no pointer into the schema itself, and for more than 100 patterns."""
    waiting: list[object] = [schema]
    references = rebased = False
    patterns = 0
    identity = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            patterns += isinstance(node.get("pattern"), str)
            several = node.get("patternProperties")
            patterns += len(several) if isinstance(several, dict) else 0
            rebased = rebased or (node is not schema and isinstance(node.get(identity), str))
            for key in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(target := node.get(key), str):
                    references = True
                    if key != "$ref" or not (target == "#" or target.startswith("#/")):
                        raise NotChecked(f"{key} to {shorten(redact_url(target) or target)} is not followed")
    if patterns > _MAX_PATTERNS:
        raise NotChecked(f"the schema has more than {_MAX_PATTERNS} patterns")
    if references and rebased:
        raise NotChecked("the schema has references and changes what they are relative to ($id)")
    return references, patterns


_SAME = {"not", "if", "then", "else"}
_SAME_LISTS = {"allOf", "anyOf", "oneOf"}
_SAME_MAPS = {"dependentSchemas", "dependencies"}
_EACH_MEMBER = {"additionalProperties", "unevaluatedProperties"}
_EACH_ITEM = {"items", "additionalItems", "unevaluatedItems", "contains"}
_BY_INDEX = {"items", "prefixItems"}


def count_steps(schema: dict[str, object], data: object) -> int:
    """Return how many pairs of a subschema and a value the validator meets at most. A few references that name each
    other twice make 2^n of them. Raises :class:`NotChecked` above :data:`MAX_STEPS`."""
    waiting: list[tuple[object, object]] = [(schema, data)]
    steps = 0
    while waiting:
        node, value = waiting.pop()
        steps += 1
        if isinstance(node, dict):
            if isinstance(value, str) and "pattern" in node:
                steps += len(value) >> 6
            waiting += islice(_applied(node, value, schema), MAX_STEPS)
        if steps + len(waiting) > MAX_STEPS:
            raise NotChecked("it would take too long")
    return steps


def _applied(node: dict[str, object], value: object, root: object) -> Iterator[tuple[object, object]]:
    """Yield the subschemas of ``node``, each with the part of ``value`` that it applies to."""
    members = value if isinstance(value, dict) else {}
    items = value if isinstance(value, _LISTS) else ()
    for key, inner in node.items():
        if key == "$ref" and isinstance(inner, str):
            yield target_of(root, inner), value
        elif key in _SAME:
            yield inner, value
        elif key in _EACH_MEMBER:
            named = node.get("properties") if key == "additionalProperties" else None
            known = named if isinstance(named, dict) else {}
            yield from ((inner, member) for name, member in members.items() if name not in known)
        elif key == "propertyNames":
            yield from ((inner, name) for name in members)
        elif isinstance(inner, dict):
            if key == "properties":
                yield from ((inner[name], member) for name, member in members.items() if name in inner)
            elif key == "patternProperties":
                yield from ((one, member) for one in inner.values() for member in members.values())
                yield from ((None, None) for name in members for _ in range((len(name) >> 6) * len(inner)))
            elif key in _SAME_MAPS:
                yield from ((one, value) for one in inner.values())
            elif key in _EACH_ITEM:
                yield from ((inner, item) for item in items)
        elif isinstance(inner, list):
            if key in _SAME_LISTS:
                yield from ((one, value) for one in inner)
            elif key in _BY_INDEX:
                yield from zip(inner, items, strict=False)
            elif key == "enum":
                yield from ((None, value) for _ in range(len(inner) >> 4))


def target_of(root: object, pointer: str) -> object:
    """Return the subschema that a pointer such as ``#/$defs/page`` leads to (RFC 6901). Raises :class:`NotChecked` if
    there is none."""
    node = root
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[name] if isinstance(node, dict) else node[int(name)]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError):
            raise NotChecked(f"$ref to {shorten(pointer)} leads nowhere") from None
    return node
