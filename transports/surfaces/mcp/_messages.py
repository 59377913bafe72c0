"""Answers to requests that are not messages of JSON-RPC, too large or too slow, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import mcp_types as types
import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import CallTimeout, TooLarge, first_line
from ...mcp._stdio import ends_of_message
from ...protocol._strict_json import MAX_REQUESTED, ValueCounter, has_more_values, in_thread_if_long
from ..shared._listening import SLOW_BODY, pieces_in_time


def error_body(message: str, **data: object) -> dict[str, object]:
    """Return the JSON-RPC error for a request that is refused before it is parsed."""
    return {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": types.INVALID_REQUEST, "message": message, "data": data},
    }


_TOO_MANY = f"the request has more than {MAX_REQUESTED:,} values and names; send fewer at once, or send them as a file"
_TOO_MANY_DATA = {"code": TooLarge.code, "limit": MAX_REQUESTED}


class MessageCheck:
    """Checks the body of each POST, and refuses a bad one with a JSON-RPC error: status 413 above ``max_bytes`` or
    50,000 values and names, 408 if the body arrives too slowly, 400 if it is not a message or has the id of a running
    request of its session. A body that is too large is read and dropped up to eight times its limit. Its error also
    says how many bytes files may have, ``max_file_bytes``. ``challenge`` returns the response to a message whose sender
    lacks permissions, or ``None``."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_bytes: int,
        max_file_bytes: int,
        challenge: Callable[[Scope, bytes], Response | None] | None = None,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._challenge = challenge
        #: Ends of the running requests of sessions with a handshake, by the session and the request's id.
        self._running: dict[tuple[str, str], asyncio.Event] = {}
        message = (
            f"the request has more than {max_bytes:,} bytes; files in it may have {max_file_bytes:,} together "
            "(max_file_bytes): send fewer at once, name an artifact, or have the user raise the limit"
        )
        self._too_large = error_body(message, code=TooLarge.code, limit=max_file_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        if not (is_post and isinstance(scope.get("user"), AuthenticatedUser)):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read_body(Request(scope, receive))
        except ClientDisconnect:
            return
        if isinstance(body, Response):
            await body(scope, receive, send)
            return

        try:
            rpc_message = await in_thread_if_long(parse_message, body)
        except Refused as refused:
            await _bad_request(refused.error)(scope, receive, send)
            return
        challenge = self._challenge(scope, body) if self._challenge is not None else None
        if challenge is not None:
            await challenge(scope, receive, send)
            return

        message: Message = {"type": "http.request", "body": body, "more_body": False}
        receive = receive_again(message, receive)
        session = Headers(scope=scope).get("mcp-session-id")
        if session is None or not isinstance(rpc_message, types.JSONRPCRequest):
            await self._app(scope, receive, send)
        else:
            await self._serve_once(session, rpc_message.id, scope, receive, send)

    async def _serve_once(
        self, session: str, request_id: types.RequestId, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a request, or refuse it if its id is that of a running request: the SDK would send both answers in the
        response to the second request."""
        key = (session, str(request_id))
        if not await self._has_ended(key):
            reason = "a request with this id is still running; use another id"
            error = types.ErrorData(code=types.INVALID_REQUEST, message=reason)
            refusal = types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
            await _bad_request(refusal)(scope, receive, send)
            return
        ended = self._running[key] = asyncio.Event()
        try:
            await self._app(scope, receive, send)
        finally:
            del self._running[key]
            ended.set()

    async def _has_ended(self, key: tuple[str, str]) -> bool:
        """Whether no request with this id is running. This waits up to a second, since a client may use an id again
        just before the response to its last request has ended."""
        try:
            async with asyncio.timeout(1):
                while key in self._running:
                    await self._running[key].wait()
        except TimeoutError:
            return False
        return True

    async def _read_body(self, request: Request) -> bytes | Response:
        counter = ValueCounter()

        def refuse(chunk: bytes, size: int) -> Response | None:
            if size > self._max_bytes:
                return JSONResponse(self._too_large, 413)
            if counter.add(chunk) > MAX_REQUESTED:
                return JSONResponse(error_body(_TOO_MANY, **_TOO_MANY_DATA), 413)
            return None

        return await read_request_body(request, refuse, max_dropped=8 * self._max_bytes)


def _bad_request(refusal: types.JSONRPCError) -> Response:
    return JSONResponse(refusal.model_dump(by_alias=True), 400)


def receive_again(message: Message, receive: Receive) -> Receive:
    """Return a function that returns a message that was received already, and then those of ``receive``."""
    unread = [message]

    async def receive_next() -> Message:
        if unread:
            return unread.pop()
        return await receive()

    return receive_next


async def read_request_body(
    request: Request, refuse: Callable[[bytes, int], Response | None], *, max_dropped: int
) -> bytes | Response:
    """Return the body of a request, or a response that refuses it. ``refuse`` is called with each chunk and the size of
    the body so far, and returns such a response or ``None``. A refused body is still read, up to the size
    ``max_dropped``, since a client reads no response before it has sent its request."""
    chunks: list[bytes] = []
    size = 0
    refusal: Response | None = None
    try:
        async for chunk in pieces_in_time(request.stream()):
            size += len(chunk)
            if refusal is None:
                chunks.append(chunk)
                refusal = refuse(chunk, size)
                if refusal is not None:
                    chunks.clear()
            elif size > max_dropped:
                break
    except TimeoutError:
        return JSONResponse(error_body(SLOW_BODY, code=CallTimeout.code), 408, headers={"Connection": "close"})

    if refusal is not None:
        return refusal
    return b"".join(chunks)


class Refused(Exception):
    """Raised for a line that is not handed to the server. ``error`` is the answer, with the id of the request, or
    ``None`` if the line has no id (JSON-RPC 2.0, 5)."""

    def __init__(self, line: bytes, code: int, reason: str, data: object = None) -> None:
        super().__init__(reason)
        error = types.ErrorData(code=code, message=reason)
        if data is not None:
            error.data = data
        self.error = types.JSONRPCError(jsonrpc="2.0", id=_request_id(line), error=error)


def parse_message(line: bytes) -> types.JSONRPCMessage:
    """Parse a message of a client. Raises :class:`Refused` for anything that is not handed to the server."""
    if has_more_values(line, MAX_REQUESTED):
        raise Refused(line, types.INVALID_REQUEST, _TOO_MANY, _TOO_MANY_DATA)
    try:
        message = types.jsonrpc_message_adapter.validate_json(line.decode(), by_name=False)
    except UnicodeDecodeError as fault:
        raise Refused(line, types.PARSE_ERROR, f"the message is not UTF-8 text: {fault.reason}") from None
    except ValidationError as fault:
        first_fault = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        code = types.PARSE_ERROR if first_fault["type"] == "json_invalid" else types.INVALID_REQUEST
        reason = f"this is not a message of JSON-RPC 2.0: {first_line(first_fault['msg'])}"
        raise Refused(line, code, reason) from None

    # The SDK takes a request for a notification if its id is neither a string nor an integer.
    may_have_id = isinstance(message, types.JSONRPCNotification) and b'"id"' in line
    if may_have_id and "id" in json.loads(line):
        raise Refused(line, types.INVALID_REQUEST, "the id of a request is a text or an integer")
    return message


def _request_id(line: bytes) -> types.RequestId | None:
    """Find the id of a request in a line that cannot be parsed. Return ``None`` for an unknown id, and for a line that
    is not a request."""
    ends = ends_of_message(line)
    if not ends.has_method:
        return None
    try:
        request_id = msgspec.json.decode(ends.identity, type=int | float | str)
    except msgspec.DecodeError:
        return None
    if isinstance(request_id, float):
        return int(request_id) if request_id.is_integer() else None
    return request_id
