"""Capabilities as tools of a model: names, descriptions, hints, errors as text, and schemas that the APIs of models
accept. No I/O.

An API refuses the whole request if it does not accept one of the schemas (docs/agents.md). :func:`tool_schema` returns
the app's schema without what no model must see. :func:`model_schema` repairs it, folds it at its root, and gives
parameters names that models may use; :func:`app_arguments` gives the arguments of a call the app's names again. A call
is checked against the app's whole schema, so its error names what is lost here."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...errors import ABPError, ArtifactNotFound, UsageError, may_have_run, repeat_advice
from ...protocol._declarations import Capability
from ...protocol._plain_text import plain_line, plain_schema
from ...protocol._strict_json import encode_json, members_of
from ...protocol.schema import NotChecked, is_file, target_of

#: Maximum number of capabilities with a tool of their own.
MAX_TOOLS = 200
#: Maximum number of characters of a tool's name. The APIs accept 64, but clients put the name of the server before it,
#: such as ``mcp__abp__``. Some clients silently leave out a tool whose name is then too long.
_MAX_NAME = 54


def tool_name(capability: str) -> str:
    """Make the name of a capability's tool. Two tools may get the same name; :func:`free_tool_name` adds a number."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", capability)
    return f"abp_{name}"[:_MAX_NAME]


def free_tool_name(capability: str, taken: Container[str]) -> str:
    return free_name(tool_name(capability), taken, max_base=_MAX_NAME - 5)


def free_name(base: str, taken: Container[str], *, max_base: int | None = None) -> str:
    """Return ``base``, or if it is among ``taken``, its first ``max_base`` characters with a number."""
    name = base
    count = 1
    while name in taken:
        count += 1
        name = f"{base[:max_base]}_{count}"
    return name


def tool_description(capability: Capability, rules: str, *marks: str) -> str:
    """Describe a capability in the app's own words, cut if too long, then its state, ``marks`` and ``rules``."""
    notes = []
    if capability.experimental:
        notes.append("experimental")
    if capability.deprecated:
        notes.append("deprecated")
    if not capability.available:
        notes.append("not available now")
    notes += marks
    end = f" ({', '.join(notes)})" if notes else ""
    if rules:
        end += f" {rules}"
    max_description = 1024  # of OpenAI
    words = plain_line(capability.description or f"The capability {capability.name}.", max_description - len(end))
    return words + end


def tool_hints(capability: Capability) -> dict[str, bool]:
    """Return the app's claims, which are not verified. A missing hint means the more dangerous value."""
    hints: dict[str, bool] = {}
    for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"):
        value = capability.annotations.get(name)
        if isinstance(value, bool):
            hints[name] = value
    return hints


def tool_schema(capability: Capability) -> dict[str, object]:
    """Return a capability's schema without what no model must see. A broken schema, or one of more than 16 KiB, becomes
    ``{"type": "object"}``."""
    max_bytes = 16 * 1024
    if len(encode_json(capability.input_schema)) > max_bytes:
        return {"type": "object"}
    return plain_schema(capability.input_schema) or {"type": "object"}


def type_name(schema: object) -> str:
    """Return the type of a parameter in a word: ``file``, ``string``, ``string | null``, ``any``."""
    if not isinstance(schema, Mapping):
        return "any"
    if is_file(schema):
        return "file"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    return str(kind or "any")


def parameters_line(capability: Capability) -> str:
    """Return the parameters of a capability with their types, the required ones first and the others with ``?``."""
    schema = tool_schema(capability)
    required = schema.get("required")
    required_parameters = []
    optional_parameters = []
    for name, member in members_of(schema.get("properties")).items():
        if isinstance(required, list) and name in required:
            required_parameters.append(f"{name}: {type_name(member)}")
        else:
            optional_parameters.append(f"{name}?: {type_name(member)}")
    return plain_line(", ".join(required_parameters + optional_parameters), 200)


