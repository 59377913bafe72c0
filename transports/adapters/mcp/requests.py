"""One request to a server and what comes of it, with the SDK's errors as ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
)
from pydantic import RootModel, ValidationError

from ...errors import ABPError, CapabilityError, Disconnected, ProtocolError, TooLarge
from .connection import Connection
from .http import is_over
from .wire import OVER_LIMIT, UNREADABLE, with_content

__all__ = ["sent", "told"]

#: Times that a server may ask before it answers (protocol 2026-07-28).
_ROUNDS = 20
#: Characters of a server's words in a message.
_LONGEST = 2000
_CODES = {INVALID_PARAMS: "INVALID_PARAMS", METHOD_NOT_FOUND: "NOT_SUPPORTED", -32002: "RESOURCE_NOT_FOUND"}
#: What the SDK says where an HTTP server has forgotten the session: nothing has run.
_EXPIRED = "Session terminated"

#: Makes the request anew, with answers to what the server asked and its state.
Make: TypeAlias = "Callable[[InputResponses | None, str | None], Request[Any, Any]]"

_T = TypeVar("_T")


class _Raw(RootModel[dict[str, Any]]):
    """A result as it came: the SDK has compared it with the protocol's schema already."""


async def sent(connection: Connection, make: Make, progress: ProgressFnT | None = None) -> dict[str, Any]:
    """A request's result, with content in the place of its long base64, however often the server asks something before
    (protocol 2026-07-28). Raises as :func:`told`."""
    return with_content(await told(connection, _finished(connection, make, progress)))  # type: ignore[no-any-return]


async def _finished(connection: Connection, make: Make, progress: ProgressFnT | None) -> dict[str, Any]:
    session = connection.client.session
    responses: InputResponses | None = None
    state: str | None = None
    for _ in range(_ROUNDS):
        request = make(responses, state)
        try:
            raw = await session.send_request(request, _Raw, progress_callback=progress)
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await connection.client.list_tools()  # headers are made of a tool's schema, which has changed
            raw = await session.send_request(request, _Raw, progress_callback=progress)
        result = raw.root
        if result.get("resultType") != "input_required":
            return result
        required = InputRequiredResult.model_validate(result, by_name=False)
        responses, state = {}, required.request_state
        for key, asked in (required.input_requests or {}).items():
            context = ClientRequestContext(session=session, request_id=key)
            response = await session.dispatch_input_request(context, asked)
            if isinstance(response, ErrorData):
                raise MCPError.from_error_data(response)
            responses[key] = response
    raise ProtocolError(f"the server asked {_ROUNDS} times and never answered")


async def told(connection: Connection, work: Awaitable[_T]) -> _T:
    """What the SDK gives. Raises :class:`~transports.errors.CapabilityError` where the server refuses (``details`` has
    JSON-RPC's ``code``), :class:`~transports.errors.Disconnected`, :class:`~transports.errors.TooLarge` and
    :class:`~transports.errors.ProtocolError`."""
    try:
        return await work
    except MCPError as error:
        raise _error(connection, error) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProtocolError(f"the server's answer is not what MCP says: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:  # pydantic, of what is nested too deeply
        raise ProtocolError(f"the server's answer cannot be read: {error}") from error


def _error(connection: Connection, error: MCPError) -> ABPError:
    code, said, data = error.error.code, error.error.message, error.error.data
    if code == OVER_LIMIT or is_over(said):
        return TooLarge(
            f"the server sent a message over the limit of {connection.max_bytes:,} bytes; raise "
            "ABP_MAX_MESSAGE_BYTES, or ask it for less",
            details={"limit": connection.max_bytes},
        )
    if code == UNREADABLE:
        return ProtocolError(said)
    said = connection.server.without_secrets(said)[:_LONGEST]
    if code == CONNECTION_CLOSED or said == _EXPIRED:
        connection.lose(f"{connection.server} is gone ({said})")
        never = {"sent": False} if said == _EXPIRED else {}
        return Disconnected(f"{connection.lost.result()}; call again once it is back", details=never)
    return CapabilityError(
        said, code=_CODES.get(code), details={"code": code} if data is None else {"code": code, "data": data}
    )
