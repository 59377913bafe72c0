"""Parameters that a schema does not name: mostly one of its own, misspelt (JSON Schema lets them pass). No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from ...binary.detect import Place, field_of
from ..spelling import similar_names
from .limits import NotChecked, shorten, target_of

__all__ = ["unnamed_params"]

#: Objects that are looked at, and subschemas and names of all of them together: the schema is the app's.
_MAX_OBJECTS, _MAX_STEPS = 1000, 20_000
#: Hints that are given, names that one lists, and names that are compared.
_MAX_HINTS, _MAX_NAMES, _MAX_COMPARED = 5, 8, 500
#: Keywords that say which other members an object may have. ``false`` says that it may have none.
_OTHERS = ("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames")
_ELSEWHERE = ("$dynamicRef", "$recursiveRef")


def unnamed_params(schema: Mapping[str, object], params: object) -> list[str]:
    """Return a hint for each member of ``params`` that ``schema`` does not name, at most five, where it lists
    ``properties`` and does not say that an object may have others. The schema is one that the validator takes."""
    found = (_hint(place, name, names) for place, name, names in _unnamed(schema, params))
    return list(islice(found, _MAX_HINTS))


def _hint(place: Place, name: str, names: list[str]) -> str:
    given = shorten(field_of((*place, name)))
    nearest = similar_names(name, names[:_MAX_COMPARED], most=1)
    if nearest:
        end = f"did you mean {field_of((*place, nearest[0]))!r}?"
    else:
        end = f"it has {', '.join(map(shorten, names[:_MAX_NAMES]))}{' …' * (len(names) > _MAX_NAMES)}"
    return f"you gave {given!r}, which its inputSchema does not name; {end}"


def _unnamed(schema: Mapping[str, object], params: object) -> Iterator[tuple[Place, str, list[str]]]:
    """Yield the place of an object, the name of a member that nothing names, and the names that there are."""
    waiting: list[tuple[Place, list[object], object]] = [((), [schema], params)]
    steps = iter(range(_MAX_STEPS))
    for _ in range(_MAX_OBJECTS):
        if not waiting:
            return
        place, schemas, value = waiting.pop()
        if isinstance(value, list | tuple):
            items = [one["items"] for one in schemas if isinstance(one, Mapping) and "items" in one]
            waiting += [((*place, n), items, item) for n, item in enumerate(value[:_MAX_OBJECTS])] if items else []
        elif isinstance(value, Mapping) and (named := _named_members(schemas, schema, steps)) is not None:
            for name, member in value.items():
                if isinstance(name, str) and name not in named:
                    yield place, name, [*named]
                elif isinstance(member, Mapping | list | tuple):
                    waiting.append(((*place, name), named[name], member))


def _named_members(
    schemas: list[object], root: Mapping[str, object], steps: Iterator[int]
) -> dict[str, list[object]] | None:
    """Return the members that the schemas of one object name, each with its own schemas; ``None`` if they list none, if
    others may stand beside them, or if ``steps`` are used up. Alternatives count together: which of them is meant is
    not known."""
    named: dict[str, list[object]] = {}
    listed = False
    waiting, seen = list(schemas), set[int]()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        others = any(node.get(key, False) is not False for key in _OTHERS)
        if others or any(key in node for key in _ELSEWHERE):
            return None
        properties, required = node.get("properties"), node.get("required")
        members = properties if isinstance(properties, Mapping) else {}
        listed = listed or bool(members)
        if next(islice(steps, len(members), None), None) is None:
            return None
        for name, inner in members.items():
            named.setdefault(name, []).append(inner)
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str):
                named.setdefault(name, [])
        waiting += _same_place(node, root)
    descriptor = {"content", "mimeType"} <= named.keys()  # a file, whose other fields every app takes
    return named if listed and not descriptor else None


def _same_place(node: Mapping[str, object], root: Mapping[str, object]) -> Iterator[object]:
    """Yield the subschemas of ``node`` that apply to the object itself."""
    for key in ("allOf", "anyOf", "oneOf"):
        several = node.get(key)
        yield from several if isinstance(several, list) else ()
    for key in ("if", "then", "else"):
        yield node.get(key)
    for key in ("dependentSchemas", "dependencies"):
        by_name = node.get(key)
        yield from by_name.values() if isinstance(by_name, Mapping) else ()
    if isinstance(pointer := node.get("$ref"), str):
        try:
            yield target_of(root, pointer)
        except NotChecked:
            yield {"additionalProperties": True}  # nobody knows what it names
