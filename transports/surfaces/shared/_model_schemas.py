"""Schemas of tools as the APIs of models take them: one that they refuse fails the whole request (docs/agents.md).
No I/O.

* :func:`model_schema` — an app's schema repaired, folded at its root, and with names that models may use.
* :func:`app_arguments` — the arguments of a model's call with the app's own names.

A call is checked against the app's own schema, so that the error of a call names what is lost here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard

from ...protocol._plain_text import plain_line
from ...protocol._strict_json import encode_json

#: JSON Schema.
Schema: TypeAlias = dict[str, object]

#: Maximum levels of a schema.
_MAX_DEPTH = 64
#: Maximum characters of a rule in words.
_MAX_RULE = 300
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
#: Types of other languages, as generators of schemas write them.
_SPELLINGS = {
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "str": "string",
    "text": "string",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
}
_SUBSCHEMAS = frozenset(
    {
        *("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"),
        *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    }
)
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_COUNTS = frozenset(
    {
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains"),
    }
)
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_TEXTS = frozenset(
    {"title", "description", "format", "pattern", "contentEncoding", "contentMediaType", "$comment", "$ref"}
)
_FLAGS = frozenset({"uniqueItems", "deprecated", "readOnly", "writeOnly"})
#: Keywords about a document of its own or of older drafts. What they require is checked with the call.
_LEFT_OUT = frozenset(
    {
        *("$schema", "$id", "$anchor", "$vocabulary", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"),
        *("$recursiveAnchor", "additionalItems", "dependencies", "divisibleBy", "disallow", "extends"),
    }
)
#: Keywords that the APIs refuse at the root.
_AT_ROOT = (
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "$ref"),
    *("dependentSchemas", "dependentRequired", "patternProperties", "propertyNames", "unevaluatedProperties"),
)
#: Name of a parameter that all APIs take (Anthropic's is the narrowest).
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """The schema of a tool for models. ``rules`` is what it cannot say, in words for the description, ``names`` the
    app's name of each renamed parameter, and ``is_complete`` is false if the app may take parameters that are not in
    it."""

    schema: Schema
    rules: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True


def model_schema(schema: Mapping[str, object]) -> ModelSchema:
    """Return the schema of an object with properties, valid in JSON Schema 2020-12, from whatever an app declares."""
    import jsonschema_rs  # slow to import

    repaired = _repaired(_without_root_reference(schema), 0)
    is_complete = any(key in repaired for key in ("properties", "allOf", "anyOf", "oneOf"))
    names = _model_names(repaired)
    folded, rules = _folded(_renamed(repaired, {app: model for model, app in names.items()}))
    _drop_dangling(folded, folded)
    if not jsonschema_rs.meta.is_valid(folded):
        is_complete = False
        properties = folded["properties"]
        assert isinstance(properties, dict)
        for name, member in properties.items():
            if not jsonschema_rs.meta.is_valid(member):
                properties[name] = {}
        folded = {"type": "object", "properties": properties}
    return ModelSchema(folded, plain_line(" ".join(rules), 600), names, is_complete)


def _without_root_reference(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return a schema whose root is what it refers to."""
    for _ in range(_MAX_DEPTH):
        target = _resolved(schema.get("$ref"), schema)
        if not isinstance(target, Mapping) or target is schema:
            break
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside}
    return schema


def _resolved(reference: object, root: Mapping[str, object]) -> object:
    """Return the part of a schema that a local reference names; ``None`` for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    part: object = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping):
            part = part.get(name)
        elif isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        else:
            return None
    return part


# --- repair -----------------------------------------------------------------------------------------------------------


def _repaired(schema: object, depth: int) -> Schema:
    """Return a schema without keywords whose values have no meaning in JSON Schema 2020-12, and with those of older
    drafts in today's words."""
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    repaired: Schema = {}
    for keyword, value in schema.items():
        if keyword not in _LEFT_OUT and not (keyword == "id" and isinstance(value, str)):
            _copy(keyword, value, repaired, depth)
    _repair_bounds(schema, repaired)
    _repair_items(schema, repaired, depth)
    required = _required(schema)
    if required:
        repaired["required"] = required
    return repaired


