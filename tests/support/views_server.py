"""The MCP server with views over HTTP, in this process: a process for each test would take seconds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.support.eventually import eventually


@asynccontextmanager
async def views_server() -> AsyncIterator[str]:
    """The target of the server. It can be opened once in a process."""
    import uvicorn

    from tests.support.mcp_servers import views

    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = cast(Any, views.server).streamable_http_app(streamable_http_path="/mcp")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await eventually(lambda: server.started)
            yield f"mcp+http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await running
