"""One capability for people: what it does, its parameters as a table, and a call of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...protocol.plain_text import plain_line
from ...protocol.schema import is_file
from .output import print_text

if TYPE_CHECKING:
    from ...protocol.declarations import Capability

__all__ = ["flags_of", "print_capability"]

#: Hints of tools (MCP, WebMCP) and their words.
_HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "consequentialHint": "consequential",
    "untrustedContentHint": "untrusted content",
}
#: Levels of objects in objects that the table shows, and the rows that it has at most.
_MAX_DEPTH, _MAX_ROWS = 4, 100
#: Characters of a cell, but the last one of a row, and of a value in the example.
_MAX_CELL, _MAX_VALUE = 40, 200


def flags_of(capability: Capability) -> str:
    """Return what a caller should know of a capability beside its description, each in brackets after a space."""
    flags = "" if capability.available else " [unavailable]"
    flags += " [experimental]" * capability.experimental + " [deprecated]" * capability.deprecated
    return flags + "".join(f" [{word}]" for hint, word in _HINTS.items() if capability.annotations.get(hint) is True)


def print_capability(capability: Capability, target: Sequence[str] = ()) -> None:
    """Print a capability, its parameters and an example. ``target`` are the arguments of ``abp call`` that name the
    app; without them the example is a line of ``abp shell``."""
    print_text(f"{plain_line(capability.name)}{flags_of(capability)}")
    if capability.description:
        print_text(plain_line(capability.description))
    rows = [tuple(map(plain_line, row)) for row in islice(_rows(capability.input_schema), _MAX_ROWS + 1)]
    if rows:
        if len(rows) > _MAX_ROWS:
            rows[_MAX_ROWS:] = [("…", "", "", "", "and more")]
        head = ("parameter", "type", "needed", "default", "description")
        widths = [max(len(row[n]) for row in (head, *rows)) for n in range(4)]
        print_text("")
        for row in (head, *rows):
            cells = (f"{cell:<{width}}" for cell, width in zip(row, (*widths, 0), strict=True))
            print_text("  " + "  ".join(cells).rstrip())
    else:
        print_text("It declares no parameters.")
    print_text(f"\nexample: {plain_line(_example(capability, target))}")


def _rows(schema: Mapping[str, Any], above: str = "", depth: int = 1) -> Iterator[tuple[str, ...]]:
    properties = schema.get("properties")
    required = schema.get("required")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        one = inner if isinstance(inner, Mapping) else {}
        needed = "yes" if isinstance(required, list) and name in required else ""
        default = _cut(json.dumps(one["default"], ensure_ascii=False)) if "default" in one else ""
        yield _cut(f"{above}{name}"), _cut(_type_of(one)), needed, default, str(one.get("description", ""))
        if depth < _MAX_DEPTH and not is_file(one):
            yield from _rows(one, f"{above}{name}.", depth + 1)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"


def _type_of(schema: Mapping[str, Any]) -> str:
    """The type of a parameter, or the values that it may have."""
    if is_file(schema):
        return "file"
    values = schema.get("enum")
    if isinstance(values, list):
        return " | ".join(map(str, values))
    kind = schema.get("type")
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind or "any")


def _example(capability: Capability, target: Sequence[str]) -> str:
    """A call with the app's own example of parameters, else with the needed ones, each the smallest that fits."""
    from ...binary import BinaryData
    from ...testing.conformance.inputs import CannotGenerate, generated_params

    words = [*target, capability.name]
    try:
        params = generated_params(capability.name, capability.input_schema)[0]
    except CannotGenerate:
        params = {}
    parts = [" ".join(map(shlex.quote, words))]
    for name, value in params.items():
        if isinstance(value, BinaryData):
            parts.append(f"--file {name}={value.filename}" if target else f"{name}@{value.filename}")
            continue
        text = value if target and isinstance(value, str) and _is_text(value) else json.dumps(value, ensure_ascii=False)
        given = f"{name}={text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + '…'}"
        parts.append(f"-p {shlex.quote(given)}" if target else given)
    return " ".join(parts)


def _is_text(value: str) -> bool:
    """Whether ``-p KEY=VALUE`` takes the text as it is, and not for JSON."""
    from .params import parse_value

    return parse_value(value) == value and not value.startswith("@")
