"""Speaks to an MCP server behind an address: the SDK's streamable HTTP, with a limit for the size of an answer.

The SDK parses answers in the event loop, so long ones are parsed here, in a thread, and put aside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import JSONRPCMessage, JSONRPCResponse
from pydantic import ValidationError

from ...errors import ProtocolError
from ...protocol.strict_json import PARSED_ON_LOOP
from .servers import HttpServer
from .tool_repair import Aside
from .wire import parse_message, unreadable

__all__ = ["http_streams", "is_size_error"]

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_SIZE_ERROR = "over the limit of"
#: Seconds for connecting and sending. Each call has its own limit for the answer.
_CONNECT_TIMEOUT = 30.0


def is_size_error(message: str) -> bool:
    """Whether the text of an SDK error says that an answer was too large. The SDK passes causes on as text only."""
    return _SIZE_ERROR in message or "Server-sent event exceeded" in message


@asynccontextmanager
async def http_streams(
    server: HttpServer, auth: httpx2.Auth | None, aside: Aside, *, max_bytes: int
) -> AsyncIterator[TransportStreams]:
    """Yield the streams that the SDK's session speaks over.

    ``max_bytes`` limits one message, counted in decoded bytes of content. Answers must come uncompressed, since a small
    body could inflate to any size. Results of long messages are put ``aside``.
    """
    limit = max_bytes * 4 // 3 + (1 << 20)

    async def limited(response: httpx2.Response) -> None:
        response.headers["content-encoding"] = "identity"  # we asked for that: a small body could inflate to any size
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if kind.startswith("text/event-stream"):
            response.stream = _Events(response.stream, limit, aside)
        else:
            response.stream = _Body(response.stream, limit, max_bytes, aside)

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


class _Body(httpx2.AsyncByteStream):
    """A body that raises once it is too large. The SDK limits the size of events, but not of bodies."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, display_bytes: int, aside: Aside) -> None:
        self._stream = stream
        self._limit = limit
        self._display_bytes = display_bytes
        self._aside = aside

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts, size = list[bytes](), 0
        async for chunk in self._stream:
            parts.append(chunk)
            size += len(chunk)
            if size > self._limit:
                raise httpx2.StreamError(f"the answer is {_SIZE_ERROR} {self._display_bytes:,} bytes")
        body = b"".join(parts)
        yield body if len(body) <= PARSED_ON_LOOP else await asyncio.to_thread(_in_place, body, self._aside)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Events(httpx2.AsyncByteStream):
    """A stream of events, each of which is passed on whole. One over ``limit`` bytes is left to the SDK."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, aside: Aside) -> None:
        self._stream = stream
        self._limit = limit
        self._aside = aside

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held, searched = bytearray(), 0
        async for chunk in self._stream:
            held += chunk
            while (end := _EVENT_END.search(held, searched)) is not None:
                event = bytes(held[: end.end()])
                del held[: end.end()]
                searched = 0
                yield event if len(event) <= PARSED_ON_LOOP else await asyncio.to_thread(self._short, event)
            searched = max(len(held) - 3, 0)
            if len(held) > self._limit:
                yield bytes(held)
                held.clear()
                searched = 0
        if held:
            yield bytes(held)

    def _short(self, event: bytes) -> bytes:
        lines = event.splitlines()
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        others = [line for line in lines if line and not line.startswith(b"data:")]
        return b"\n".join([*others, b"data: " + _in_place(data, self._aside), b"", b""])

    async def aclose(self) -> None:
        await self._stream.aclose()


def _in_place(body: bytes, aside: Aside) -> bytes:
    """Return a short message for a long one: with a result that is put aside, or with the error of one that cannot be
    read. What is neither is returned as it is not: the SDK says that it cannot be read."""
    short: JSONRPCMessage | None
    try:
        short = parse_message(body)
    except (ProtocolError, ValidationError, RecursionError) as error:
        short = unreadable(body, error)
    if isinstance(short, JSONRPCResponse):
        short.result = aside.put(short.result)
    return b"null" if short is None else short.model_dump_json(by_alias=True, exclude_unset=True).encode()