def _copy(keyword: str, value: object, repaired: Schema, depth: int) -> None:
    if keyword in _SUBSCHEMAS:
        if isinstance(value, Mapping):
            repaired[keyword] = _repaired(value, depth + 1)
        elif isinstance(value, bool):
            repaired[keyword] = value
    elif keyword in _LISTS:
        if isinstance(value, list) and value:
            repaired[keyword] = [_repaired(part, depth + 1) for part in value]
    elif keyword in _MAPS:
        if isinstance(value, Mapping):
            repaired[keyword] = {str(name): _repaired(part, depth + 1) for name, part in value.items()}
    elif keyword == "type":
        kinds = _types_in(value)
        if len(kinds) == 1:
            repaired["type"] = kinds[0]
        elif kinds:
            repaired["type"] = kinds
    elif keyword == "enum":
        if isinstance(value, list) and value:
            repaired["enum"] = [item for index, item in enumerate(value) if not _is_among(item, value[:index])]
    elif keyword == "dependentRequired":
        if isinstance(value, Mapping):
            repaired[keyword] = {str(name): _names_in(needed) for name, needed in value.items()}
    elif keyword in _COUNTS:
        if _is_number(value) and value >= 0 and value == int(value):
            repaired[keyword] = int(value)
    elif keyword != "required" and _has_form(keyword, value):
        repaired[keyword] = value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_form(keyword: str, value: object) -> bool:
    """Return whether the value of a keyword without subschemas has the right form."""
    if keyword in _BOUNDS:
        return _is_number(value)
    if keyword in _TEXTS:
        return isinstance(value, str)
    if keyword in _FLAGS:
        return isinstance(value, bool)
    if keyword == "examples":
        return isinstance(value, list)
    return value is not None or keyword in ("default", "const")


def _types_in(value: object) -> list[str]:
    kinds: list[str] = []
    for kind in _each(value):
        if not isinstance(kind, str):
            continue
        name = _SPELLINGS.get(kind.lower(), kind.lower())
        if name in _TYPES and name not in kinds:
            kinds.append(name)
    return kinds


def _is_among(item: object, items: Sequence[object]) -> bool:
    """Return whether a list has a JSON value; ``1`` and ``True`` are two."""
    return any(item == other and isinstance(item, bool) is isinstance(other, bool) for other in items)


