"""Schemas of tools for models: files as references, and the strict form. No I/O.

* :func:`with_references` — parameters for files become texts that name one; :func:`given_files` finds them in a call.
* :func:`strict_schema` — the form in which a model can give nothing else; :func:`without_nulls` undoes it in a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

from ..protocol._find_content import Place
from ..protocol.schema import is_file

#: JSON Schema.
Schema: TypeAlias = dict[str, object]
#: Levels of objects and lists in which files are looked for.
_MAX_DEPTH = 16
#: Beginning of the URI of an artifact.
URI = "artifact://"
_BASE64_TEXT = "Base64, or the URI of a file that a tool has produced (artifact://…)."


def with_references(schema: Mapping[str, object], description: str, depth: int = 0) -> Schema:
    """Return ``schema`` with a text parameter in the place of each parameter for a file.

    ``description`` says what to write there; it follows the parameter's own description. ``depth`` is the level of
    ``schema`` below the object of all parameters."""
    if depth > _MAX_DEPTH:
        return dict(schema)
    # The object of all parameters is never a file itself.
    if depth > 0 and (is_file(schema) or _is_base64(schema)):
        text = description if is_file(schema) else _BASE64_TEXT
        if isinstance(schema.get("description"), str):
            text = f"{schema['description']}. {text}"
        return {"type": "string", "description": text}

    replaced = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        members = dict(properties)
        replaced["properties"] = members
        for name, member in properties.items():
            if isinstance(member, Mapping):
                members[name] = with_references(member, description, depth + 1)
    items = schema.get("items")
    if isinstance(items, Mapping):
        replaced["items"] = with_references(items, description, depth + 1)
    return replaced


def given_files(schema: Mapping[str, object], value: object, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the place and the text of each argument that names a file.

    The app's own ``schema`` says which arguments are files."""
    if len(place) > _MAX_DEPTH:
        return
    if isinstance(value, str):
        if is_file(schema) or (_is_base64(schema) and value.startswith(URI)):
            yield place, value
        return

    properties = schema.get("properties")
    items = schema.get("items")
    if isinstance(value, Mapping) and isinstance(properties, Mapping):
        for name, inner in value.items():
            member = properties.get(name)
            if isinstance(member, Mapping):
                yield from given_files(member, inner, (*place, name))
    elif isinstance(value, list) and isinstance(items, Mapping):
        for index, inner in enumerate(value):
            yield from given_files(items, inner, (*place, index))


def _is_base64(schema: Mapping[str, object]) -> bool:
    """Return whether a parameter is a text in base64, as MCP servers take files."""
    if schema.get("type") != "string":
        return False
    return schema.get("contentEncoding") == "base64" or schema.get("format") in ("byte", "binary", "base64")


_SIMPLE = ("string", "number", "integer", "boolean", "null")
#: Keywords that make a schema impossible to write strictly.
_OPEN = (
    "allOf",
    "not",
    "if",
    "dependentSchemas",
    "dependencies",
    "dependentRequired",
    "patternProperties",
    "$ref",
    "$dynamicRef",
    "prefixItems",
    "propertyNames",
    "unevaluatedProperties",
)


class _NotStrict(Exception):
    """Reason for leaving a schema as it is."""


def strict_schema(schema: Mapping[str, object]) -> Schema | None:
    """Return ``schema`` in the strict form of model providers: objects have no other members, all members are required,
    and those that may be left out are nullable. Limits such as ``minLength`` are left out, since the session checks
    each call by the app's own schema.

    ``None`` if a model could then not say all that the app takes: objects with any members, references, values without
    a type."""
    if "anyOf" in schema or "oneOf" in schema:
        return None
    try:
        strict = _to_strict(schema, 1)
    except _NotStrict:
        return None
    if _count_properties(strict) > 5000:  # the limit of OpenAI's structured outputs
        return None
    return strict


