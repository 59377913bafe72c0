"""What the bridge tells of its requests: the trace of the client, spans by the conventions of MCP, a duration each.

The SDK makes the span of a request (``tools/call abp_export_pdf``, kind ``SERVER``), continued from
``params._meta.traceparent``. Added here are the trace of an HTTP request, and what the SDK does not know."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from ...telemetry import (
    MCP_OPERATION_DURATION,
    OTHER,
    annotate,
    continue_trace,
    error_type,
    fail,
    is_tracing,
    record,
    use_global_providers,
)
from .subscribers import connection_key

__all__ = ["observe"]

_TOOLS = "tools/call"


class _Failed(dict[str, Any]):
    """An exception on its way past the SDK's span, which would write down its message: an app may have chosen it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def observe(server: Server[None]) -> None:
    """Observe the requests of ``server``: outside of the SDK's span what continues a trace, inside of it the rest."""

    async def continued(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Before the SDK's span: what it finds in ``_meta`` goes before the headers of the request."""
        headers = ctx.request.headers if ctx.request is not None and is_tracing() else {}
        with continue_trace(headers):
            result = await call_next(ctx)
        if isinstance(result, _Failed):
            raise result.error
        return result

    async def observed(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        network = "pipe" if ctx.request is None else "tcp"
        labels = {"mcp.method.name": ctx.method if _is_known(server, ctx) else OTHER, "network.transport": network}
        session = connection_key(ctx)
        annotate({"network.transport": network, **({"mcp.session.id": session} if session else {})})
        started = time.perf_counter()
        result: HandlerResult = None
        try:
            result = await call_next(ctx)
            match result:
                case CallToolResult(is_error=True) | {"isError": True}:
                    labels["error.type"] = "tool_error"
            return result
        except asyncio.CancelledError as error:
            labels["error.type"] = error_type(error)
            raise
        except Exception as error:
            labels["error.type"] = str(error.error.code) if isinstance(error, MCPError) else error_type(error)
            if not is_tracing():
                raise
            fail(labels["error.type"])
            return _Failed(error)
        finally:
            if ctx.method == _TOOLS:
                # The bridge refuses the name of no tool, which may be anything, with an error of the protocol.
                name = (ctx.params or {}).get("name") if result is not None else None
                labels["gen_ai.tool.name"] = name if isinstance(name, str) else OTHER
            record(MCP_OPERATION_DURATION, time.perf_counter() - started, labels)

    use_global_providers()
    server.middleware.insert(0, continued)
    server.middleware.insert(2, observed)


def _is_known(server: Server[None], ctx: ServerRequestContext[Any, Any]) -> bool:
    find = server.get_request_handler if ctx.request_id is not None else server.get_notification_handler
    return ctx.method in ("initialize", "notifications/initialized") or find(ctx.method) is not None
