"""Answers to what is not a message of JSON-RPC, so that every request gets one: over stdio and over HTTP."""

from __future__ import annotations

import re

import msgspec
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..._internal.tasks import in_thread
from ...errors import first_line
from ...protocol._strict_json import MAX_REQUESTED, PARSED_ON_LOOP, has_more_values
from ._request_limits import TOO_MANY

#: Texts and brackets of JSON: what shows which names are those of the message itself.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:")
_ID = re.compile(rb'\s*:\s*(?:(-?\d{1,4000})(?:\.0+)?(?=[\s,}])|("(?:[^"\\\x00-\x1f]++|\\.){0,1000}+"))')


class MessageCheck:
    """ASGI middleware that answers a request whose body is not a message with status 400 and its error. A body of more
    than ``max_bytes`` is left to the application, which refuses it."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []
        size, complete = 0, False
        while not complete and size <= self._max_bytes:
            messages.append(message := await receive())
            size += len(message.get("body", b""))
            complete = message["type"] != "http.request" or not message.get("more_body", False)
        if complete and messages[-1]["type"] == "http.request" and size <= self._max_bytes:
            body = b"".join(message.get("body", b"") for message in messages)
            if (refusal := await check_message(body)) is not None:
                await JSONResponse(refusal.model_dump(by_alias=True), 400)(scope, receive, send)
                return

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)


async def check_message(line: bytes) -> JSONRPCError | None:
    """Return the answer to a line that is not a message, as :func:`refusal_of` does. A long line is read in a
    thread."""
    if len(line) <= PARSED_ON_LOOP:
        return refusal_of(line)
    return await in_thread(refusal_of, line)


def refusal_of(line: bytes) -> JSONRPCError | None:
    """Return the answer to a line that is not a message, ``None`` for a message. Its ``id`` is that of the request if
    the line has one, else ``None`` (JSON-RPC 2.0, 5)."""
    if has_more_values(line, MAX_REQUESTED):
        error = ErrorData.model_validate(TOO_MANY["error"])
    else:
        try:
            message = jsonrpc_message_adapter.validate_json(line.decode(), by_name=False)
        except UnicodeDecodeError as fault:
            error = ErrorData(code=PARSE_ERROR, message=f"the message is not UTF-8 text: {fault.reason}")
        except ValidationError as fault:
            reason = fault.errors(include_url=False, include_context=False, include_input=False)[0]
            error = ErrorData(
                code=PARSE_ERROR if reason["type"] == "json_invalid" else INVALID_REQUEST,
                message=f"this is not a message of JSON-RPC 2.0: {first_line(reason['msg'])}",
            )
        else:
            # the SDK takes a request whose id is neither a text nor an integer for a notification
            if not isinstance(message, JSONRPCNotification) or b'"id"' not in _own_names(line):
                return None
            error = ErrorData(code=INVALID_REQUEST, message="the id of a request is a text or an integer")
    return JSONRPCError(jsonrpc="2.0", id=request_id(line), error=error)


def request_id(line: bytes) -> RequestId | None:
    """Return the id of a request that cannot be parsed, wherever it stands in the message; ``None`` if there is none,
    and for anything but a request."""
    names = _own_names(line)
    if b'"method"' not in names or (found := _ID.match(line, names.get(b'"id"', len(line)))) is None:
        return None
    return _read_id(found)


def _own_names(line: bytes) -> dict[bytes, int]:
    """Return the names of the members of a message, as they are written, each with the place of the colon after it;
    none of a batch. The JSON may be too deep, or broken."""
    names: dict[bytes, int] = {}
    depth = 0
    for token in _TOKEN.finditer(line):
        if token[0] in (b"{", b"["):
            if depth == 0 and token[0] == b"[":
                break
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and _COLON.match(line, token.end()):
            names[token[0]] = token.end()
    return names


def _read_id(found: re.Match[bytes]) -> RequestId | None:
    if found[1] is not None:
        return int(found[1])
    try:
        return str(msgspec.json.decode(found[2], type=str))
    except msgspec.DecodeError:
        return None
