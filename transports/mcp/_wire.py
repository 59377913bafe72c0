"""Translation between MCP and ABP.

Lines of a stdio server become messages of the SDK (MCP "Transports": one JSON-RPC message a line), with long base64
kept out of the SDK. Tools become capabilities, results answers, and questions of the server elicitations.
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
from ..protocol._find_content import Found, Place, declares_base64, find, replace
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
from ._stdio import Ends, ends_of

logger = logging.getLogger("transports.mcp")

#: Member of a result in which half of a pair of surrogates was replaced.
REPAIRED = "abp-transports/repaired"
#: The warning about it.
HALF_PAIR = "half of a surrogate pair became U+FFFD"
#: Codes of errors for answers that arrived but could not be read, and for a server that is busy. Servers do not send
#: them.
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
#: Characters of the URL-safe alphabet and of data: URLs. Such text is left to the general decoder.
_NOT_PLAIN_BASE64 = re.compile(rb"[-_:]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what a server sends."""

    #: Values of a result; one with more is withheld from the SDK and processed in threads.
    values_on_loop: int = 3000
    #: Values in a notification or a request of a server, which the SDK validates on the event loop.
    values_of_notification: int = 20_000
    #: Tools with arguments that become headers, which the SDK reads on the event loop.
    headed_tools: int = 200
    #: Levels of a schema. pydantic can write 255, and a schema is inside other levels.
    schema_depth: int = 200
    #: Pages of a list. That of a faulty server may never end.
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
    """Long run of base64 in a message: an empty text for the SDK, with a view of the received bytes."""

    __slots__ = ("view",)
    view: memoryview

    @classmethod
    def of(cls, view: memoryview) -> Base64Run:
        run = cls()
        run.view = view
        return run


def max_message_bytes(max_bytes: int) -> int:
    """Return the limit of a message whose content may have ``max_bytes`` when it is decoded."""
    # Base64 is a third longer; 1 MiB is for the rest of the message.
    return max_bytes * 4 // 3 + (1 << 20)


class MessageReader:
    """Reader of the messages of a stdio server, each of at most ``max_bytes`` of content."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._has_warned = False

    async def parse(self, line: bytes | Ends) -> SessionMessage | None:
        """Return the message of a line, of which only the ends are known if it is over the limit.

        In place of one that cannot be read comes the error of the request that it answers, or ``None`` if that request
        is unknown.
        """
        if isinstance(line, Ends):
            return self._over_limit(line)
        try:
            return SessionMessage(await in_thread_if_long(_parse_line, line))
        except Exception as error:  # noqa: BLE001 - any failure concerns this line only
            if not self._has_warned:
                self._has_warned = True
                problem = _reading_problem(error)
                logger.warning("left out a line of the server's stdout: %s; more are left out quietly", problem)
            failure = unreadable_answer(line, error)
            return None if failure is None else SessionMessage(failure)

    def _over_limit(self, ends: Ends) -> SessionMessage | None:
        problem = f"a message over the limit of {self._max_bytes:,} bytes"
        error = _error_of_answered_request(ends, OVER_LIMIT, f"the server sent {problem}")
        if error is None:
            logger.warning("left out %s; the request that it answers is unknown", problem)
            return None
        return SessionMessage(error)


def _parse_line(line: bytes) -> types.JSONRPCMessage:
    """Return the message of a line. Before an answer there may be words that have no line of their own, such as the
    title of a terminal, which npx sets on stdout."""
    try:
        return parse_message(line)
    except (ProtocolError, ValidationError):
        max_words = 4096
        start = _ANSWER_START.search(line, 0, max_words)
        if line.startswith(b"{") or start is None:
            raise
        message = parse_message(line[start.start() :])
        # What a log quotes may be a request, which must not be answered.
        if isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification):
            raise
        return message


def first_fault(error: ValidationError) -> str:
    """Return the first fault of a value, with its place as on the wire."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {first['msg']}"


def unreadable_answer(line: bytes, reason: Exception, request_id: int | None = None) -> types.JSONRPCError | None:
    """Return the error of the request that an unreadable message answers; ``None`` if that request is unknown.

    ``reason`` is the exception of the attempt to read the message. ``request_id`` is the request that the message came
    back for over HTTP, if that is known.
    """
    return _error_of_answered_request(ends_of(line), *unreadable(reason), request_id)