def _names_in(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return [*dict.fromkeys(name for name in value if isinstance(name, str))]


def _required(schema: Mapping[str, object]) -> list[str]:
    """Return the required members: the names in ``required``, and members with ``required: true`` (draft 3)."""
    names = _names_in(schema.get("required"))
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, part in properties.items():
            if isinstance(part, Mapping) and part.get("required") is True:
                names.append(str(name))
    return [*dict.fromkeys(names)]


def _repair_bounds(schema: Mapping[str, object], repaired: Schema) -> None:
    """Turn draft 4's ``exclusiveMinimum: true`` into today's number."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and bound in repaired:
            repaired[exclusive] = repaired.pop(bound)
    multiple = repaired.get("multipleOf")
    if isinstance(multiple, int | float) and multiple <= 0:
        del repaired["multipleOf"]


def _repair_items(schema: Mapping[str, object], repaired: Schema, depth: int) -> None:
    """Turn the tuples of older drafts into today's, and say of each array what its items are: some APIs need that."""
    items, beyond = schema.get("items"), schema.get("additionalItems")
    if isinstance(items, list):
        parts = [_repaired(part, depth + 1) for part in items]
        if parts:
            repaired["prefixItems"] = parts
        repaired["items"] = {}
        if isinstance(beyond, Mapping):
            repaired["items"] = _repaired(beyond, depth + 1)
        elif beyond is False:
            repaired.setdefault("maxItems", len(parts))
    elif isinstance(items, bool) and "prefixItems" in repaired:
        if items is False:
            prefix = repaired["prefixItems"]
            assert isinstance(prefix, list)
            repaired.setdefault("maxItems", len(prefix))
        repaired["items"] = {}
    elif "array" in _types_in(schema.get("type")) and not isinstance(items, Mapping):
        repaired["items"] = {}


def _drop_dangling(part: object, root: Schema) -> None:
    """Remove the references that name nothing in the schema."""
    waiting = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and not isinstance(_resolved(reference, root), dict):
                del node["$ref"]
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


# --- the root ---------------------------------------------------------------------------------------------------------


def _folded(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a schema whose root is an object with properties and nothing that the APIs refuse there, and what it
    cannot say any more, in words."""
    properties: Schema = {}
    needed: list[str] = []
    rules: list[str] = []
    _fold(schema, properties, needed, rules, 0)
    allowed = {key: value for key, value in schema.items() if key not in (*_AT_ROOT, "required")}
    folded: Schema = {**allowed, "type": "object", "properties": properties}
    required = [name for name in dict.fromkeys(needed) if name in properties]
    if required:
        folded["required"] = required
    return folded, rules


def _fold(schema: Schema, properties: Schema, needed: list[str], rules: list[str], depth: int) -> None:
    """Add what a schema says of an object to its properties and required members, and the rest to the rules."""
    members, required = schema.get("properties"), schema.get("required")
    if isinstance(members, dict):
        _merge(members, properties)
    if isinstance(required, list):
        needed += required
    for keyword in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(keyword)
        if not isinstance(branches, list) or depth > _MAX_DEPTH:
            continue
        if keyword == "allOf":
            for branch in branches:
                _fold(branch, properties, needed, rules, depth + 1)
            continue
        sets: list[list[str]] = []
        for branch in branches:
            needed_in_branch: list[str] = []
            _fold(branch, properties, needed_in_branch, [], depth + 1)
            sets.append(needed_in_branch)
        needed += [name for name in sets[0] if all(name in names for names in sets)]
        rules.append(_choice_rule(keyword, branches, sets))
    for keyword in ("then", "else"):
        branch = schema.get(keyword)
        if isinstance(branch, dict):
            _fold(branch, properties, [], [], depth + 1)
    checked = ["not", "dependentRequired", "dependentSchemas"]
    if "if" in schema:
        checked += ["if", "then", "else"]
    rest = {key: schema[key] for key in checked if key in schema}
    if rest:
        rules.append(f"The app checks this rule: {_short(rest)}.")


def _merge(added: Schema, properties: Schema) -> None:
    """Add properties; one that two branches describe in two ways may have either."""
    for name, part in added.items():
        before = properties.get(name)
        if before is None or before == {}:
            properties[name] = part
        elif part not in (before, {}):
            choices: list[object] = [before]
            if isinstance(before, dict) and before.keys() == {"anyOf"}:
                choices = before["anyOf"]
            if part not in choices:
                properties[name] = {"anyOf": [*choices, part]}


def _choice_rule(keyword: str, branches: list[Schema], sets: list[list[str]]) -> str:
    """Return in words which parameters go together."""
    count = "exactly one" if keyword == "oneOf" else "at least one"
    if all(sets):
        listed = "; ".join(", ".join(names) for names in sets)
        return f"Give {count} of these sets of parameters: {listed[:_MAX_RULE]}."
    return f"The parameters fit {count} of {_short(branches)}."


def _short(part: object) -> str:
    text = encode_json(part).decode()
    if len(text) <= _MAX_RULE:
        return text
    return f"{text[: _MAX_RULE - 1]}…"


# --- names ------------------------------------------------------------------------------------------------------------


def _model_names(schema: Schema) -> dict[str, str]:
    """Return a name for each parameter whose own the APIs refuse, with that."""
    app_names = {*_all_names(schema)}
    names: dict[str, str] = {}
    for name in sorted(app_names):
        if _NAME.fullmatch(name):
            continue
        base = _UNSAFE.sub("_", name).strip("_")[:60] or "parameter"
        free = base
        count = 1
        while free in app_names or free in names:
            count += 1
            free = f"{base}_{count}"
        names[free] = name
    return names


def _all_names(schema: object) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        for keyword, part in _parts(waiting.pop()):
            if keyword == "properties" and isinstance(part, dict):
                yield from part
            if keyword in _MAPS and isinstance(part, dict):
                waiting += part.values()
            else:
                waiting += _each(part)


def _parts(schema: object) -> Iterator[tuple[str, object]]:
    """Yield the keywords of a schema that hold schemas."""
    if isinstance(schema, dict):
        for keyword, part in schema.items():
            if keyword in _SUBSCHEMAS or keyword in _LISTS or keyword in _MAPS:
                yield keyword, part


def _each(part: object) -> list[object]:
    return part if isinstance(part, list) else [part]


def _renamed(schema: object, names: Mapping[str, str]) -> Schema:
    """Return a schema with ``names`` instead of the app's."""
    if not isinstance(schema, dict):
        return {}
    if not names:
        return schema
    renamed: Schema = dict(schema)
    for keyword, part in _parts(schema):
        if isinstance(part, bool):
            continue
        if keyword == "properties" and isinstance(part, dict):
            renamed[keyword] = members = {}
            for name, inner in part.items():
                members[names.get(name, name)] = _described(_renamed(inner, names), name, names)
        elif keyword == "dependentSchemas" and isinstance(part, dict):
            renamed[keyword] = {names.get(name, name): _renamed(inner, names) for name, inner in part.items()}
        elif keyword in _MAPS and isinstance(part, dict):
            renamed[keyword] = {name: _renamed(inner, names) for name, inner in part.items()}
        elif isinstance(part, list):
            renamed[keyword] = [_renamed(inner, names) for inner in part]
        else:
            renamed[keyword] = _renamed(part, names)
    required, dependent = schema.get("required"), schema.get("dependentRequired")
    if isinstance(required, list):
        renamed["required"] = [names.get(str(name), name) for name in required]
    if isinstance(dependent, dict):
        renamed["dependentRequired"] = dependencies = {}
        for name, others in dependent.items():
            dependencies[names.get(name, name)] = [names.get(other, other) for other in others]
    return renamed


def _described(schema: Schema, name: str, names: Mapping[str, str]) -> Schema:
    """Return the schema of a parameter. A renamed one names the app's own parameter, which the app's errors use."""
    if name not in names:
        return schema
    text = f"The app calls it {plain_line(name, _MAX_RULE)!r}."
    description = schema.get("description")
    if isinstance(description, str) and description:
        text = f"{description} {text}"
    return {**schema, "description": text}


def app_arguments(model: ModelSchema, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call with the app's names instead of the names for models."""
    if not model.names:
        return dict(arguments)
    renamed = _with_app_names(model.schema, arguments, model)
    assert isinstance(renamed, dict)
    return renamed


def _with_app_names(schema: object, value: object, model: ModelSchema) -> object:
    alternatives = [*_alternatives(schema, model.schema)]
    if isinstance(value, Mapping):
        members = [part.get("properties") for part in alternatives]
        others = [part["additionalProperties"] for part in alternatives if "additionalProperties" in part]
        renamed: dict[str, object] = {}
        for name, inner in value.items():
            declared = [part[name] for part in members if isinstance(part, dict) and name in part]
            if declared:
                renamed[model.names.get(name, name)] = _with_app_names({"anyOf": declared}, inner, model)
            else:
                renamed[name] = _with_app_names({"anyOf": others}, inner, model)
        return renamed
    if isinstance(value, list):
        items: list[object] = []
        for part in alternatives:
            items += _each(part.get("items"))
            items += _each(part.get("prefixItems"))
        return [_with_app_names({"anyOf": items}, inner, model) for inner in value]
    return value


def _alternatives(schema: object, root: Schema) -> Iterator[Schema]:
    """Yield a schema, what it refers to, and its branches."""
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting.append(_resolved(part.get("$ref"), root))
        for keyword in ("anyOf", "oneOf", "allOf"):
            waiting += _each(part.get(keyword))
        waiting += [part.get("then"), part.get("else")]
