"""Translation between MCP and ABP.

Lines of a stdio server become messages of the SDK (MCP "Transports": one JSON-RPC message a line), with long base64
kept out of the SDK. Tools become capabilities, results become answers, and a server's questions become elicitations.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types
import pybase64
from mcp.client.session import ClientRequestContext
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..errors import CapabilityError, ProtocolError, TooLarge
from ..protocol._find_content import Found, Place, declares_base64, find, replace_values
from ..protocol._payloads import ElicitationRequest
from ..protocol._strict_json import (
    PARSED_ON_LOOP,
    encode_json,
    in_thread_if_long,
    items_of,
    members_of,
    objects_in,
    without_half_pairs,
)
from ..protocol.binary import BinaryData, Encoded
from ..protocol.messages import Message
from ..protocol.schema import check_output
from ..websocket.envelope import decode_run, decode_with_runs, to_descriptor
from ._stdio import MessageEnds, ends_of_message

logger = logging.getLogger("transports.mcp")

#: Member that marks a result in which half of a pair of surrogates was replaced.
REPAIRED = "abp-transports/repaired"
#: The warning about such a result.
HALF_PAIR = "half of a surrogate pair became U+FFFD"
#: Codes of errors that the kit itself makes: for answers that arrived but could not be read, and for a server that is
#: busy. Servers do not use these codes.
OVER_LIMIT, UNREADABLE, TOO_MANY, BUSY = -48001, -48002, -48003, -48004
#: The SDK's message when an HTTP server has forgotten the session.
SESSION_EXPIRED = "Session terminated"
#: Beginning of the SDK's message when a connection has ended.
CLOSED = "Connection closed"
#: Beginning of our message when a request could not be sent.
UNREACHED = "it cannot be reached"
#: Beginnings of the messages when the connection or the stream of one answer over HTTP has broken: ours and the SDK's.
BROKEN = "the connection broke before the answer was whole"
BREAKS = (BROKEN, "SSE stream ")
_CONTENT_KEY = re.compile(rb'"(?:data|blob|content)"\s*:\s*"\Z')
_ANSWER_START = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error)"\s*:')
#: Characters of the URL-safe alphabet and of data: URLs. A text with one of them is not passed on as base64 unread.
_NOT_PLAIN_BASE64 = re.compile(rb"[-_:]")


@dataclass(frozen=True, slots=True)
class Limits:
    #: Values of a result; one with more is withheld from the SDK and processed in threads.
    values_on_loop: int = 3000
    #: Values in a notification or a request of a server, which the SDK validates on the event loop.
    values_of_notification: int = 20_000
    #: Tools with arguments that become headers, which the SDK reads on the event loop.
    headed_tools: int = 200
    #: Levels of a schema. pydantic can write 255, and a schema is inside other levels.
    schema_depth: int = 200
    #: Pages of a list. The list of a faulty server may never end.
    pages: int = 100
    #: Rounds of questions before an answer (protocol 2026-07-28).
    rounds: int = 20
    #: Characters of a server's message that an error repeats.
    message_chars: int = 2000
    #: Warnings about the blocks of one answer.
    block_warnings: int = 5
    #: Characters of the address of a view, and of another resource.
    view_uri_chars: int = 2048
    resource_uri_chars: int = 8192
    #: Addresses of resources that are remembered. A forgotten one is looked up again.
    resource_uris: int = 10_000


LIMITS = Limits()


class Base64Run(str):
    """Stands for a long base64 text in a message. The SDK sees an empty text; ``view`` is the base64 as received."""

    __slots__ = ("view",)
    view: memoryview

    @classmethod
    def of(cls, view: memoryview) -> Base64Run:
        run = cls()
        run.view = view
        return run


def max_message_bytes(max_bytes: int) -> int:
    """Return the limit for a whole message whose content may have ``max_bytes`` when it is decoded."""
    # Base64 is a third longer; 1 MiB is for the rest of the message.
    return max_bytes * 4 // 3 + (1 << 20)


class MessageReader:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._has_warned = False

    async def parse(self, line: bytes | MessageEnds, *, may_be_cut: bool = False) -> SessionMessage | None:
        """Parse a line of a server. An unreadable line becomes an error that answers its request. Return ``None`` if
        that request is unknown, or if the line ``may_be_cut`` off because the server has ended: then the request fails
        with the connection."""
        if isinstance(line, MessageEnds):
            return self._over_limit(line)
        try:
            return SessionMessage(await in_thread_if_long(_parse_line, line))
        except Exception as error:  # noqa: BLE001 - any failure concerns this line only
            if not self._has_warned:
                self._has_warned = True
                problem = _reading_problem(error)
                logger.warning("left out a line of the server's stdout: %s; more are left out quietly", problem)
            failure = None if may_be_cut else unreadable_answer(line, error)
            return None if failure is None else SessionMessage(failure)

    def _over_limit(self, ends: MessageEnds) -> SessionMessage | None:
        problem = f"a message over the limit of {self._max_bytes:,} bytes"
        error = _error_of_answered_request(ends, OVER_LIMIT, f"the server sent {problem}")
        if error is None:
            logger.warning("left out %s; the request that it answers is unknown", problem)
            return None
        return SessionMessage(error)


def _parse_line(line: bytes) -> types.JSONRPCMessage:
    """Parse a line. Words may come before an answer: npx writes the title of the terminal to stdout."""
    try:
        return parse_message(line)
    except (ProtocolError, ValidationError):
        max_bytes_before = 4096
        start = _ANSWER_START.search(line, 0, max_bytes_before)
        if line.startswith(b"{") or start is None:
            raise
        message = parse_message(line[start.start() :])
        # A request after words may be a quotation in a log, so it must not be answered.
        if isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification):
            raise
        return message


def first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{path} is missing"
    return f"{path}: {first['msg']}"


def unreadable_answer(line: bytes, reason: Exception, request_id: int | None = None) -> types.JSONRPCError | None:
    """Make the error for a request whose answer cannot be read. Over HTTP ``request_id`` is known; otherwise the id is
    looked for in the ``line``. Return ``None`` if the request is unknown."""
    return _error_of_answered_request(ends_of_message(line), *unreadable(reason), request_id)


def unreadable(reason: Exception) -> tuple[int, str]:
    """Return the code and the message of the error for an answer that cannot be read."""
    has_too_many_values = isinstance(reason, ProtocolError) and reason.code == TooLarge.code
    code = TOO_MANY if has_too_many_values else UNREADABLE
    return code, f"the server sent an answer that cannot be read: {_reading_problem(reason)}"


def _reading_problem(error: Exception) -> str:
    if isinstance(error, ProtocolError):
        return error.message[:200]
    return "it is not a JSON-RPC message"


def _error_of_answered_request(
    ends: MessageEnds, code: int, message: str, request_id: int | None = None
) -> types.JSONRPCError | None:
    """Make an error for the request that a message answers. Return ``None`` if it answers none, or an unknown one."""
    if ends.has_method:
        return None
    # The ids of the SDK's requests are numbers.
    if request_id is None and ends.identity.isdigit():
        request_id = int(ends.identity)
    if request_id is None:
        return None
    return error_of_request(request_id, code, message)


def error_of_request(request_id: types.RequestId, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def _repair_envelope(message: object) -> object:
    """Repair an id such as ``1.0``, and an error that is a text or has a text as its code."""
    if not isinstance(message, dict):
        return message
    repairs: dict[str, object] = {}
    identity = message.get("id")
    if isinstance(identity, float) and identity.is_integer():
        repairs["id"] = int(identity)
    error = message.get("error")
    if error is not None and not _is_readable_error(error):
        repairs["error"] = _repair_error(error)
    if not repairs:
        return message
    return {**message, **repairs}


def _is_readable_error(error: object) -> bool:
    return (
        isinstance(error, dict)
        and isinstance(error.get("message"), str)
        and isinstance(error.get("code"), int | float)
        and error["code"] % 1 == 0
    )


def _repair_error(error: object) -> dict[str, object]:
    fields = members_of(error)
    message = fields.get("message", error)
    if not isinstance(message, str):
        message = encode_json(error).decode()
    code = fields.get("code")
    if isinstance(code, str):
        message = f"{code}: {message}"
    return {"code": types.INTERNAL_ERROR, "message": message, "data": fields.get("data")}


def _answer_among(messages: object, request_id: int) -> object:
    """Return the answer to a request. Servers of protocol 2025-03-26 may answer with a list of messages. An error
    without an id gets the id of this request, since it is the answer to its POST."""
    answer = messages
    for message in items_of(messages):
        if isinstance(message, dict) and message.get("id") == request_id:
            answer = message
            break
    if isinstance(answer, dict) and "error" in answer and answer.get("id") is None:
        return {**answer, "id": request_id}
    return answer


def parse_message(line: bytes, request_id: int | None = None) -> types.JSONRPCMessage:
    """Parse a message of a server. Long base64 in a result becomes a :class:`Base64Run`. ``request_id`` is the request
    that the message answers, if that is known, as over HTTP.

    Raises :class:`~transports.errors.ProtocolError`, and pydantic's errors for JSON that is not a message."""
    is_repaired = False
    try:
        tree = decode_with_runs(line, _CONTENT_KEY, _keep_run)
    except ProtocolError:
        repaired_line = without_half_pairs(line)
        if repaired_line == line:
            raise
        tree = decode_with_runs(repaired_line, _CONTENT_KEY, _keep_run)
        is_repaired = True

    if request_id is not None:
        tree = _answer_among(tree, request_id)
    if isinstance(tree, dict) and "method" in tree:
        # The SDK reads a request itself, so it gets the texts. Only results are kept away from the SDK.
        _replace_runs(tree, lambda node, key, run: decode_run(run.view))
    message = types.jsonrpc_message_adapter.validate_python(_repair_envelope(tree), by_name=False)
    if is_repaired and isinstance(message, types.JSONRPCResponse):
        message.result[REPAIRED] = True
    return message


