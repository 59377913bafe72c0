"""What capabilities say of themselves, and whether it is true."""

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
_SOURCE = "PROTOCOL The page object: a capability {name, description, inputSchema, outputSchema, …}"
_UNREADABLE = ("INVALID_PARAMS", "MISSING_PARAM", "INVALID_TYPE")


def _any(app: Evidence) -> None:
    if not app.trials:
        raise NotApplicable("no capability is known")


def _invalid(schema: object) -> str | None:
    """Why a schema is none (JSON Schema 2020-12 unless it says otherwise)."""
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
    source=_SOURCE + "; JSON Schema 2020-12",
    fix="correct the schema; {} says that anything will do",
)
def valid(app: Evidence) -> Iterator[str]:
    _any(app)
    for trial in app.trials:
        for key in ("inputSchema", "outputSchema"):
            schema = trial.entry.get(key)
            if schema is not None and (reason := _invalid(schema)) is not None:
                yield f"{trial.name}: {key}: {reason}"


@RULES(
    "schema.described",
    "SHOULD",
    "Every capability has a description and an inputSchema",
    source=_SOURCE,
    fix="list both: agents choose by the description and fill in by the schema",
)
def described(app: Evidence) -> Iterator[str]:
    _any(app)
    for trial in app.trials:
        if not trial.capability.description:
            yield f"{trial.name} has no description"
        if not trial.capability.input_schema:
            yield f"{trial.name} has no inputSchema"


@RULES(
    "schema.params",
    "SHOULD",
    "What inputSchema allows is accepted",
    source=_SOURCE,
    fix="say in the schema what is required (oneOf, pattern, enum, …), or give `examples` that work",
)
def params(app: Evidence) -> Iterator[str]:
    _called(app)
    for trial, call in app.called:
        if call.code in _UNREADABLE:
            error: Any = call.fields["error"]
            yield f"{trial.name}: {trial.params!r:.120} was refused: {error.get('message')} [{call.code}]"


@RULES(
    "schema.result",
    "SHOULD",
    "An answer fits outputSchema",
    source=_SOURCE,
    fix="correct the schema, or the answer",
)
def result(app: Evidence) -> Iterator[str]:
    _called(app)
    for trial, call in app.called:
        schema = trial.capability.output_schema
        if not call.succeeded or not schema or _invalid(schema) is not None:
            continue
        data = call.fields.get("data")
        try:
            content = [found.path for found in find(data)]
        except ProtocolError:
            continue  # answers.readable says so
        yield from (f"{trial.name}: {text}" for text in check_output(schema, data, content))


def _called(app: Evidence) -> None:
    if not app.called:
        raise NotApplicable("no capability was called")
