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


def tableau_server() -> AbstractAsyncContextManager[str]:
    """The target of the server with workbooks."""
    from tests.support.mcp_servers import tableau

    return over_http(tableau.server())


@asynccontextmanager
async def over_http(server: Any) -> AsyncIterator[str]:
    """The target of a server of the SDK."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = server.streamable_http_app(streamable_http_path="/mcp")
        served = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        running = asyncio.ensure_future(served.serve(sockets=[listening]))
        try:
            await eventually(lambda: served.started)
            yield f"mcp+http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            served.should_exit = True
            await running
