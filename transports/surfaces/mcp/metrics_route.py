"""``GET /metrics`` beside the bridge, for every user of the bridge."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...telemetry.prometheus import CONTENT_TYPE, Exposition

__all__ = ["metrics_route"]


def metrics_route(exposition: Exposition, security: TransportSecuritySettings, scopes: Sequence[str]) -> Route:
    """Return the route. It needs a bearer token of the bridge with these scopes, and a ``Host`` and ``Origin`` that
    ``security`` allows.

    The values are of all users: how often, how long, how much, and the names of capabilities; nothing says whose."""
    checks = TransportSecurityMiddleware(security)

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        refused = await checks.validate_request(Request(scope, receive))
        response = refused or Response(exposition.render(), headers={"Content-Type": CONTENT_TYPE})
        await response(scope, receive, send)

    return Route("/metrics", endpoint=RequireAuthMiddleware(show, [*scopes]), methods=["GET"])