def with_content(tree: object) -> Any:
    """Replace base64 runs in place: by content where a block says that it is base64, and elsewhere by text."""
    _replace_runs(tree, _text_or_content)
    return tree


def _replace_runs(tree: object, replacement: Callable[[Mapping[str, object], str, Base64Run], object]) -> None:
    for node in objects_in(tree):
        for key, item in node.items():
            if isinstance(item, Base64Run):
                node[key] = replacement(node, key, item)


def parse_json_text(text: str) -> object:
    """Parse JSON in a text block, with content in place of long base64. Raises ``ProtocolError``."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ProtocolError("the text holds half of a surrogate pair") from None
    return with_content(decode_with_runs(data, _CONTENT_KEY, _keep_run))


def _keep_run(_: object, __: str, run: memoryview) -> Base64Run:
    return Base64Run.of(run)


def _text_or_content(node: Mapping[str, object], key: str, run: Base64Run) -> object:
    """Return the content for a run under ``key`` of the object ``node``, or its text if the object declares none."""
    is_typed = key == "blob" or (key == "data" and node.get("type") in ("image", "audio"))
    is_declared = key == "content" and declares_base64(node.get("mimeType"), node.get("encoding"))
    is_plain_base64 = _NOT_PLAIN_BASE64.search(run.view[:PARSED_ON_LOOP]) is None
    if (is_typed or is_declared) and is_plain_base64:
        return BinaryData(Encoded(run.view, "base64"))
    return decode_run(run.view)


def encode_message(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def unsent_error(message: SessionMessage, error: Exception) -> SessionMessage | None:
    """Log that a message cannot be sent. Return the error that answers it, or ``None`` if it is not a request."""
    problem = f"the request cannot be sent ({type(error).__name__}): {str(error)[:200]}"
    logger.warning("%s", problem)
    if not isinstance(message.message, types.JSONRPCRequest):
        return None
    return SessionMessage(error_of_request(message.message.id, UNREADABLE, problem))


def to_capability(tool: types.Tool) -> dict[str, object]:
    """Describe a tool as a capability. The output schema loses ``additionalProperties``: an answer may also hold
    content blocks."""
    capability: dict[str, object] = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description or "",
        "inputSchema": tool.input_schema,
    }
    if tool.output_schema:
        capability["outputSchema"] = {
            keyword: value for keyword, value in tool.output_schema.items() if keyword != "additionalProperties"
        }
    if tool.annotations:
        capability["annotations"] = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    view = view_of(tool)
    if view is not None:
        capability["view"] = view
    return capability


def view_of(tool: types.Tool) -> str | None:
    """Return the address of a tool's view, or ``None`` without a view. Keys of earlier hosts are read, too."""
    meta: Mapping[str, Any] = tool.meta or {}
    addresses = [meta.get("ui/resourceUri"), meta.get("openai/outputTemplate")]
    if isinstance(meta.get("ui"), Mapping):
        addresses.insert(0, meta["ui"].get("resourceUri"))
    for address in addresses:
        if isinstance(address, str) and address.startswith("ui://") and len(address) <= LIMITS.view_uri_chars:
            return address
    return None


