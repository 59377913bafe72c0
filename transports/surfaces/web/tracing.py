"""A span for each request that makes something happen, in the trace of the client if it names one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.hdrs import METH_ALL

from ...telemetry import annotate, continue_trace, is_tracing, span

__all__ = ["trace_request"]

_READING = ("GET", "HEAD", "OPTIONS")


@web.middleware
async def trace_request(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Serve a request in a span of OpenTelemetry's conventions for HTTP; reading is not traced unless the client does.

    Never the path itself, which may hold the signature of a link."""
    if not is_tracing() or (request.method in _READING and "traceparent" not in request.headers):
        return await handler(request)
    method = request.method if request.method in METH_ALL else "_OTHER"
    resource = request.match_info.route.resource
    route = resource.canonical if resource else ""
    attributes = {"http.request.method": method, "url.scheme": request.scheme, "http.route": route}
    carrier = {name.lower(): value for name, value in request.headers.items()}
    with continue_trace(carrier), span(f"{method} {route}".rstrip(), attributes, "server"):
        response = await handler(request)
        annotate({"http.response.status_code": response.status})
        return response
