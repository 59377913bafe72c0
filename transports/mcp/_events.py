"""Server-sent events with messages, as servers send them and as clients read them. Without the SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import httpx2
import msgspec

from .._internal.tasks import in_thread


def is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


async def events_of(response: httpx2.Response, max_bytes: int) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    """Yield the events of a response. Raises :class:`httpx2.SSEError` for an event with more than ``max_bytes``."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    stream = _EndedStream(response.stream)
    response.stream = stream
    # Events are UTF-8 whatever the Content-Type says, and a byte order mark is not part of them.
    response.encoding = "utf-8-sig"
    async for event in httpx2.EventSource(response, max_event_size=max_bytes):
        # An event that was cut must not count as the last one when the stream is resumed.
        if stream.has_ended and not await in_thread(_is_json, event.data):
            return
        yield event


def message_of(event: httpx2.ServerSentEvent) -> bytes:
    """Return the message in an event as one line, or empty bytes for an event that is not a message."""
    if event.event != "message":
        return b""
    return event.data.encode().replace(b"\n", b" ")


def encode_event(raw: bytes, *, event_id: str = "", retry: int | None = None) -> bytes:
    """Encode an event. Line breaks between values become spaces, since they would end the field."""
    head = b"event: message\n"
    if event_id:
        head += b"id: %s\n" % event_id.encode()
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%sdata: %s\n\n" % (head, raw.replace(b"\n", b" ").replace(b"\r", b" "))


class _EndedStream(httpx2.AsyncByteStream):
    """Adds the empty line that ends the last event, since some servers leave it out."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self.has_ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk
        self.has_ended = True
        yield b"\n\n"

    async def aclose(self) -> None:
        await self._stream.aclose()


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True
