"""Checks of descriptions and schemas, and of calls against their schemas (docs/protocol.md 2.5 and 3.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import jsonschema_rs

from ....errors import ProtocolError, first_line
from ....protocol._find_content import find
from ....protocol.schema import check_output
from .._evidence import Evidence, NotApplicable, Rules, as_list, as_mapping

RULES = Rules()
#: Keywords that describe a place indirectly. They are not followed here.
_INDIRECT = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
_REFUSALS = ("INVALID_PARAMS", "MISSING_PARAM", "INVALID_TYPE")


def _require_capability(app: Evidence) -> None:
    if not app.trials:
        raise NotApplicable("no capability is known")


def _schema_error(schema: object) -> str | None:
    """Return the reason why a value is not a JSON Schema (2020-12 by default); ``None`` if it is one."""
    if not isinstance(schema, Mapping | bool):
        return "it is not an object"
    try:
        jsonschema_rs.meta.validate(schema if isinstance(schema, bool) else dict(schema))
    except (jsonschema_rs.ValidationError, ValueError) as error:
        return first_line(error)
    return None


@RULES(
    "schema.valid",
    "MUST",
    "inputSchema and outputSchema are JSON Schema",
    source="docs/protocol.md 2.5; JSON Schema 2020-12",
    fix="correct the schema; {} allows any value",
)
def _valid(app: Evidence) -> Iterator[str]:
    _require_capability(app)
    for trial in app.trials:
        for key in ("inputSchema", "outputSchema"):
            schema = trial.entry.get(key)
            if schema is None:
                continue
            reason = _schema_error(schema)
            if reason is not None:
                yield f"{trial.name}: {key}: {reason}"


@RULES(
    "schema.described",
    "SHOULD",
    "Every capability has a description and an inputSchema",
    source="docs/protocol.md 2.5",
    fix="list both: agents choose by the description and fill in by the schema",
)
def _parameters_described(app: Evidence) -> Iterator[str]:
    _require_capability(app)
    for trial in app.trials:
        if not trial.capability.description:
            yield f"{trial.name} has no description"
        if not trial.capability.input_schema:
            yield f"{trial.name} has no inputSchema"


@RULES(
    "schema.alternatives",
    "SHOULD",
    "A deprecated capability names its alternatives",
    source="docs/protocol.md 2.5",
    fix="list alternatives: ['export.document'] beside deprecated: true",
)
def _alternatives(app: Evidence) -> Iterator[str]:
    deprecated = [trial.capability for trial in app.trials if trial.capability.deprecated]
    if not deprecated:
        raise NotApplicable("no capability is deprecated")
    yield from (f"{capability.name} names none" for capability in deprecated if not capability.alternatives)


@RULES(
    "schema.params",
    "SHOULD",
    "Parameters that fit inputSchema are accepted",
    source="docs/protocol.md 3.6",
    fix="declare all requirements in the schema (oneOf, pattern, enum, …), or give `examples` that work",
)
def _params(app: Evidence) -> Iterator[str]:
    _require_call(app)
    for trial, call in app.called:
        if call.code in _REFUSALS:
            error: Any = call.fields["error"]
            yield f"{trial.name}: {trial.params!r:.120} was refused: {error.get('message')} [{call.code}]"


@RULES(
    "schema.result",
    "SHOULD",
    "An answer fits outputSchema",
    source="docs/protocol.md 3.6",
    fix="correct the schema, or the answer",
)
def _result(app: Evidence) -> Iterator[str]:
    _require_call(app)
    for trial, call in app.called:
        schema = trial.capability.output_schema
        if not call.succeeded or not schema or _schema_error(schema) is not None:
            continue
        data = call.fields.get("data")
        try:
            places = [content.path for content in find(data)]
        except ProtocolError:
            continue  # the check answers.readable reports it
        yield from (f"{trial.name}: {text}" for text in check_output(schema, data, places))


@RULES(
    "schema.content",
    "SHOULD",
    "A capability that answers content declares it in outputSchema",
    source="docs/protocol.md 9.14",
    fix="describe the place as an object with content, mimeType, encoding, size and downloadUrl; require mimeType",
)
def _declared_content(app: Evidence) -> Iterator[str]:
    if not app.contents:
        raise NotApplicable("no answer held binary content")
    for trial, call in app.called:
        schema = trial.capability.output_schema
        described = {
            item.place: {"mimeType", *(item.node.keys() & {"downloadUrl"})}
            for item in trial.contents
            if item.node.keys() & {"content", "downloadUrl"}
        }
        if not described or not call.succeeded or (schema and _schema_error(schema) is not None):
            continue
        for content in find(call.fields.get("data")):
            keys = described.get(content.field)
            if keys is not None and not _describes_content(schema, content.path, keys):
                place, listed = content.field or "the answer", " and ".join(sorted(keys))
                yield f"{trial.name}: outputSchema does not say that {place} is content with {listed}"


def _describes_content(schema: object, path: Sequence[str | int], keys: Set[str]) -> bool:
    """Return whether a schema has ``keys`` and requires ``mimeType`` at a place, or describes the place indirectly."""
    if not isinstance(schema, Mapping):
        return False
    if any(key in schema for key in _INDIRECT):
        return True
    properties = as_mapping(schema.get("properties"))
    if not path:
        return keys <= properties.keys() and "mimeType" in as_list(schema.get("required"))
    step = path[0]
    if isinstance(step, str):
        inner = properties.get(step, schema.get("additionalProperties"))
    else:
        prefix = as_list(schema.get("prefixItems"))
        inner = prefix[step] if step < len(prefix) else schema.get("items")
    return _describes_content(inner, path[1:], keys)


def _require_call(app: Evidence) -> None:
    if not app.called:
        raise NotApplicable("no capability was called")