def unreadable(reason: Exception) -> tuple[int, str]:
    """Return the code and the message of the error of an answer that cannot be read because of ``reason``."""
    has_too_many_values = isinstance(reason, ProtocolError) and reason.code == TooLarge.code
    code = TOO_MANY if has_too_many_values else UNREADABLE
    return code, f"the server sent an answer that cannot be read: {_reading_problem(reason)}"


def _reading_problem(error: Exception) -> str:
    if isinstance(error, ProtocolError):
        return error.message[:200]
    return "it is not a JSON-RPC message"


def _error_of_answered_request(
    ends: Ends, code: int, message: str, request_id: int | None = None
) -> types.JSONRPCError | None:
    if ends.has_method:
        return None
    # The SDK numbers its requests.
    if request_id is None and ends.identity.isdigit():
        request_id = int(ends.identity)
    return None if request_id is None else error_of_request(request_id, code, message)


def error_of_request(request_id: types.RequestId, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def _repair_envelope(message: object) -> object:
    """Return a message with an id and an error that the SDK reads; the ``message`` itself if those are valid.

    Some libraries write every number as a float, so an id as ``1.0``. Some servers answer errors as a text, or with a
    code that is a text."""
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
    """Return an error that the SDK reads: with the server's ``data``, and a code that is a text in its message."""
    fields = members_of(error)
    message = fields.get("message", error)
    if not isinstance(message, str):
        message = encode_json(error).decode()
    code = fields.get("code")
    if isinstance(code, str):
        message = f"{code}: {message}"
    return {"code": types.INTERNAL_ERROR, "message": message, "data": fields.get("data")}


def _answer_among(messages: object, request_id: int) -> object:
    """Return the answer to a request in what came back for it over HTTP.

    Servers of protocol 2025-03-26 may answer with a list. An error without an id is about this request, too."""
    answer = messages
    if isinstance(messages, list):
        own_answers = [message for message in messages if isinstance(message, dict) and message.get("id") == request_id]
        answer = own_answers[0] if own_answers else messages
    if isinstance(answer, dict) and "error" in answer and answer.get("id") is None:
        return {**answer, "id": request_id}
    return answer


def parse_message(line: bytes, request_id: int | None = None) -> types.JSONRPCMessage:
    """Return a message, with :class:`Base64Run` in the place of long base64.

    ``request_id`` is the request that the message came back for over HTTP.
    Raises :class:`~transports.errors.ProtocolError`, and pydantic's errors for JSON that is not a message.
    """
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
        # The SDK reads requests itself. Only results are kept away from it.
        _replace_runs(tree, lambda _, __, run: decode_run(run.view))
    message = types.jsonrpc_message_adapter.validate_python(_repair_envelope(tree), by_name=False)
    if is_repaired and isinstance(message, types.JSONRPCResponse):
        message.result[REPAIRED] = True
    return message


def with_content(tree: object) -> Any:
    """Replace the base64 runs of a result in place and return it.

    A run becomes content where a block or descriptor declares it (docs/requirements.md R2-2.3), elsewhere text.
    """
    _replace_runs(tree, _text_or_content)
    return tree


def _replace_runs(tree: object, replacement: Callable[[Mapping[str, object], str, Base64Run], object]) -> None:
    for node in objects_in(tree):
        for key, item in node.items():
            if isinstance(item, Base64Run):
                node[key] = replacement(node, key, item)


def parse_json_text(text: str) -> object:
    """Return JSON parsed from a text as messages are. Raises :class:`~transports.errors.ProtocolError`."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ProtocolError("the text holds half of a surrogate pair") from None
    return with_content(decode_with_runs(data, _CONTENT_KEY, _keep_run))


def _keep_run(_: object, __: str, run: memoryview) -> Base64Run:
    return Base64Run.of(run)


def _text_or_content(node: Mapping[str, object], key: str, run: Base64Run) -> object:
    """Return a run as content if the block or descriptor ``node`` declares its member ``key`` so, otherwise as text."""
    is_typed = key == "blob" or (key == "data" and node.get("type") in ("image", "audio"))
    is_declared = key == "content" and declares_base64(node.get("mimeType"), node.get("encoding"))
    if (is_typed or is_declared) and _NOT_PLAIN_BASE64.search(run.view[:PARSED_ON_LOOP]) is None:
        return BinaryData(Encoded(run.view, "base64"))
    return decode_run(run.view)


def encode_message(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def unsent_error(message: SessionMessage, error: Exception) -> SessionMessage | None:
    """Return the error of a request that could not be written, such as half a surrogate pair; ``None`` if the message
    is not a request."""
    problem = f"the request cannot be sent ({type(error).__name__}): {str(error)[:200]}"
    logger.warning("%s", problem)
    if not isinstance(message.message, types.JSONRPCRequest):
        return None
    return SessionMessage(error_of_request(message.message.id, UNREADABLE, problem))


def to_capability(tool: types.Tool) -> dict[str, object]:
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
        listed["outputSchema"] = {
            keyword: value for keyword, value in tool.output_schema.items() if keyword != "additionalProperties"
        }
    if tool.annotations:
        listed["annotations"] = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    view = view_of(tool)
    if view is not None:
        listed["view"] = view
    return listed


def view_of(tool: types.Tool) -> str | None:
    """Return the address of a tool's view, also from the keys of earlier hosts, or ``None``."""
    meta: Mapping[str, Any] = tool.meta or {}
    addresses = [meta.get("ui/resourceUri"), meta.get("openai/outputTemplate")]
    if isinstance(meta.get("ui"), Mapping):
        addresses.insert(0, meta["ui"].get("resourceUri"))
    for address in addresses:
        if isinstance(address, str) and address.startswith("ui://") and len(address) <= LIMITS.view_uri_chars:
            return address
    return None


def is_visible(tool: types.Tool, to: Literal["model", "app"]) -> bool:
    """Return whether agents (``model``) or views (``app``) may call a tool. Both may unless the tool says otherwise."""
    match tool.meta:
        case {"ui": {"visibility": list(visibility)}}:
            return to in visibility
    return True


def as_json(tree: object) -> Any:
    """Return a result of :func:`with_content` as JSON values again, with base64 in the place of content. The result
    itself stays as it is."""
    match tree:
        case BinaryData(content=Encoded(text=memoryview() as run)):
            return decode_run(run)
        case BinaryData(content=Encoded(text=text)):
            return text
        case dict():
            return {key: as_json(value) for key, value in tree.items()}
        case list():
            return [as_json(value) for value in tree]
    return tree


def to_arguments(params: Mapping[str, object], content: Sequence[Found], schema: Mapping[str, object]) -> object:
    """Return parameters with their content as base64. Reads files, so call it in a thread.

    Content is a bare text where the tool's schema declares a string, and a descriptor elsewhere.
    """
    arguments: dict[Place, object] = {item.path: _to_argument(item, schema) for item in content}
    return replace(dict(params), arguments)


def _to_argument(item: Found, schema: Mapping[str, object]) -> object:
    if not _declares_string(schema, item.path):
        return to_descriptor(item.binary)
    binary = item.binary
    assert isinstance(binary, BinaryData)
    if isinstance(binary.content, Encoded) and binary.content.encoding == "base64":
        return str(binary.content.text)
    return pybase64.b64encode(b"".join(binary.chunks())).decode()


def _declares_string(schema: Mapping[str, object], path: Place) -> bool:
    """Return whether a schema declares a string at ``path``. References and combinations are not followed."""
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
    """Return ``tools/call``'s result as an ABP answer.

    ``data`` is the structured content, whose fields are the tool's own. Content blocks are added under ``content``,
    except a text that only repeats the structured content (MCP "Structured Content"), or blocks that the structured
    content itself holds. If the structured content has a field of that name too, or is not an object (protocol
    2026-07-28), both are kept side by side as in MCP. A failed tool's content other than text is the ``data`` beside
    its error.
    Raises :class:`~transports.errors.ProtocolError` if the blocks are not a list.
    """
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
    """Return the structured content of a result together with those of its content blocks that do not repeat it."""
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
    """Return whether a tool has failed. Servers also write the flag as a text or a number."""
    flag = result.get("isError")
    if isinstance(flag, str):
        return flag.lower() in ("true", "1")
    return flag == 1


def _is_text_block(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _blocks_without_text(blocks: Sequence[Any]) -> list[Any]:
    return [block for block in blocks if not _is_text_block(block)]


def _repeats_structured(block: object, structured: object) -> bool:
    """Return whether a text block is the structured content or its only member, as it is or as JSON: some SDKs wrap a
    plain value as ``{"result": …}``."""
    match block:
        case {"type": "text", "text": str(text)}:
            pass
        case _:
            return False

    values = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        values += structured.values()
    if any(isinstance(value, str) and value == text for value in values):
        return True

    try:
        parsed = parse_json_text(text)
    except ProtocolError:
        return False
    # The types are compared too, since True == 1.
    return any(type(parsed) is type(value) and parsed == value for value in values)


#: Members that a block of each type must have, with their types.
_REQUIRED_MEMBERS: Mapping[str, tuple[tuple[str, type], ...]] = {
    "text": (("text", str),),
    "image": (("data", str), ("mimeType", str)),
    "audio": (("data", str), ("mimeType", str)),
    "resource": (("resource", dict),),
    "resource_link": (("uri", str),),
}


def result_warnings(result: Mapping[str, object], output_schema: object) -> list[str]:
    """Return what is wrong with a tool's result: its blocks, and the structured content, as it came, against the tool's
    ``outputSchema``."""
    warnings = _block_warnings(result.get("content"))
    if not isinstance(output_schema, Mapping) or not output_schema or is_error(result):
        return warnings

    structured = result.get("structuredContent")
    if structured is None:
        return [*warnings, "outputSchema: the answer has no structuredContent"]
    content_places = [item.path for item in find(structured)]
    return [*warnings, *check_output(output_schema, structured, content_places)]


def _block_warnings(blocks: object) -> list[str]:
    """Return the faults of the first few faulty content blocks, each with its place."""
    warnings: list[str] = []
    for index, block in enumerate(items_of(blocks)):
        fault = _block_fault(block)
        if fault:
            warnings.append(f"content.{index}: {fault}")
        if len(warnings) == LIMITS.block_warnings:
            break
    return warnings


def _block_fault(block: object) -> str:
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
    """Return the error of a failed tool. A structured error in ABP's form is returned unchanged."""
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
    """Return the message in the structured content of a failed tool, in any of the usual forms, or all of it."""
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
    """Return the answer of a failed call in ABP's form. Its ``retryAfter`` is in milliseconds."""
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
    """Return a server's elicitation in the form of an app's (docs/protocol.md 5.2).

    A form becomes an input with a schema; one without fields, and an address for a person to visit, a confirmation.
    """
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
    """Return the form's defaults if every required field has one, otherwise ``None``.

    ``None`` also if a default is ``True``: MCP does not mark destructive actions, so a person must agree.
    """
    defaults = {
        name: field["default"]
        for name, field in schema.get("properties", {}).items()
        if isinstance(field, Mapping) and "default" in field
    }
    is_complete = set(schema.get("required", ())) <= set(defaults)
    agrees_to_something = any(value is True for value in defaults.values())
    if not defaults or not is_complete or agrees_to_something:
        return None
    return defaults


def to_elicit_result(params: types.ElicitRequestParams, answer: Mapping[str, Any]) -> types.ElicitResult:
    """Return the handler's answer for the server: the values of a form, or whether a person has confirmed."""
    declined = types.ElicitResult(action="decline")
    if not answer.get("success"):
        return declined
    data: Any = answer.get("data")
    if not isinstance(data, Mapping):
        data = {}

    if isinstance(params, types.ElicitRequestURLParams):
        confirmed = types.ElicitResult(action="accept")
    elif _form_fields(params):
        return _form_result(_form_fields(params), data.get("value"))
    else:
        confirmed = types.ElicitResult(action="accept", content={})
    return confirmed if data.get("confirmed") is True else declined


def _form_result(fields: Mapping[str, object], values: Any) -> types.ElicitResult:
    """Return the answer with the values of a form. A form of one field accepts a value without the field's name."""
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
    """Return the handler's ``{result}`` for the server: a text, or a message in MCP's form."""
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
    """Pending elicitation and sampling requests of a server. ``emit`` passes a message to the session."""

    def __init__(self, emit: Callable[[Message], None]) -> None:
        self._emit = emit
        self._pending: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the user (MCP "Elicitation"). Called by the SDK."""
        return to_elicit_result(params, await self._answer_to(to_elicitation(params)))

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Ask for a message of a language model (MCP "Sampling"). Called by the SDK."""
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
        """Resolve a question with the session's ``elicitation/response``. One that is not pending is ignored."""
        answer = self._pending.get(message.id or "")
        if answer is not None and not answer.done() and isinstance(message.payload, Mapping):
            answer.set_result(message.payload)

    def close(self) -> None:
        for answer in self._pending.values():
            answer.cancel()
