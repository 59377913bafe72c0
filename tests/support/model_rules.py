"""Rules of the APIs of models for the schemas of tools (docs/agents.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_AT_ROOT = {"anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "$ref"}


def parts_of(schema: object) -> Iterator[dict[str, Any]]:
    """A schema and all schemas in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield from parts_of(schema.get(keyword))
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in schema.get(keyword, []):
            yield from parts_of(part)
    for keyword in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
        for part in schema.get(keyword, {}).values():
            yield from parts_of(part)


def check_rules(schema: dict[str, Any]) -> None:
    """What the APIs of models refuse (docs/agents.md)."""
    jsonschema_rs.meta.validate(schema)
    assert schema["type"] == "object" and isinstance(schema["properties"], dict)
    assert not schema.keys() & _AT_ROOT
    for part in parts_of(schema):
        kind = part.get("type", [])
        if "array" in (kind if isinstance(kind, list) else [kind]):
            assert isinstance(part["items"], dict)
        assert all(map(_NAME.fullmatch, part.get("properties", {})))
        if (reference := part.get("$ref")) is not None:
            target: Any = schema
            for step in reference.removeprefix("#").split("/")[1:]:
                target = target[int(step) if isinstance(target, list) else step]
            assert isinstance(target, dict)