#: Next step by error code, the same on every surface.
_NEXT_STEPS = {
    "CANCELLED": "ask the user whether to go on",
    "INVALID_ANSWER": "call again, and answer the app's question as it asks",
    "PERMISSION_REQUIRED": "ask the user",
    "PERMISSION_DENIED": "ask the user",
    "TRANSPORT_ERROR": "check the address, and whether the app runs",
    "BROWSER_ERROR": "have the user run `abp doctor`",
    "NOT_SUPPORTED": "check with the user that this app speaks ABP",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """What a surface tells a model to do after an error. ``by_code`` are steps by the code of the error, in which
    ``{again}`` is the advice on repeating the call. The others are for an artifact that is not there, a lost
    connection, and wrong arguments."""

    by_code: Mapping[str, str]
    no_artifact: str
    connect: str
    arguments: str


def error_lines(error: ABPError, advice: Advice) -> list[str]:
    """Describe an error to a model: the message, whether the call may be repeated, and what to do next."""
    lines = [f"{error.message} [{error.code}]"]
    if not error.retryable:
        lines.append("Retryable: no, not until something changes")
    elif error.retry_after is None:
        lines.append("Retryable: yes")
    else:
        lines.append(f"Retryable: yes, after {error.retry_after:g} s")
    if error.alternatives:
        lines.append(f"Alternatives: {', '.join(error.alternatives[:20])}")
    lines.append(f"Next: {_next_step(error, advice)}")
    return lines


def _next_step(error: ABPError, advice: Advice) -> str:
    if isinstance(error, ArtifactNotFound):
        return advice.no_artifact

    again = repeat_advice(error)
    step = advice.by_code.get(error.code) or _NEXT_STEPS.get(error.code)
    if step:
        return step.format(again=again)

    argument = error.details.get("argument")
    if argument:
        return f"correct the argument {argument} and call again"

    if not error.session_survives:
        if error.retryable:
            return f"{again}; if that fails too, {advice.connect}"
        if may_have_run(error):
            return f"{advice.connect}; {again}"
        return advice.connect

    if isinstance(error, UsageError):
        return advice.arguments
    if error.retryable or may_have_run(error):
        return again
    return "do not repeat it unchanged; tell the user if there is no other way"


# --- schemas for models -----------------------------------------------------------------------------------------------

#: JSON Schema.
Schema: TypeAlias = dict[str, object]

#: Maximum number of levels of a schema.
_MAX_DEPTH = 64
#: Maximum number of characters of a rule in words.
_MAX_RULE = 300
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
#: Keywords whose value is one schema, a list of schemas, and an object of schemas.
_WITH_SCHEMA = frozenset(
    {
        *("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"),
        *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    }
)
_WITH_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_WITH_OBJECT = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_WITH_SUBSCHEMAS = _WITH_SCHEMA | _WITH_LIST | _WITH_OBJECT
#: Keywords that models do not get: those of schemas that are documents of their own, those of older drafts, whose
#: requirements are checked with the call, and ``x-mcp-header``, by which a client copies a parameter into a header and
#: relies on the server to compare them (SEP-2243), which a surface does not do.
_LEFT_OUT = frozenset(
    {
        *("$schema", "$id", "$anchor", "$vocabulary", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"),
        *("$recursiveAnchor", "additionalItems", "dependencies", "divisibleBy", "disallow", "extends", "x-mcp-header"),
    }
)
#: Keywords that the APIs refuse at the root of a schema.
_REFUSED_AT_ROOT = (
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "$ref"),
    *("dependentSchemas", "dependentRequired", "patternProperties", "propertyNames", "unevaluatedProperties"),
)


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """Schema of a tool's parameters for a model. ``rules`` are in words for the tool's description, since the schema
    cannot express them. ``names`` are the app's names of the parameters that were renamed, by their new names.
    ``is_complete`` is false if the app may take parameters that are not in the schema."""

    schema: Schema
    rules: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True


def model_schema(schema: Mapping[str, object]) -> ModelSchema:
    """Make a schema for models of whatever an app declares: of an object, and valid in JSON Schema 2020-12."""
    import jsonschema_rs  # slow to import

    is_valid = jsonschema_rs.meta.is_valid
    schema = _without_root_reference(schema)
    repaired = _Repair(is_valid, {}).repair(schema)
    app_names = _names_for_models(repaired)
    if app_names:
        model_names = {app_name: model_name for model_name, app_name in app_names.items()}
        repaired = _Repair(is_valid, model_names).repair(schema)

    is_complete = any(key in repaired for key in ("properties", "allOf", "anyOf", "oneOf"))
    folded, rules = _fold_root(repaired)
    _remove_dangling_references(folded)
    return ModelSchema(folded, plain_line(" ".join(rules), 600), app_names, is_complete)


def _without_root_reference(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return a schema with the target of its ``$ref`` in place of the reference."""
    for _ in range(_MAX_DEPTH):
        target = resolve_reference(schema.get("$ref"), schema)
        if not isinstance(target, Mapping) or target is schema:
            break
        other_keywords = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **other_keywords}
    return schema


def resolve_reference(reference: object, root: Mapping[str, object]) -> object:
    """Follow a local reference, such as ``#/$defs/color``. Return ``None`` for any other, such as ``#color``, or if it
    leads nowhere."""
    if not isinstance(reference, str) or reference.partition("/")[0] != "#":
        return None
    try:
        return target_of(root, reference)
    except NotChecked:
        return None


# --- repair -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Repair:
    """Repairs a schema: keywords of older drafts are converted, and keywords with invalid values are left out.
    ``names`` maps the app's names of parameters to those for models. ``is_valid`` checks a schema against the
    metaschema."""

    is_valid: Callable[[Schema], bool]
    names: Mapping[str, str]

    def repair(self, schema: object, depth: int = 0) -> Schema:
        """Repair a schema. Anything else, and a schema that is nested too deeply, becomes an empty schema, which allows
        anything."""
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return {}

        repaired: Schema = {}
        for keyword, value in schema.items():
            is_schema_id = keyword == "id" and isinstance(value, str)
            if keyword not in _LEFT_OUT and not is_schema_id:
                self._copy_keyword(keyword, value, repaired, depth)
        _repair_bounds(schema, repaired)
        self._repair_items(schema, repaired, depth)

        required = _required_names(schema)
        if required:
            repaired["required"] = self._model_names(required)
        return repaired

    def _model_names(self, names: Iterable[str]) -> list[str]:
        return [self._model_name(name) for name in names]

    def _model_name(self, app_name: str) -> str:
        return self.names.get(app_name, app_name)

    def _copy_keyword(self, keyword: str, value: object, repaired: Schema, depth: int) -> None:
        """Add a keyword with its repaired value to ``repaired``, or nothing if the value is not valid."""
        if keyword in _WITH_SUBSCHEMAS:
            self._copy_subschemas(keyword, value, repaired, depth + 1)
        elif keyword == "type":
            kinds = _types_in(value)
            if kinds:
                repaired["type"] = kinds[0] if len(kinds) == 1 else kinds
        elif keyword == "enum":
            if isinstance(value, list) and value:
                # JSON Schema requires the values to be unique.
                repaired["enum"] = [item for index, item in enumerate(value) if not _is_among(item, value[:index])]
        elif keyword == "dependentRequired":
            if isinstance(value, Mapping):
                repaired[keyword] = {
                    self._model_name(str(name)): self._model_names(_names_in(needed)) for name, needed in value.items()
                }
        elif keyword == "required":
            pass  # `repair` adds it, with the required members of older drafts
        elif self._has_valid_form(keyword, value):
            repaired[keyword] = _without_fraction(keyword, value)

    def _has_valid_form(self, keyword: str, value: object) -> bool:
        if value is None:
            return keyword in ("default", "const")
        return self.is_valid({keyword: value})

    def _copy_subschemas(self, keyword: str, value: object, repaired: Schema, depth: int) -> None:
        if keyword in _WITH_SCHEMA:
            if isinstance(value, Mapping):
                repaired[keyword] = self.repair(value, depth)
            elif isinstance(value, bool):
                repaired[keyword] = value
        elif keyword in _WITH_LIST:
            if isinstance(value, list) and value:
                repaired[keyword] = [self.repair(part, depth) for part in value]
        elif isinstance(value, Mapping):
            schemas = {str(name): self.repair(part, depth) for name, part in value.items()}
            if keyword == "properties":
                schemas = {name: self._describe_app_name(name, part) for name, part in schemas.items()}
            if keyword in ("properties", "dependentSchemas"):
                # These schemas have the names of parameters.
                schemas = {self._model_name(name): part for name, part in schemas.items()}
            repaired[keyword] = schemas

    def _describe_app_name(self, app_name: str, schema: Schema) -> Schema:
        """Add the app's name of a renamed parameter to its description, since errors of the app use that name."""
        if app_name not in self.names:
            return schema
        text = f"The app calls it {plain_line(app_name, _MAX_RULE)!r}."
        if schema.get("description"):
            text = f"{schema['description']} {text}"
        return {**schema, "description": text}

    def _repair_items(self, schema: Mapping[str, object], repaired: Schema, depth: int) -> None:
        """Convert tuples of older drafts to ``prefixItems``, and give each array ``items``, which some APIs require."""
        items = schema.get("items")
        if isinstance(items, list):
            self._repair_tuple(items, schema.get("additionalItems"), repaired, depth)
        elif isinstance(items, bool) and "prefixItems" in repaired:
            if items is False:
                # No items may follow the prefix.
                prefix = repaired["prefixItems"]
                assert isinstance(prefix, list)
                repaired.setdefault("maxItems", len(prefix))
            repaired["items"] = {}
        elif "array" in _types_in(schema.get("type")) and not isinstance(items, Mapping):
            repaired["items"] = {}

    def _repair_tuple(self, items: list[object], additional_items: object, repaired: Schema, depth: int) -> None:
        """Convert a list of schemas, one for each item, as drafts before 2020-12 wrote it."""
        parts = [self.repair(part, depth + 1) for part in items]
        if parts:
            repaired["prefixItems"] = parts
        repaired["items"] = {}
        if isinstance(additional_items, Mapping):
            repaired["items"] = self.repair(additional_items, depth + 1)
        elif additional_items is False:
            repaired.setdefault("maxItems", len(parts))


def _types_in(value: object) -> list[str]:
    kinds: list[str] = []
    for kind in _as_list(value):
        if not isinstance(kind, str):
            continue
        name = kind.lower()
        if name in _TYPES and name not in kinds:
            kinds.append(name)
    return kinds


def _without_fraction(keyword: str, value: object) -> object:
    """Return a length or a number of items that is written as ``5.0`` as ``5``; any other value as it is."""
    is_count = keyword.startswith(("min", "max")) and keyword not in ("minimum", "maximum")
    if is_count and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_among(item: object, items: Sequence[object]) -> bool:
    """Return whether ``items`` contains a JSON value. Unlike in Python, ``1`` and ``True`` differ."""
    return any(item == other and isinstance(item, bool) is isinstance(other, bool) for other in items)


def _names_in(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return [*dict.fromkeys(name for name in value if isinstance(name, str))]


def _required_names(schema: Mapping[str, object]) -> list[str]:
    """Return the required members: the names in ``required``, and members with ``required: true`` (draft 3)."""
    names = _names_in(schema.get("required"))
    for name, part in members_of(schema.get("properties")).items():
        if members_of(part).get("required") is True:
            names.append(str(name))
    return [*dict.fromkeys(names)]


def _repair_bounds(schema: Mapping[str, object], repaired: Schema) -> None:
    """Convert draft 4's ``exclusiveMinimum: true`` into a number."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and bound in repaired:
            repaired[exclusive] = repaired.pop(bound)


def _remove_dangling_references(root: Schema) -> None:
    waiting: list[object] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and not isinstance(resolve_reference(reference, root), dict):
                del node["$ref"]
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


# --- the root ---------------------------------------------------------------------------------------------------------


def _fold_root(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a schema without the keywords that the APIs refuse at the root, and in words the rules that are lost."""
    parts = _RootParts()
    parts.add(schema)

    allowed_keywords = {key: value for key, value in schema.items() if key not in (*_REFUSED_AT_ROOT, "required")}
    folded: Schema = {**allowed_keywords, "type": "object", "properties": parts.properties}
    required = [name for name in dict.fromkeys(parts.required) if name in parts.properties]
    if required:
        folded["required"] = required
    return folded, parts.rules


@dataclass
class _RootParts:
    """Properties that are collected from a schema's branches. ``rules`` are the conditions in words that properties and
    required names cannot express."""

    properties: Schema = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)

    def add(self, schema: Schema, depth: int = 0) -> None:
        properties = schema.get("properties")
        if isinstance(properties, dict):
            _merge_properties(properties, self.properties)
        required = schema.get("required")
        if isinstance(required, list):
            self.required += required

        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(keyword)
            if not isinstance(branches, list) or depth > _MAX_DEPTH:
                continue
            if keyword == "allOf":
                for branch in branches:
                    self.add(branch, depth + 1)
            else:
                self._add_choice(keyword, branches, depth + 1)

        for keyword in ("then", "else"):
            branch = schema.get(keyword)
            if isinstance(branch, dict):
                # Names that such a branch requires are not always required, so only its properties are added.
                self._add_properties(branch, depth + 1)
        self._add_conditions(schema)

    def _add_conditions(self, schema: Schema) -> None:
        condition_keywords = ["not", "dependentRequired", "dependentSchemas"]
        if "if" in schema:
            condition_keywords += ["if", "then", "else"]
        conditions = {key: schema[key] for key in condition_keywords if key in schema}
        if conditions:
            self.rules.append(f"The app checks this rule: {_shortened_json(conditions)}.")

    def _add_choice(self, keyword: str, branches: list[Schema], depth: int) -> None:
        """Add the branches of ``anyOf`` or ``oneOf``. Only a name that all of them require is always required."""
        required_by_branch = [self._add_properties(branch, depth) for branch in branches]
        first = required_by_branch[0]
        self.required += [name for name in first if all(name in names for names in required_by_branch)]
        self.rules.append(_choice_rule(keyword, branches, required_by_branch))

    def _add_properties(self, branch: Schema, depth: int) -> list[str]:
        """Add the properties of a branch, and return the names that the branch requires."""
        parts = _RootParts(self.properties)  # shares the properties, but not the lists
        parts.add(branch, depth)
        return parts.required


def _merge_properties(added: Schema, properties: Schema) -> None:
    """Add properties. A property with two schemas allows either of them; an empty schema is replaced by the other."""
    for name, added_schema in added.items():
        existing = properties.get(name, {})
        if existing == {}:
            properties[name] = added_schema
        elif added_schema not in (existing, {}):
            choices: list[object] = [existing]
            if isinstance(existing, dict) and existing.keys() == {"anyOf"}:
                choices = existing["anyOf"]
            if added_schema not in choices:
                properties[name] = {"anyOf": [*choices, added_schema]}


def _choice_rule(keyword: str, branches: list[Schema], required_by_branch: list[list[str]]) -> str:
    """Say in words what ``anyOf`` or ``oneOf`` asks for."""
    count = "at least one"
    if keyword == "oneOf":
        count = "exactly one"
    if all(required_by_branch):
        sets = "; ".join(", ".join(names) for names in required_by_branch)
        return f"Give {count} of these sets of parameters: {sets[:_MAX_RULE]}."
    return f"The parameters fit {count} of {_shortened_json(branches)}."


def _shortened_json(part: object) -> str:
    text = encode_json(part).decode()
    if len(text) <= _MAX_RULE:
        return text
    return f"{text[: _MAX_RULE - 1]}…"


# --- names ------------------------------------------------------------------------------------------------------------


def _names_for_models(schema: Schema) -> dict[str, str]:
    """Return new names for parameters whose names an API refuses (Anthropic's allows the fewest), each with the app's
    name."""
    app_names = {*_property_names(schema)}
    app_name_by_model_name: dict[str, str] = {}
    for app_name in sorted(app_names):
        if re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", app_name):
            continue
        # A name may have 64 characters. Four are left free for a number.
        base = re.sub(r"[^a-zA-Z0-9_.-]+", "_", app_name).strip("_")[:60] or "parameter"
        model_name = free_name(base, app_names | app_name_by_model_name.keys())
        app_name_by_model_name[model_name] = app_name
    return app_name_by_model_name


def _property_names(schema: object) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        for keyword, value in node.items():
            if keyword == "properties":
                yield from value
            if keyword in _WITH_OBJECT:
                waiting += value.values()
            elif keyword in _WITH_SCHEMA or keyword in _WITH_LIST:
                waiting += _as_list(value)


def _as_list(part: object) -> list[object]:
    return part if isinstance(part, list) else [part]


def app_arguments(model: ModelSchema, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return a model's arguments with the app's names of the parameters."""
    if not model.names:
        return dict(arguments)
    renamed = _with_app_names(model.schema, arguments, model)
    assert isinstance(renamed, dict)
    return renamed


def _with_app_names(schema: object, value: object, model: ModelSchema) -> object:
    alternatives = [*_alternatives(schema, model.schema)]

    if isinstance(value, Mapping):
        additional = [part["additionalProperties"] for part in alternatives if "additionalProperties" in part]
        renamed: dict[str, object] = {}
        for name, inner in value.items():
            declarations = _declarations(name, alternatives)
            if declarations:
                app_name = model.names.get(name, name)
                renamed[app_name] = _with_app_names({"anyOf": declarations}, inner, model)
            else:
                renamed[name] = _with_app_names({"anyOf": additional}, inner, model)
        return renamed

    if isinstance(value, list):
        items: list[object] = []
        for part in alternatives:
            items += _as_list(part.get("items"))
            items += _as_list(part.get("prefixItems"))
        return [_with_app_names({"anyOf": items}, inner, model) for inner in value]

    return value


def _declarations(name: str, schemas: Sequence[Schema]) -> list[object]:
    declarations = [members_of(schema.get("properties")) for schema in schemas]
    return [members[name] for members in declarations if name in members]


def _alternatives(schema: object, root: Schema) -> Iterator[Schema]:
    """Yield all schemas that may apply where ``schema`` does: itself, the target of its reference, its branches, and in
    turn the targets and branches of these. Each is yielded once."""
    waiting = [schema]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting.append(resolve_reference(part.get("$ref"), root))
        for keyword in ("anyOf", "oneOf", "allOf"):
            waiting += _as_list(part.get(keyword))
        waiting += [part.get("then"), part.get("else")]
