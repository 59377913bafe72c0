"""Speaks to an MCP server behind an address: the SDK's streamable HTTP, with a limit for the size of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from .servers import HttpServer

__all__ = ["http_streams", "is_size_error"]

_SIZE_ERROR = "over the limit of"
#: Seconds for connecting and sending. Each call has its own limit for the answer.
_CONNECT_TIMEOUT = 30.0


def is_size_error(message: str) -> bool:
    """Whether the text of an SDK error says that an answer was too large. The SDK passes causes on as text only."""
    return _SIZE_ERROR in message or "Server-sent event exceeded" in message


@asynccontextmanager
async def http_streams(
    server: HttpServer, auth: httpx2.Auth | None, *, max_bytes: int
) -> AsyncIterator[TransportStreams]:
    """Yield the streams that the SDK's session speaks over.

    ``max_bytes`` limits one message, counted in decoded bytes of content. Answers must come uncompressed, since a small
    body could inflate to any size.
    """
    limit = max_bytes * 4 // 3 + (1 << 20)

    async def limited(response: httpx2.Response) -> None:
        response.headers["content-encoding"] = "identity"  # we asked for that: a small body could inflate to any size
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _LimitedStream(response.stream, limit, max_bytes)

    async with (
        httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **server.headers},
            auth=auth,
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
            event_hooks={"response": [limited]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


class _LimitedStream(httpx2.AsyncByteStream):
    """A body that raises once it is too large. The SDK limits the size of events, but not of bodies."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, display_bytes: int) -> None:
        self._stream = stream
        self._limit = limit
        self._display_bytes = display_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise httpx2.StreamError(f"the answer is {_SIZE_ERROR} {self._display_bytes:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
