"""Requests that wait for their reply: ids, matching, what comes late or twice. No I/O of its own.

WebSocket and postMessage share it: both carry envelopes whose replies come in any order (PROTOCOL "Envelope").
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from ..errors import ABPError, CallTimeout
from .messages import Message

__all__ = ["Outcome", "PendingReplies"]

#: What became of a message that came in: it was a reply somebody waited for; a reply to a request that has already
#: ended (``late``: after its timeout, ``duplicate``: after its reply); a reply to nothing; or no reply at all.
Outcome: TypeAlias = Literal["delivered", "late", "duplicate", "unknown", "event"]

_REPLIES = {
    "initialize-result": "initialize",
    "capabilities/call-result": "capabilities/call",
    "capabilities/cancel-result": "capabilities/cancel",
}
#: How many ended requests are remembered, to tell a late reply from a foreign one.
_REMEMBERED = 4096


class PendingReplies:
    """The table of one connection. ``counts`` tells how many messages had which :data:`Outcome`."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._ended: OrderedDict[str, Literal["late", "duplicate"]] = OrderedDict()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, message: Message) -> asyncio.Future[Message]:
        """Wait for the reply of a request. Ids are used once."""
        if message.id is None or message.id in self._waiting or message.id in self._ended:
            raise ValueError(f"a request needs an id of its own, not {message.id!r}")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = (message.type, future)
        return future

    def forget(self, message_id: str) -> None:
        """Nobody waits any more (a timeout, a cancellation): a reply that still comes is late."""
        if self._waiting.pop(message_id, None) is not None:
            self._end(message_id, "late")

    async def request(self, message: Message, send: Callable[[Message], Awaitable[None]], *, timeout: float) -> Message:
        """Send a request, which gets an id if it has none, and wait for its reply. Raises what ``send`` does and, after
        ``timeout`` seconds, :class:`~transports.errors.CallTimeout`."""
        message.id = message.id or str(uuid.uuid4())
        future = self.register(message)
        try:
            async with asyncio.timeout(timeout):
                await send(message)
                return await future
        except TimeoutError as error:
            raise CallTimeout(f"no answer within {timeout:g} s") from error
        finally:
            self.forget(message.id)
            future.cancel()

    def deliver(self, message: Message) -> Outcome:
        """Deliver a message to whoever waits for it. The first reply wins; a reply of another type than was asked for
        is not one."""
        outcome = self._take(message)
        self.counts[outcome] += 1
        return outcome

    def _take(self, message: Message) -> Outcome:
        asked = _REPLIES.get(message.type)
        if asked is None:
            return "event"
        if message.id is None:
            return "unknown"
        waiting = self._waiting.get(message.id)
        if waiting is None:
            return self._ended.get(message.id, "unknown")
        if waiting[0] != asked:
            return "unknown"
        del self._waiting[message.id]
        self._end(message.id, "duplicate")
        if not waiting[1].done():
            waiting[1].set_result(message)
        return "delivered"

    def fail(self, message_id: str, error: ABPError) -> None:
        """Give one request an error instead of a reply."""
        waiting = self._waiting.pop(message_id, None)
        if waiting is not None:
            self._end(message_id, "late")
            if not waiting[1].done():
                waiting[1].set_exception(error)

    def fail_all(self, error: ABPError) -> None:
        """The connection is gone: everybody gets an error of their own, of the same kind."""
        for message_id in tuple(self._waiting):
            self.fail(message_id, type(error)(error.message, details=error.details))

    def _end(self, message_id: str, how: Literal["late", "duplicate"]) -> None:
        self._ended[message_id] = how
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
