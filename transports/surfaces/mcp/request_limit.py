"""What a client reads when its request over HTTP is too large: a typed error, where it would see a reset connection."""

from __future__ import annotations

import asyncio
import contextlib

from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import TooLarge

__all__ = ["TooLargeReply"]

#: Bytes of a request that are read to its end and dropped, as a multiple of the limit, and seconds that this may take.
_MAX_DRAIN, _DRAIN_TIMEOUT = 8, 60.0


class TooLargeReply:
    """ASGI middleware that replaces a reply of status 413 by a JSON-RPC error whose ``data`` has the code ``TOO_LARGE``
    and the ``limit``.

    The rest of the request is read first, and dropped: a client reads no reply before it has sent its request."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, max_file_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        message = (
            f"the request has more than {max_bytes:,} bytes; files in it may have {max_file_bytes:,} together "
            "(max_file_bytes): send fewer at once, name an artifact, or have the user raise the limit"
        )
        data = {"code": TooLarge.code, "limit": max_file_bytes}
        self._error = {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": INVALID_REQUEST, "message": message, "data": data},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        complete = refused = False

        async def tracked_receive() -> Message:
            nonlocal complete
            message = await receive()
            complete = complete or not message.get("more_body", False)
            return message

        async def tracked_send(message: Message) -> None:
            nonlocal refused
            refused = refused or (message["type"] == "http.response.start" and message["status"] == 413)
            if not refused:
                await send(message)

        await self._app(scope, tracked_receive, tracked_send)
        if not refused:
            return
        left = _MAX_DRAIN * self._max_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                while not complete and left > 0:
                    left -= len((await tracked_receive()).get("body", b""))
        await JSONResponse(self._error, 413)(scope, receive, send)
