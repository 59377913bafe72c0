"""Checks of descriptions and schemas, and whether calls keep to them (docs/protocol.md 2.5 and 3.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs

from ....binary.detect import find
from ....errors import ProtocolError, first_line
from ....protocol.schema import check_output
from ..evidence import Evidence
from ..rules import NotApplicable, Rules

RULES = Rules()
_REFUSALS = ("INVALID_PARAMS", "MISSING_PARAM", "INVALID_TYPE")


def _require_capability(app: Evidence) -> None:
    if not app.trials:
        raise NotApplicable("no capability is known")


def _schema_error(schema: object) -> str | None:
    """Return why a value is no JSON Schema (2020-12 unless it names another draft), or ``None`` if it is one."""
    if not isinstance(schema, Mapping | bool):
        return "it is no object"
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
    fix="correct the schema; {} says that anything will do",
)
def _valid(app: Evidence) -> Iterator[str]:
    _require_capability(app)
    for trial in app.trials:
        for key in ("inputSchema", "outputSchema"):
            schema = trial.entry.get(key)
            if schema is not None and (reason := _schema_error(schema)) is not None:
                yield f"{trial.name}: {key}: {reason}"


@RULES(
    "schema.described",
    "SHOULD",
    "Every capability has a description and an inputSchema",
    source="docs/protocol.md 2.5",
    fix="list both: agents choose by the description and fill in by the schema",
)
def _described(app: Evidence) -> Iterator[str]:
    _require_capability(app)
    for trial in app.trials:
        if not trial.capability.description:
            yield f"{trial.name} has no description"
        if not trial.capability.input_schema:
            yield f"{trial.name} has no inputSchema"


@RULES(
    "schema.params",
    "SHOULD",
    "Parameters that fit inputSchema are accepted",
    source="docs/protocol.md 3.6",
    fix="say in the schema what is required (oneOf, pattern, enum, …), or give `examples` that work",
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
            content = [found.path for found in find(data)]
        except ProtocolError:
            continue  # the check answers.readable reports it
        yield from (f"{trial.name}: {text}" for text in check_output(schema, data, content))


def _require_call(app: Evidence) -> None:
    if not app.called:
        raise NotApplicable("no capability was called")
