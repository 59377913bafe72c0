"""Capabilities as tools of a model: names, descriptions, schemas, hints, and errors as text. No I/O."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import cast

from ...errors import ABPError, ArtifactNotFound, UsageError, may_have_run, repeat_advice
from ...protocol._declarations import Capability
from ...protocol._find_content import Place, replace
from ...protocol._plain_text import plain_line, plain_schema
from ...protocol._strict_json import JSONValue, encode_json
from ...protocol.schema import is_file
from ...routing._result import Result
from ...session._resources import READ_HINT

#: Maximum number of capabilities with a tool of their own.
MAX_TOOLS = 200
#: Maximum characters of a tool's name.
_MAX_NAME = 64


def tool_name(capability: str) -> str:
    """Return the name of a capability's tool: ``abp_`` and the name of the capability, with ``_`` for characters other
    than letters, digits, ``_`` and ``-``. A second tool of that name gets a number (:func:`free_tool_name`)."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", capability)
    return f"abp_{name}"[:_MAX_NAME]


def free_tool_name(capability: str, taken: Container[str]) -> str:
    """Return the name of a capability's tool, with a number if it is among ``taken``."""
    return free_name(tool_name(capability), taken, max_base=_MAX_NAME - 5)


def free_name(base: str, taken: Container[str], *, max_base: int | None = None) -> str:
    """Return ``base``, or if it is among ``taken``, its first ``max_base`` characters with a number."""
    name = base
    count = 1
    while name in taken:
        count += 1
        name = f"{base[:max_base]}_{count}"
    return name


def tool_description(capability: Capability, *marks: str) -> str:
    """Return the description of a capability's tool in one line, with its state and ``marks`` in parentheses."""
    description = plain_line(capability.description or f"The capability {capability.name}.", 1000)
    notes = []
    if capability.experimental:
        notes.append("experimental")
    if capability.deprecated:
        notes.append("deprecated")
    if not capability.available:
        notes.append("not available now")
    notes += marks
    if notes:
        description += f" ({', '.join(notes)})"
    return description


def tool_hints(capability: Capability) -> dict[str, bool]:
    """Return MCP's hints about the behaviour of a tool, as the app claims it. A missing hint means the more dangerous
    value."""
    hints: dict[str, bool] = {}
    for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"):
        value = capability.annotations.get(name)
        if isinstance(value, bool):
            hints[name] = value
    return hints


def tool_schema(capability: Capability) -> dict[str, object]:
    """Return the schema of a capability's parameters without what must not be in a model's context; ``{"type":
    "object"}`` for a schema of more than 16 KiB, and for a broken one."""
    if len(encode_json(capability.input_schema)) > 16 * 1024:
        return {"type": "object"}
    schema = plain_schema(capability.input_schema)
    if schema is None:
        return {"type": "object"}
    return {key: _without_headers(value) for key, value in schema.items()}


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
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return ""
    needed, optional = [], []
    for name, member in properties.items():
        if isinstance(required, list) and name in required:
            needed.append(f"{name}: {type_name(member)}")
        else:
            optional.append(f"{name}?: {type_name(member)}")
    return plain_line(", ".join(needed + optional), 200)


def _without_headers(schema: object) -> object:
    """Return ``schema`` without ``x-mcp-header``, at any depth.

    With it, a client copies parameters into headers and relies on the server to compare them (SEP-2243), which a
    surface does not do."""
    if isinstance(schema, list):
        return [_without_headers(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    cleaned = {}
    for key, value in schema.items():
        is_header = key == "x-mcp-header" and isinstance(value, str)
        if not is_header:
            cleaned[key] = _without_headers(value)
    return cleaned


def with_tool_names(result: Result) -> Result:
    """Return ``result`` with the name of the tool, instead of the capability, in each hint on how to read a link."""
    if not isinstance(result.data, dict):
        return result
    blocks = result.data.get("content")
    if not isinstance(blocks, list):
        return result
    hint = READ_HINT.replace("resources.read", tool_name("resources.read"))
    hints: dict[Place, object] = {}
    for index, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("hint") == READ_HINT:
            hints["content", index, "hint"] = hint
    return dataclasses.replace(result, data=cast(JSONValue, replace(result.data, hints)))


#: Next step by code, the same on every surface.
_NEXT = {
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
    """Next steps of one surface, whose tools differ from those of others.

    ``by_code`` are steps by the code of the error, in which ``{again}`` is the advice on repeating the call. The others
    are for an artifact that is not there, a lost connection, and wrong arguments."""

    by_code: Mapping[str, str]
    no_artifact: str
    connect: str
    arguments: str


def error_lines(error: ABPError, advice: Advice) -> list[str]:
    """Return the lines about an error: message and code, whether to repeat the call, alternatives, next step."""
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
    """Return what to do after an error: the surface's advice for its code, or otherwise for its kind."""
    if isinstance(error, ArtifactNotFound):
        return advice.no_artifact

    again = repeat_advice(error)
    step = advice.by_code.get(error.code) or _NEXT.get(error.code)
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