def is_visible(tool: types.Tool, to: Literal["model", "app"]) -> bool:
    """Whether agents (``model``) or views (``app``) may call a tool. Without ``visibility``, both may call it."""
    match tool.meta:
        case {"ui": {"visibility": list(visibility)}}:
            return to in visibility
    return True


def as_json(tree: object) -> Any:
    """The inverse of :func:`with_content`, but not in place."""
    match tree:
        case BinaryData(content=Encoded(text=memoryview() as run)):
            return decode_run(run)
        case dict():
            return {key: as_json(value) for key, value in tree.items()}
        case list():
            return [as_json(value) for value in tree]
    return tree


def to_arguments(params: Mapping[str, object], content: Sequence[Found], schema: Mapping[str, object]) -> object:
    """Put content into the parameters of a call: as base64 text where the schema declares a string, elsewhere as an
    object of ABP. This reads files, so call it in a thread."""
    values: dict[Place, object] = {item.path: _to_argument(item, schema) for item in content}
    return replace_values(dict(params), values)


def _to_argument(item: Found, schema: Mapping[str, object]) -> object:
    if not _declares_string(schema, item.path):
        return to_descriptor(item.binary)
    binary = item.binary
    assert isinstance(binary, BinaryData)
    if isinstance(binary.content, Encoded) and binary.content.encoding == "base64":
        return str(binary.content.text)
    return pybase64.b64encode(b"".join(binary.chunks())).decode()


