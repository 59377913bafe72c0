"""Requests and responses over HTTP: bodies within limits, refusals, and streams of messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ...._internal.tasks import cancel_and_wait
from ....errors import TooLarge
from ...shared._connections import in_time
from .._messages import slow_response
from ._messages import INVALID_REQUEST, MAX_BYTES

#: Most bytes of a user's requests while they arrive.
_MAX_ARRIVING = 2 * MAX_BYTES


def refusal(status: int, message: str, *, number: int = INVALID_REQUEST, code: str | None = None) -> Response:
    """Return a JSON-RPC error as a response."""
    error: dict[str, object] = {"code": number, "message": message}
    if code is not None:
        error["data"] = {"code": code}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


class Bodies:
    """Reader of the bodies of requests, with a limit for those of a user that arrive at the same time."""

    def __init__(self) -> None:
        self._arriving: Counter[str] = Counter()

    async def read(self, request: Request, user: str) -> bytes | Response:
        """Return the body of a request as one line, or the response to one that is too large or too slow."""
        chunks: list[bytes] = []
        size = received = 0
        refused: Response | None = None
        try:
            async for chunk in in_time(request.stream()):
                received += len(chunk)
                if refused is not None:  # it is read and dropped: a client reads no response before it has sent all
                    if received > 8 * MAX_BYTES:
                        break
                    continue
                size += len(chunk)
                self._arriving[user] += len(chunk)
                chunks.append(chunk)
                if size > MAX_BYTES:
                    message = f"the request has more than {MAX_BYTES:,} bytes, which is the limit; send less at once"
                    refused = refusal(413, message, code=TooLarge.code)
                elif self._arriving[user] > _MAX_ARRIVING:
                    message = f"requests of this user with more than {_MAX_ARRIVING:,} bytes arrive at the same time"
                    refused = refusal(429, f"{message}; wait for one to end", code="LIMIT_REACHED")
                if refused is not None:
                    chunks.clear()
        except TimeoutError:
            refused = slow_response()
        finally:
            self._arriving[user] -= size
            if not self._arriving[user]:
                del self._arriving[user]
        return refused or b"".join(chunks).replace(b"\n", b" ").replace(b"\r", b" ").strip()


def event(raw: bytes, *, identity: str = "", retry: int | None = None) -> bytes:
    """Return a message as an event. A line break between two of its values would end the field."""
    head = b"event: message\n"
    if identity:
        head += b"id: %s\n" % identity.encode()
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%sdata: %s\n\n" % (head, raw.replace(b"\n", b" ").replace(b"\r", b" "))


def stream_response(
    events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Return a stream of events as a response, with a comment after each 15 seconds of silence."""
    sent = {"Cache-Control": "no-cache, no-transform", **(headers or {})}
    return StreamingResponse(_with_comments(events), status, media_type="text/event-stream", headers=sent)


async def _with_comments(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        following = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait((following,), timeout=15)
                if not following.done():
                    yield b": still here\n\n"
                    continue
                chunk = following.result()
                if chunk is None:
                    return
                yield chunk
                following = asyncio.ensure_future(anext(events, None))
        finally:
            await cancel_and_wait((following,))
