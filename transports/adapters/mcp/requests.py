"""Sends one request to a server, and maps the SDK's errors to ours."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from mcp.client.session import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ErrorData,
    InputRequiredResult,
    InputResponses,
    Request,
    Tool,
)
from pydantic import RootModel, ValidationError

from ...errors import ABPError, CapabilityError, Disconnected, ProtocolError, TooLarge
from ...protocol.capabilities import MAX_CAPABILITIES
from ...protocol.strict_json import MAX_VALUES, is_larger
from ...tasks import in_thread
from .connection import Connection
from .http import is_size_error
from .tool_repair import MANY
from .wire import OVER_LIMIT, TOO_MANY, UNREADABLE, with_content

__all__ = ["list_tools", "map_errors", "send_request"]

logger = logging.getLogger("transports.mcp")

#: How often a server may ask a question before it answers (protocol 2026-07-28).
_MAX_ROUNDS = 20
#: Pages of a list that are read at most: a faulty server may have no last one.
_MAX_PAGES = 100
#: Characters of a server's own message in ours.
_MAX_TEXT = 2000
_ERROR_CODES = {INVALID_PARAMS: "INVALID_PARAMS", METHOD_NOT_FOUND: "NOT_SUPPORTED", -32002: "RESOURCE_NOT_FOUND"}
#: The SDK's message when an HTTP server has forgotten the session, which means that the request did not run.
_SESSION_EXPIRED = "Session terminated"

#: Builds the request again, with the answers to the server's questions and its state.
MakeRequest: TypeAlias = "Callable[[InputResponses | None, str | None], Request[Any, Any]]"

_T = TypeVar("_T")


class _Raw(RootModel[dict[str, Any]]):
    """A result as it came. The SDK has checked it against the protocol's schema already."""


async def send_request(
    connection: Connection, make: MakeRequest, progress: ProgressFnT | None = None
) -> dict[str, Any]:
    """Send a request and return its result, with content in the place of its long base64.

    ``make`` builds the request, again for each question that the server asks before it answers (protocol 2026-07-28).
    ``progress`` is called for each progress notification. Raises as :func:`map_errors`, and
    :class:`~transports.errors.ProtocolError` after 20 rounds of questions.
    """
    result = await map_errors(connection, _exchange(connection, make, progress))
    if is_larger(result, MANY):
        return await in_thread(with_content, result)
    return with_content(result)  # type: ignore[no-any-return]


async def _exchange(connection: Connection, make: MakeRequest, progress: ProgressFnT | None) -> dict[str, Any]:
    session = connection.client.session
    responses: InputResponses | None = None
    state: str | None = None
    for _ in range(_MAX_ROUNDS):
        request = make(responses, state)
        try:
            raw = await session.send_request(request, _Raw, progress_callback=progress)
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await connection.client.list_tools()  # the SDK makes headers of the tool's schema, which has changed
            raw = await session.send_request(request, _Raw, progress_callback=progress)
        result = connection.aside.take(raw.root) or raw.root
        if result.get("resultType") != "input_required":
            return result
        if is_larger(result, MANY):
            raise ProtocolError("the server asked a question of very many values; nothing was answered")
        required = InputRequiredResult.model_validate(result, by_name=False)
        responses, state = {}, required.request_state
        for key, question in (required.input_requests or {}).items():
            context = ClientRequestContext(session=session, request_id=key)
            response = await session.dispatch_input_request(context, question)
            if isinstance(response, ErrorData):
                raise MCPError.from_error_data(response)
            responses[key] = response
    raise ProtocolError(f"the server asked {_MAX_ROUNDS} times and never answered")


async def list_tools(connection: Connection) -> dict[str, Tool]:
    """Return the server's tools by name, from all pages of the list, 100 at most, and 150,000 of them. Raises as
    :func:`map_errors`."""
    tools: dict[str, Tool] = {}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await map_errors(connection, connection.client.list_tools(cursor=cursor))
        whole = connection.aside.take({"_meta": page.meta})
        if whole is None:
            tools |= _by_name(page.tools)
        else:
            tools |= await in_thread(_by_name, whole["tools"][: MAX_CAPABILITIES - len(tools)])
        cursor = page.next_cursor
        if cursor is None:
            return tools
        if len(tools) >= MAX_CAPABILITIES:
            break
    logger.warning("%s has more than %s tools; the rest is left out", connection.server, f"{len(tools):,}")
    return tools


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


async def map_errors(connection: Connection, work: Awaitable[_T]) -> _T:
    """Await work of the SDK, and raise its errors as ours.

    Raises :class:`~transports.errors.CapabilityError` if the server refuses (``details["code"]`` is JSON-RPC's),
    :class:`~transports.errors.Disconnected`, :class:`~transports.errors.TooLarge` and
    :class:`~transports.errors.ProtocolError`.
    """
    try:
        return await work
    except MCPError as error:
        raise _error(connection, error) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProtocolError(f"the server's answer is not what MCP says: {where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:  # pydantic, of what is nested too deeply
        raise ProtocolError(f"the server's answer cannot be read: {error}") from None


def _error(connection: Connection, error: MCPError) -> ABPError:
    code, text, data = error.error.code, error.error.message, error.error.data
    if code == OVER_LIMIT or is_size_error(text):
        return TooLarge(
            f"the server sent a message over the limit of {connection.max_bytes:,} bytes; raise "
            "ABP_MAX_MESSAGE_BYTES, or ask it for less",
            details={"limit": connection.max_bytes},
        )
    if code == UNREADABLE:
        return ProtocolError(text)
    if code == TOO_MANY:
        return ProtocolError(text, code=TooLarge.code, details={"limit": MAX_VALUES})
    text = connection.server.redact(text)[:_MAX_TEXT]
    if code == CONNECTION_CLOSED or text == _SESSION_EXPIRED:
        connection.mark_lost(f"{connection.server} is gone ({text})")
        never = {"sent": False} if text == _SESSION_EXPIRED else {}
        return Disconnected(connection.lost.result(), details=never)
    return CapabilityError(
        text, code=_ERROR_CODES.get(code), details={"code": code} if data is None else {"code": code, "data": data}
    )