def _declares_string(schema: Mapping[str, object], path: Place) -> bool:
    """Whether the schema declares a text at ``path``. References and combinations are not followed."""
    declared: Any = schema
    for step in path:
        match step, declared:
            case int(), {"items": inner}:
                declared = inner
            case str(), {"properties": {**properties}} if step in properties:
                declared = properties[step]
            case _:
                return False
    return isinstance(declared, Mapping) and declared.get("type") == "string"


# --- results ----------------------------------------------------------------------------------------------------------


def to_answer(result: Mapping[str, Any]) -> dict[str, object]:
    """Convert a tool's result into an answer of ABP. :func:`_merge_blocks` says what its ``data`` are. For a failed
    tool the answer has the error, and content other than text as ``data``. Raises
    :class:`~transports.errors.ProtocolError` if the blocks are not a list."""
    blocks = result.get("content") or []
    structured = result.get("structuredContent")
    if not isinstance(blocks, list):
        raise ProtocolError("the server's result has a content that is not a list of blocks")

    if is_error(result):
        answer: dict[str, object] = {"success": False, "error": _tool_error(blocks, structured)}
        other_blocks = _blocks_without_text(blocks)
        if other_blocks:
            answer["data"] = {"content": other_blocks}
        return answer
    return {"success": True, "data": _merge_blocks(structured, blocks)}


def _merge_blocks(structured: object, blocks: list[Any]) -> object:
    """Return the structured content with the blocks under ``content``. Blocks that only repeat the structured content
    are left out (MCP "Structured Content"). If it has a field ``content`` itself, or is not an object (protocol
    2026-07-28), both are kept side by side."""
    if structured is None:
        return {"content": blocks}
    if isinstance(structured, dict) and structured.get("content") == blocks:
        return structured

    blocks = [block for block in blocks if not _repeats_structured(block, structured)]
    if not blocks:
        return structured
    if not isinstance(structured, dict) or "content" in structured:
        return {"content": blocks, "structuredContent": structured}
    return {**structured, "content": blocks}


def is_error(result: Mapping[str, object]) -> bool:
    """Whether the tool has failed. Some servers write the flag as a text or a number."""
    flag = result.get("isError")
    if isinstance(flag, str):
        return flag.lower() in ("true", "1")
    return flag == 1


