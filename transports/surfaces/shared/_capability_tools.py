"""Capabilities as tools of a model: names, descriptions, schemas and hints within limits. No I/O."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import cast

from ...protocol._declarations import Capability
from ...protocol._find_content import Place, replace
from ...protocol._plain_text import plain_line, plain_schema
from ...protocol._strict_json import JSONValue, encode_json
from ...protocol.schema import is_file
from ...routing._result import Result
from ...session._resources import READ_HINT

#: Most capabilities with a tool of their own.
MAX_TOOLS = 200
#: Most characters of a tool's name and description, and bytes of its schema.
_MAX_NAME, _MAX_DESCRIPTION, _MAX_SCHEMA = 64, 1000, 16 * 1024
#: Most characters of the line with a capability's parameters.
_MAX_PARAMETERS = 200
_HEADER = "x-mcp-header"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
#: Hints of behaviour in MCP.
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def tool_name(capability: str) -> str:
    """Return the name of a capability's tool: ``abp_`` and the name of the capability, with ``_`` for characters other
    than letters, digits, ``_`` and ``-``. A second tool of that name gets a number (:func:`free_tool_name`)."""
    return f"abp_{_UNSAFE.sub('_', capability)}"[:_MAX_NAME]


def free_tool_name(capability: str, taken: Collection[str]) -> str:
    """Return the name of a capability's tool, with a number if it is among ``taken``."""
    base = tool_name(capability)
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base[: _MAX_NAME - 5]}_{count}"
    return name


def tool_description(capability: Capability, *marks: str) -> str:
    """Return the description of a capability's tool in one line, with its state and ``marks`` in parentheses."""
    description = capability.description or f"The capability {capability.name}."
    found = [word for word in ("experimental", "deprecated") if getattr(capability, word)]
    found += [] if capability.available else ["not available now"]
    found += marks
    return plain_line(description, _MAX_DESCRIPTION) + (f" ({', '.join(found)})" if found else "")


def tool_hints(capability: Capability) -> dict[str, bool]:
    """Return MCP's hints of behaviour: unverified claims of the app. A missing hint means the more dangerous value."""
    given = capability.annotations
    return {name: value for name in _HINTS if isinstance(value := given.get(name), bool)}


def tool_schema(capability: Capability) -> dict[str, object]:
    """Return the schema of a capability's parameters without what must not be in a model's context; ``{"type":
    "object"}`` for a schema of more than 16 KiB, and for a broken one."""
    if len(encode_json(capability.input_schema)) > _MAX_SCHEMA:
        return {"type": "object"}
    plain = plain_schema(capability.input_schema)
    return {"type": "object"} if plain is None else {key: _without_headers(value) for key, value in plain.items()}


def type_name(schema: object) -> str:
    """Return the type of a parameter in a word: ``file``, ``string``, ``string | null``, ``any``."""
    declared = schema if isinstance(schema, Mapping) else {}
    if is_file(declared):
        return "file"
    kind = declared.get("type")
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind or "any")


def parameters_line(capability: Capability) -> str:
    """Return the parameters of a capability with their types, the required ones first and the others with ``?``."""
    schema = tool_schema(capability)
    properties, needed = schema.get("properties"), schema.get("required")
    declared = properties if isinstance(properties, Mapping) else {}
    required = needed if isinstance(needed, list) else []
    first = [f"{name}: {type_name(declared[name])}" for name in declared if name in required]
    others = [f"{name}?: {type_name(declared[name])}" for name in declared if name not in required]
    return plain_line(", ".join(first + others), _MAX_PARAMETERS)


def _without_headers(schema: object) -> object:
    """Return ``schema`` without ``x-mcp-header``. It makes clients copy parameters into headers and promises that the
    server compares them (SEP-2243), which an app cannot promise for a surface."""
    if isinstance(schema, Mapping):
        allowed = {key: value for key, value in schema.items() if key != _HEADER or not isinstance(value, str)}
        return {key: _without_headers(value) for key, value in allowed.items()}
    return [_without_headers(one) for one in schema] if isinstance(schema, list) else schema


def with_tool_names(result: Result) -> Result:
    """Return ``result`` with the hints of its links naming the tool that reads them, instead of the capability."""
    blocks = result.data.get("content") if isinstance(result.data, dict) else None
    if not isinstance(blocks, list):
        return result
    hint = READ_HINT.replace("resources.read", tool_name("resources.read"))
    links = [at for at, block in enumerate(blocks) if isinstance(block, dict) and block.get("hint") == READ_HINT]
    places: dict[Place, object] = {("content", at, "hint"): hint for at in links}
    return dataclasses.replace(result, data=cast(JSONValue, replace(result.data, places)))
