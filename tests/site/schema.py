"""The JSON Schema of ``abp.toml``, made from the models that read it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from transports.routing import RoutingPolicy
from transports.routing._policy import AGENT_NAMES, DETECTION_NAMES, POLICY_NAMES, RULE_NAMES
from transports.session._app_tables import AppEntry, AppTables, RetentionFields, SecretEntry
from transports.session._settings import TABLES
from transports.surfaces.mcp._options import Options

#: A comment of a field, `#:`, which may go on in the next lines, and the field's name.
_COMMENTED = re.compile(r"((?:^    #: .*\n)+)    (\w+):", re.MULTILINE)


def schema() -> dict[str, Any]:
    """Return the schema. Editors read it from the comment ``#:schema abp.schema.json`` of the file."""
    tables = AppTables.model_json_schema()
    definitions = tables.pop("$defs")
    for model in (AppEntry, SecretEntry):
        _describe(definitions[model.__name__], model)
    options, retention = Options.model_json_schema(), RetentionFields.model_json_schema()
    _describe(options, Options)
    options["properties"] |= {
        "max_file_size_mb": {"type": "number", "minimum": 0},
        "allowed_mime_types": options["properties"]["allowed_types"],
    }
    for limit in retention["properties"].values():
        if "anyOf" in limit:  # a text: 7d, 500MB, none
            limit["anyOf"] = [{"type": "string"}, *(one for one in limit["anyOf"] if one["type"] != "string")]
    found = {
        "apps": tables["properties"]["apps"],
        "mcp": options,
        "retention": retention,
        "routing": _routing(definitions),
        "secrets": tables["properties"]["secrets"],
    }
    assert set(found) == set(TABLES)
    for one in (options, retention):
        definitions |= one.pop("$defs", {})
        one["additionalProperties"] = False
        one.pop("required", None)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "abp.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": found,
        "$defs": definitions,
    }


def _routing(definitions: dict[str, Any]) -> dict[str, Any]:
    """The settings of a policy, which are those of a table for one server, too."""
    fields = {name: hint for name, hint in _hints(RoutingPolicy).items() if name[0] != "_" and name != "transformer"}
    properties: dict[str, Any] = {"preset": {"type": "string"}}
    for name, hint in fields.items():
        made = TypeAdapter(hint).json_schema()
        definitions |= made.pop("$defs", {})
        limit = re.search(r"int \| None", str(hint))
        properties[name] = {"anyOf": [*made["anyOf"], {"const": "none"}]} if limit else made
    _add_document_names(properties, definitions)
    server = {"type": "object", "additionalProperties": False, "properties": dict(properties)}
    properties["servers"] = {"type": "object", "additionalProperties": server}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _add_document_names(properties: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Add the names that settings have in the document of docs/requirements.md R2."""
    for document_name, field in POLICY_NAMES.items():
        properties[document_name] = properties[field]
    properties["auto_artifact_large_content"] = {"type": "boolean"}
    signature = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
    detection = {document_name: properties[field] for document_name, field in DETECTION_NAMES.items()}
    properties["binary_detection"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {**detection, "signatures": {"type": "object", "additionalProperties": signature}},
    }
    agent, rule = properties["agent"]["properties"], definitions["FieldRule"]["properties"]
    agent |= {document_name: agent[field] for document_name, field in AGENT_NAMES.items()}
    agent["auto_artifact_threshold"] = properties["max_inline_bytes"]
    rule |= {document_name: rule[field] for document_name, field in RULE_NAMES.items()}
    definitions["FieldRule"].pop("required", None)


def _hints(model: type) -> Mapping[str, Any]:
    return inspect.get_annotations(model, eval_str=True)


def _describe(definition: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the comments of the fields, as an editor shows them."""
    for comment, name in _COMMENTED.findall(inspect.getsource(model)):
        if name in definition["properties"]:
            text = " ".join(line.strip().removeprefix("#: ") for line in comment.strip().splitlines())
            definition["properties"][name]["description"] = text.replace("``", "`")
