"""The MCP bridge over HTTP in this process, for two users, and a client of either era."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2 as httpx
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.mcp_clients import Apps
from transports.artifacts import open_store
from transports.session._app_tables import AppEntry
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._http import parse_tokens, serve_http
from transports.surfaces.mcp._options import Options
from transports.surfaces.mcp._users import NO_APPS

ANN, BOB = "ann-0123456789abcdef", "bob-0123456789abcdef"
USERS = parse_tokens(f"ann={ANN},bob={BOB}")


@asynccontextmanager
async def served(
    folder: Path, app: Apps | None = None, /, *, named: Mapping[str, AppEntry] = NO_APPS, **options: Any
) -> AsyncIterator[str]:
    """The address of a bridge for Ann and Bob."""
    bridge = Bridge(Options(**options), open_store(folder), connect=app or Apps(), named=named)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve_http(bridge, "127.0.0.1", 0, USERS, started.set_result))
    try:
        yield await started
    finally:
        task.cancel()
        async with asyncio.timeout(30):
            with contextlib.suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def client_of(
    url: str, token: str, era: str, headers: Mapping[str, str] = MappingProxyType({}), **more: Any
) -> AsyncIterator[Client]:
    """``headers`` are sent besides the token, ``more`` are options of the client."""
    headers = {"Authorization": f"Bearer {token}", **headers}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=era, **more) as client,
    ):
        yield client
