"""An MCP server behind an address: the SDK's streamable HTTP, with a limit for what comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from .servers import HttpServer

__all__ = ["http_streams", "is_over"]

_OVER = "over the limit of"
#: Seconds for connecting and sending; how long an answer may take is each call's own affair.
_PATIENCE = 30.0


def is_over(message: str) -> bool:
    """Whether an error of the SDK says that an answer was too large; it gives causes on as text."""
    return _OVER in message or "Server-sent event exceeded" in message


@asynccontextmanager
async def http_streams(
    server: HttpServer, auth: httpx2.Auth | None, *, max_bytes: int
) -> AsyncIterator[TransportStreams]:
    """The streams that the SDK's session speaks over. ``max_bytes`` limits one message, counted in decoded content."""
    limit = max_bytes * 4 // 3 + (1 << 20)

    async def limited(response: httpx2.Response) -> None:
        response.headers["content-encoding"] = "identity"  # we asked for that: a small body could inflate to any size
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Counted(response.stream, limit, max_bytes)

    async with (
        httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **server.headers},
            auth=auth,
            timeout=httpx2.Timeout(_PATIENCE, read=None),
            event_hooks={"response": [limited]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


class _Counted(httpx2.AsyncByteStream):
    """A body that ends when it is too large; the SDK limits events, and not bodies."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, shown: int) -> None:
        self._stream = stream
        self._limit = limit
        self._shown = shown

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise httpx2.StreamError(f"the answer is {_OVER} {self._shown:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
