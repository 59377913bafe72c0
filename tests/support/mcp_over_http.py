"""MCP servers over HTTP, in this process: a process for each test would take seconds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tests.support.eventually import eventually


def views_server() -> AbstractAsyncContextManager[str]:
    """The target of the server with views."""
    from tests.support.mcp_servers import views

    return over_http(views.server)


def tableau_server(token: str | None = None) -> AbstractAsyncContextManager[str]:
    """The target of the server with workbooks."""
    from tests.support.mcp_servers import tableau

    return over_http(tableau.server(), token)


@asynccontextmanager
async def over_http(server: Any, token: str | None = None) -> AsyncIterator[str]:
    """The target of a server of the SDK, for clients with the ``token``."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = server.streamable_http_app(streamable_http_path="/mcp")

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            sent = dict(scope.get("headers", [])).get(b"authorization")
            if token is not None and scope["type"] == "http" and sent != f"Bearer {token}".encode():
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            await app(scope, receive, send)

        served = uvicorn.Server(uvicorn.Config(guarded, log_level="warning", timeout_graceful_shutdown=1))
        running = asyncio.ensure_future(served.serve(sockets=[listening]))
        try:
            await eventually(lambda: served.started)
            yield f"mcp+http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            served.should_exit = True
            await running