def _to_strict(schema: object, level: int) -> Schema:
    """Return the strict form of a schema at a ``level`` of nested objects. Raises :class:`_NotStrict` without one."""
    # The limit of OpenAI's structured outputs.
    max_level = 10
    if not isinstance(schema, Mapping) or level > max_level or any(key in schema for key in _OPEN):
        raise _NotStrict

    description: Schema = {}
    if "description" in schema:
        description["description"] = schema["description"]

    branches = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(branches, list):
        return {**description, "anyOf": [_strict_branch(branch, level) for branch in branches]}

    kind = schema.get("type", _kind_of_values(schema))
    if kind == "object":
        return {**description, **_strict_object(schema, level)}
    if kind == "array":
        return {**description, "type": "array", "items": _to_strict(schema.get("items"), level)}

    kinds = kind if isinstance(kind, list) else [kind]
    if not kinds or not all(name in _SIMPLE for name in kinds):
        raise _NotStrict
    values = {key: schema[key] for key in ("enum", "const") if key in schema}
    return {"type": kind, **description, **values}


def _strict_branch(schema: object, level: int) -> Schema:
    """Return the strict form of one alternative of ``anyOf``.

    An object among alternatives must not have optional members: it would not be known which alternative the null of a
    member belongs to."""
    strict = _to_strict(schema, level)
    if isinstance(schema, Mapping) and "object" in _kinds(schema):
        required = schema.get("required")
        members = cast(Schema, strict.get("properties", {}))
        if not isinstance(required, list) or not members.keys() <= {*map(str, required)}:
            raise _NotStrict
    return strict


def _kinds(schema: Mapping[str, object]) -> list[object]:
    """Return the types of a schema, of which it may have one or several."""
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _strict_object(schema: Mapping[str, object], level: int) -> Schema:
    """Return the strict form of an object: optional members become required and nullable."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties", False) is not False:
        raise _NotStrict
    required = _required(schema)
    undeclared = {str(name) for name in required} - properties.keys()
    if undeclared:
        raise _NotStrict

    members: Schema = {}
    for name, member in properties.items():
        strict = _to_strict(member, level + 1)
        if name not in required:
            strict = _nullable(strict)
        members[name] = strict
    return {"type": "object", "properties": members, "required": [*members], "additionalProperties": False}


def _required(schema: Mapping[str, object]) -> list[object]:
    required = schema.get("required")
    return required if isinstance(required, list) else []


def _nullable(schema: Schema) -> Schema:
    """Return a strict schema that also allows null."""
    if _allows_null(schema):
        return schema

    kind = schema.get("type")
    is_simple = isinstance(kind, str | list) and kind not in ("object", "array")
    if is_simple and "const" not in schema:
        nullable = {**schema, "type": [*_kinds(schema), "null"]}
        values = schema.get("enum")
        if isinstance(values, list):
            nullable["enum"] = [*values, None]
        return nullable

    branches = schema.get("anyOf")
    if isinstance(branches, list):
        return {**schema, "anyOf": [*branches, {"type": "null"}]}

    description = {key: value for key, value in schema.items() if key == "description"}
    rest = {key: value for key, value in schema.items() if key != "description"}
    return {**description, "anyOf": [rest, {"type": "null"}]}


def _kind_of_values(schema: Mapping[str, object]) -> str | None:
    """Return the type of an enumeration without one, if all its values are texts."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return "string"
    return None


def _allows_null(schema: Mapping[str, object]) -> bool:
    """Return whether null is a value that a schema takes: by its type, in an alternative, or among its values."""
    if "null" in _kinds(schema):
        return True
    branches = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(branches, list):
        return any(isinstance(branch, Mapping) and _allows_null(branch) for branch in branches)
    values = schema.get("enum")
    return "type" not in schema and isinstance(values, list) and None in values


def _count_properties(schema: object) -> int:
    """Return the number of properties in a schema, at all levels."""
    if isinstance(schema, Mapping):
        properties = _mapping(schema.get("properties"))
        return len(properties) + sum(map(_count_properties, schema.values()))
    if isinstance(schema, list):
        return sum(map(_count_properties, schema))
    return 0


def without_nulls(schema: object, value: object) -> object:
    """Return the arguments of a strict call without the nulls that stand for members that were left out.

    ``schema`` is the one from which the strict schema was made: a null that it allows is a value."""
    if not isinstance(schema, Mapping):
        return value

    properties = schema.get("properties")
    if isinstance(value, Mapping) and isinstance(properties, Mapping):
        required = _required(schema)
        present: dict[object, object] = {}
        for name, inner in value.items():
            member = properties.get(name)
            if inner is not None or name in required or _allows_null(_mapping(member)):
                present[name] = without_nulls(member, inner)
        return present
    if isinstance(value, list):
        return [without_nulls(schema.get("items"), inner) for inner in value]
    return value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
