"""Tools as capabilities, results as answers, and questions of a server as those of an app. No I/O."""

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
from .wire import tree_of

__all__ = ["answer_of", "arguments_of", "capability_of", "elicited", "question_of", "refusal", "sampled", "sampling_of"]

#: Characters of a server's words in a message.
_LONGEST = 2000
#: A model that is not named.
_UNNAMED = "unknown"


def capability_of(tool: Tool) -> dict[str, object]:
    """A tool as an app would list it. Its result may have content blocks beside what ``outputSchema`` tells of."""
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


def arguments_of(params: Mapping[str, object], content: Sequence[Found], schema: Mapping[str, object]) -> object:
    """Parameters with their content as base64: bare where the tool's schema wants a text, else as a descriptor. Reads
    files."""
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


def answer_of(result: Mapping[str, Any]) -> dict[str, object]:
    """``tools/call``'s result as an ABP answer.

    ``data`` is the structured content, whose fields are the tool's own. The blocks stand under ``content``, but for a
    text that only says the same again (MCP "Structured Content"), or those that the structured content holds itself.
    Where both want that name, the two stand side by side as MCP has them.
    """
    blocks, structured = list(result.get("content") or []), result.get("structuredContent")
    if result.get("isError"):
        return {"success": False, "error": _error(blocks, structured)}
    if not isinstance(structured, dict):
        return {"success": True, "data": {"content": blocks}}
    more = [block for block in blocks if not _says(block, structured)] if structured.get("content") != blocks else []
    if not more:
        return {"success": True, "data": structured}
    if "content" in structured:
        return {"success": True, "data": {"content": more, "structuredContent": structured}}
    return {"success": True, "data": {**structured, "content": more}}


def _says(block: object, structured: Mapping[str, object]) -> bool:
    """Whether a block is the structured content as text; some SDKs wrap a plain value as ``{"result": …}``."""
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str):
        return False
    alone = structured.get("result") if len(structured) == 1 else None
    if text == alone:
        return True
    try:
        value = tree_of(text)
    except ProtocolError:
        return False
    return value == structured or (alone is not None and value == alone)


def _error(blocks: Sequence[Any], structured: object) -> dict[str, object]:
    """What the server says of its failure; a structured error of the ABP kind is taken as it is."""
    texts = [str(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    said = structured.get("error") if isinstance(structured, dict) else None
    if isinstance(said, dict) and isinstance(said.get("code"), str):
        return said
    error: dict[str, object] = {"message": "\n".join(texts).strip()[:_LONGEST] or "the tool failed and did not say why"}
    others = [block for block in blocks if not (isinstance(block, dict) and block.get("type") == "text")]
    if others or structured is not None:
        error["details"] = {"content": others, **({"structuredContent": structured} if structured is not None else {})}
    return error


def refusal(error: CapabilityError) -> dict[str, object]:
    """What a server refused (JSON-RPC), as an ABP answer."""
    described = {"code": error.code, "message": error.message, "details": error.details}
    return {"success": False, "error": described}


# --- questions --------------------------------------------------------------------------------------------------------


def question_of(params: ElicitRequestParams) -> ElicitationRequest:
    """A server's question as an app asks it (PROTOCOL "App → client"): a form is an input with a schema, an address
    that a person should visit is to be confirmed."""
    if isinstance(params, ElicitRequestURLParams):
        return ElicitationRequest(method="elicitation/confirm", params={"message": params.message, "url": params.url})
    asked: dict[str, object] = {"message": params.message, "schema": dict(params.requested_schema)}
    if (defaults := _defaults(params.requested_schema)) is not None:
        asked["default"] = defaults
    return ElicitationRequest(method="elicitation/input", params=asked)


def _defaults(schema: Mapping[str, Any]) -> dict[str, object] | None:
    """The form as the server would fill it in, if it says so for all that is required. Nothing is agreed to that way:
    MCP does not tell what is destructive."""
    fields = schema.get("properties", {})
    given = {name: one["default"] for name, one in fields.items() if isinstance(one, Mapping) and "default" in one}
    complete = bool(given) and set(schema.get("required", ())) <= set(given)
    return given if complete and True not in [value is True for value in given.values()] else None


def elicited(params: ElicitRequestParams, answer: Mapping[str, Any]) -> ElicitResult:
    """The handler's answer for the server. A value for a form of one field may come without its name."""
    if not answer.get("success"):
        return ElicitResult(action="decline")
    data = answer.get("data")
    given: Any = data if isinstance(data, Mapping) else {}
    if isinstance(params, ElicitRequestURLParams):
        return ElicitResult(action="accept" if given.get("confirmed") is True else "decline")
    value = given.get("value")
    fields = params.requested_schema.get("properties", {})
    content = value if isinstance(value, Mapping) else dict.fromkeys(fields, value) if len(fields) == 1 else None
    if content is None:
        return ElicitResult(action="decline")
    try:
        return ElicitResult(action="accept", content=dict(content))
    except ValidationError:
        return ElicitResult(action="decline")


def sampling_of(params: CreateMessageRequestParams) -> ElicitationRequest:
    """A request for a model's words; ``params`` are MCP's own."""
    return ElicitationRequest(
        method="sampling/create", params=params.model_dump(by_alias=True, mode="json", exclude_none=True)
    )


def sampled(answer: Mapping[str, Any]) -> CreateMessageResult | ErrorData:
    """The handler's ``{result}``: a text, or a message as MCP has it."""
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
