"""How fast a client must send the body of a request. The web server and the MCP bridge share this."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["SLOW_BODY", "BodyDeadline"]

T = TypeVar("T")

#: Seconds for a client to send the next piece, and bytes a second that it must send on average after the first minute.
_READ_TIMEOUT, _MIN_RATE = 60.0, 1024
#: What an answer of the status 408 says.
SLOW_BODY = f"nothing arrived for {_READ_TIMEOUT:g} seconds, or too little; send the request again"


class BodyDeadline:
    """The deadlines of one body: a minute for each piece, and then 1,024 bytes a second on average."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + _READ_TIMEOUT

    def count(self, size: int) -> None:
        """Note that ``size`` bytes have come."""
        self._ends_at += size / _MIN_RATE

    async def wait(self, piece: Awaitable[T]) -> T:
        """Return the next piece. Raises :class:`TimeoutError` if it does not come in time."""
        async with asyncio.timeout(min(_READ_TIMEOUT, self._ends_at - time.monotonic())):
            return await piece
