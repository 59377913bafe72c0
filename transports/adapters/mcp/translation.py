"""Translates between MCP and ABP: tools to capabilities, results to answers, questions to elicitations. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pybase64
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from ...binary import BinaryData, Encoded
from ...binary.detect import Found, Place, replace
from ...errors import CapabilityError, ProtocolError
from ...protocol.envelope import to_descriptor as descriptor
from ...protocol.payloads import ElicitationRequest
from .wire import parse_json_text

__all__ = [
    "error_answer",
    "to_answer",
    "to_arguments",
    "to_capability",
    "to_elicit_result",
    "to_elicitation",
    "to_sampling_elicitation",
    "to_sampling_result",
]

#: Characters of a server's own message in ours.
_MAX_TEXT = 2000
#: Name of a model that the handler does not name.
_UNNAMED = "unknown"


def to_capability(tool: Tool) -> dict[str, object]:
    """Return a tool as an app would list it.

    ``additionalProperties`` of its output schema is dropped: the answer may also hold content blocks.
    """
    listed: dict[str, object] = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description or "",
        "inputSchema": tool.input_schema,
    }
    if tool.output_schema:
        listed["outputSchema"] = {k: v for k, v in tool.output_schema.items() if k != "additionalProperties"}
    if tool.annotations:
        listed["annotations"] = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    return listed


def to_arguments(params: Mapping[str, object], content: Sequence[Found], schema: Mapping[str, object]) -> object:
    """Return parameters with their content as base64. Reads files, so call it in a thread.

    Content is a bare text where the tool's schema wants a string, and a descriptor elsewhere.
    """
    placed: dict[Place, object] = {found.path: _argument(found, schema) for found in content}
    return replace(dict(params), placed)


def _argument(found: Found, schema: Mapping[str, object]) -> object:
    declared: object = schema
    for step in found.path:
        inner: object = None
        if isinstance(declared, Mapping):
            inner = declared.get("items" if isinstance(step, int) else "properties")
            if isinstance(step, str) and isinstance(inner, Mapping):
                inner = inner.get(step)
        declared = inner
    if not (isinstance(declared, Mapping) and declared.get("type") == "string"):
        return descriptor(found.binary)
    binary = found.binary
    assert isinstance(binary, BinaryData)
    if isinstance(binary.content, Encoded) and binary.content.encoding == "base64":
        return str(binary.content.text)
    return pybase64.b64encode(b"".join(binary.chunks())).decode()


# --- results ----------------------------------------------------------------------------------------------------------


def to_answer(result: Mapping[str, Any]) -> dict[str, object]:
    """Return ``tools/call``'s result as an ABP answer.

    ``data`` is the structured content, whose fields are the tool's own. The content blocks stand under ``content``,
    except a text that only repeats the structured content (MCP "Structured Content"), or blocks that the structured
    content itself holds. If both have that name, they stand side by side as in MCP. Raises
    :class:`~transports.errors.ProtocolError` for blocks that are no list.
    """
    blocks, structured = result.get("content") or [], result.get("structuredContent")
    if not isinstance(blocks, list):
        raise ProtocolError("the server's result has a content that is no list of blocks")
    if result.get("isError"):
        return {"success": False, "error": _error(blocks, structured)}
    if not isinstance(structured, dict):
        return {"success": True, "data": {"content": blocks}}
    more = [block for block in blocks if not _repeats(block, structured)] if structured.get("content") != blocks else []
    if not more:
        return {"success": True, "data": structured}
    if "content" in structured:
        return {"success": True, "data": {"content": more, "structuredContent": structured}}
    return {"success": True, "data": {**structured, "content": more}}


def _repeats(block: object, structured: Mapping[str, object]) -> bool:
    """Whether a text block repeats the structured content. Some SDKs wrap a plain value as ``{"result": …}``."""
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str):
        return False
    alone = structured.get("result") if len(structured) == 1 else None
    if text == alone:
        return True
    try:
        value = parse_json_text(text)
    except ProtocolError:
        return False
    return value == structured or (alone is not None and value == alone)


def _error(blocks: Sequence[Any], structured: object) -> dict[str, object]:
    """Return the error of a failed tool. A structured error of the ABP kind is taken as it is."""
    texts = [str(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    own_error = structured.get("error") if isinstance(structured, dict) else None
    if isinstance(own_error, dict) and isinstance(own_error.get("code"), str):
        return own_error
    error: dict[str, object] = {
        "message": "\n".join(texts).strip()[:_MAX_TEXT] or "the tool failed and did not say why"
    }
    others = [block for block in blocks if not (isinstance(block, dict) and block.get("type") == "text")]
    if others or structured is not None:
        error["details"] = {"content": others, **({"structuredContent": structured} if structured is not None else {})}
    return error


def error_answer(error: CapabilityError) -> dict[str, object]:
    """Return the ABP answer for a request that the server refused with a JSON-RPC error."""
    described = {"code": error.code, "message": error.message, "details": error.details}
    return {"success": False, "error": described}


# --- questions --------------------------------------------------------------------------------------------------------


def to_elicitation(params: ElicitRequestParams) -> ElicitationRequest:
    """Return a server's question as an app would ask it (docs/protocol.md 5.2).

    A form is an input with a schema; an address that a person should visit is a confirmation.
    """
    if isinstance(params, ElicitRequestURLParams):
        return ElicitationRequest(method="elicitation/confirm", params={"message": params.message, "url": params.url})
    asked: dict[str, object] = {"message": params.message, "schema": dict(params.requested_schema)}
    if (defaults := _defaults(params.requested_schema)) is not None:
        asked["default"] = defaults
    return ElicitationRequest(method="elicitation/input", params=asked)


def _defaults(schema: Mapping[str, Any]) -> dict[str, object] | None:
    """Return the form's defaults, if it has one for every required field.

    Forms with a default of ``True`` have none: MCP does not say which actions are destructive, so nothing is agreed to
    without a person.
    """
    fields = schema.get("properties", {})
    defaults = {name: one["default"] for name, one in fields.items() if isinstance(one, Mapping) and "default" in one}
    complete = bool(defaults) and set(schema.get("required", ())) <= set(defaults)
    return defaults if complete and True not in [value is True for value in defaults.values()] else None


def to_elicit_result(params: ElicitRequestParams, answer: Mapping[str, Any]) -> ElicitResult:
    """Return the handler's answer for the server. A form of one field accepts a value without the field's name."""
    if not answer.get("success"):
        return ElicitResult(action="decline")
    data = answer.get("data")
    answered: Any = data if isinstance(data, Mapping) else {}
    if isinstance(params, ElicitRequestURLParams):
        return ElicitResult(action="accept" if answered.get("confirmed") is True else "decline")
    value = answered.get("value")
    fields = params.requested_schema.get("properties", {})
    content = value if isinstance(value, Mapping) else dict.fromkeys(fields, value) if len(fields) == 1 else None
    if content is None:
        return ElicitResult(action="decline")
    try:
        return ElicitResult(action="accept", content=dict(content))
    except ValidationError:
        return ElicitResult(action="decline")


def to_sampling_elicitation(params: CreateMessageRequestParams) -> ElicitationRequest:
    """Return a request for a model's message as an elicitation, ``sampling/create``; ``params`` are MCP's own."""
    return ElicitationRequest(
        method="sampling/create", params=params.model_dump(by_alias=True, mode="json", exclude_none=True)
    )


def to_sampling_result(answer: Mapping[str, Any]) -> CreateMessageResult | ErrorData:
    """Return the handler's ``{result}`` for the server: a text, or a message in MCP's form."""
    data = answer.get("data") if answer.get("success") else None
    result = data.get("result") if isinstance(data, Mapping) else None
    if isinstance(result, str):
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=result), model=_UNNAMED)
    if isinstance(result, Mapping):
        try:
            return CreateMessageResult.model_validate({"role": "assistant", "model": _UNNAMED, **result}, by_name=False)
        except ValidationError:
            return ErrorData(code=INVALID_PARAMS, message="the client's answer is no message")
    return ErrorData(code=-1, message="the client declined to sample")