def _is_text_block(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _blocks_without_text(blocks: Sequence[Any]) -> list[Any]:
    return [block for block in blocks if not _is_text_block(block)]


def _repeats_structured(block: object, structured: object) -> bool:
    """Whether a block repeats the structured content, or a plain value that some SDKs wrap as ``{"result": …}``."""
    if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
        return False

    text = block["text"]
    values = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        values += structured.values()
    if any(isinstance(value, str) and value == text for value in values):
        return True

    try:
        parsed_text = parse_json_text(text)
    except ProtocolError:
        return False
    # The types are compared too, since True == 1.
    return any(type(parsed_text) is type(value) and parsed_text == value for value in values)


#: Members that a block of each type must have, with their types.
_REQUIRED_MEMBERS: Mapping[str, tuple[tuple[str, type], ...]] = {
    "text": (("text", str),),
    "image": (("data", str), ("mimeType", str)),
    "audio": (("data", str), ("mimeType", str)),
    "resource": (("resource", dict),),
    "resource_link": (("uri", str),),
}


def result_warnings(result: Mapping[str, object], output_schema: object) -> list[str]:
    """Return where a result is not as MCP or the tool's ``output_schema`` asks."""
    warnings = _block_warnings(result.get("content"))
    if not isinstance(output_schema, Mapping) or not output_schema or is_error(result):
        return warnings

    structured = result.get("structuredContent")
    if structured is None:
        return [*warnings, "outputSchema: the answer has no structuredContent"]
    content_places = [item.path for item in find(structured)]
    return [*warnings, *check_output(output_schema, structured, content_places)]


def _block_warnings(blocks: object) -> list[str]:
    warnings: list[str] = []
    for index, block in enumerate(items_of(blocks)):
        fault = _block_fault(block)
        if fault:
            warnings.append(f"content.{index}: {fault}")
        if len(warnings) == LIMITS.block_warnings:
            break
    return warnings


def _block_fault(block: object) -> str:
    """Say why a block is not valid; the text is empty for a valid block."""
    if not isinstance(block, dict):
        return f"not a block but {type(block).__name__}"
    kind = block.get("type")
    if not isinstance(kind, str):
        return "a block without a type"
    if kind not in _REQUIRED_MEMBERS:
        return f"a block of unknown type {kind[:80]!r}"

    missing = [
        name
        for name, required_type in _REQUIRED_MEMBERS[kind]
        if not isinstance(block.get(name), (required_type, BinaryData))
    ]
    if not missing:
        return ""
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{article} {kind} without {' and '.join(missing)}"


def _tool_error(blocks: Sequence[Any], structured: object) -> dict[str, object]:
    """Return the error of a failed tool. A structured error that has ABP's form is returned unchanged."""
    if isinstance(structured, dict):
        abp_error = structured.get("error")
        if isinstance(abp_error, dict) and isinstance(abp_error.get("code"), str):
            return abp_error

    texts = [str(block.get("text")) for block in blocks if _is_text_block(block)]
    message = "\n".join(texts).strip() or _structured_message(structured)
    error: dict[str, object] = {"message": message[: LIMITS.message_chars] or "the tool failed and did not say why"}

    other_blocks = _blocks_without_text(blocks)
    if structured is not None:
        error["details"] = {"content": other_blocks, "structuredContent": structured}
    elif other_blocks:
        error["details"] = {"content": other_blocks}
    return error


def _structured_message(structured: object) -> str:
    """Find the message in the structured content of a failed tool. It is empty without such content."""
    match structured:
        case str(message):
            return message
        case {"error": str(message)} if message.strip():
            return message
        case {"error": {"message": str(message)}} if message.strip():
            return message
        case {"message": str(message)} if message.strip():
            return message
    if isinstance(structured, dict) and structured:
        return encode_json(structured).decode()
    return ""


def error_answer(error: CapabilityError) -> dict[str, object]:
    """Make the answer for a failed call. Its ``retryAfter`` is in milliseconds."""
    info: dict[str, object] = {
        "code": error.code,
        "message": error.message,
        "details": error.details,
        "retryable": error.retryable,
    }
    if error.retry_after is not None:
        info["retryAfter"] = error.retry_after * 1000
    return {"success": False, "error": info}


# --- questions --------------------------------------------------------------------------------------------------------


def to_elicitation(params: types.ElicitRequestParams) -> ElicitationRequest:
    """Make an elicitation of a server's question. A form without fields, and an address to visit, become a confirmation
    (docs/protocol.md 5.2)."""
    if isinstance(params, types.ElicitRequestURLParams):
        return ElicitationRequest(method="elicitation/confirm", params={"message": params.message, "url": params.url})
    if not _form_fields(params):
        return ElicitationRequest(method="elicitation/confirm", params={"message": params.message})
    question: dict[str, object] = {"message": params.message, "schema": dict(params.requested_schema)}
    defaults = _form_defaults(params.requested_schema)
    if defaults is not None:
        question["default"] = defaults
    return ElicitationRequest(method="elicitation/input", params=question)


def _form_fields(params: types.ElicitRequestFormParams) -> Mapping[str, object]:
    return members_of(params.requested_schema.get("properties"))


def _form_defaults(schema: Mapping[str, Any]) -> dict[str, object] | None:
    """Return the default answer to a form, or ``None`` if a person must answer: a required field has no default, or a
    default is ``True``, which may agree to a destructive action, as MCP does not mark these."""
    defaults = {
        name: field_schema["default"]
        for name, field_schema in schema.get("properties", {}).items()
        if isinstance(field_schema, Mapping) and "default" in field_schema
    }
    is_complete = set(schema.get("required", ())) <= set(defaults)
    agrees_to_something = any(value is True for value in defaults.values())
    if not defaults or not is_complete or agrees_to_something:
        return None
    return defaults


def to_elicit_result(params: types.ElicitRequestParams, answer: Mapping[str, Any]) -> types.ElicitResult:
    """Convert the session's answer to a question. ``params`` are the parameters of the question."""
    declined = types.ElicitResult(action="decline")
    if not answer.get("success"):
        return declined
    data = members_of(answer.get("data"))
    if isinstance(params, types.ElicitRequestURLParams):
        confirmed = types.ElicitResult(action="accept")
    elif _form_fields(params):
        return _form_result(_form_fields(params), data.get("value"))
    else:
        confirmed = types.ElicitResult(action="accept", content={})
    return confirmed if data.get("confirmed") is True else declined


def _form_result(fields: Mapping[str, object], values: Any) -> types.ElicitResult:
    """Make the answer to a form. For a form with a single field, ``values`` may be the bare value of that field."""
    declined = types.ElicitResult(action="decline")
    if not isinstance(values, Mapping):
        if len(fields) != 1:
            return declined
        values = dict.fromkeys(fields, values)
    try:
        return types.ElicitResult(action="accept", content=dict(values))
    except ValidationError:
        return declined


def to_sampling_result(answer: Mapping[str, Any]) -> types.CreateMessageResult | types.ErrorData:
    message: dict[str, object] = {"role": "assistant", "model": "unknown"}
    match answer:
        case {"success": True, "data": {"result": str(text)}}:
            message["content"] = {"type": "text", "text": text}
        case {"success": True, "data": {"result": Mapping() as result}}:
            message.update(result)
        case _:
            return types.ErrorData(code=-1, message="the client declined to sample")
    try:
        return types.CreateMessageResult.model_validate(message, by_name=False)
    except ValidationError:
        return types.ErrorData(code=types.INVALID_PARAMS, message="the client's answer is not a message")


class Questions:
    """Questions of the server. Each is emitted as an elicitation, and waits until :meth:`answer` gets its answer."""

    def __init__(self, emit: Callable[[Message], None]) -> None:
        self._emit = emit
        self._pending: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Called by the SDK (MCP "Elicitation")."""
        return to_elicit_result(params, await self._answer_to(to_elicitation(params)))

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Called by the SDK (MCP "Sampling")."""
        payload = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        return to_sampling_result(await self._answer_to(ElicitationRequest(method="sampling/create", params=payload)))

    async def _answer_to(self, question: ElicitationRequest) -> Mapping[str, Any]:
        key = str(uuid.uuid4())
        self._pending[key] = asyncio.get_running_loop().create_future()
        self._emit(Message("elicitation/request", question.model_dump(by_alias=True, exclude_none=True), id=key))
        try:
            return await self._pending[key]
        finally:
            del self._pending[key]

    def answer(self, message: Message) -> None:
        waiting = self._pending.get(message.id or "")
        if waiting is not None and not waiting.done() and isinstance(message.payload, Mapping):
            waiting.set_result(message.payload)

    def close(self) -> None:
        for waiting in self._pending.values():
            waiting.cancel()
