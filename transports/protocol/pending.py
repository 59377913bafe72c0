"""Requests that wait for their replies: ids, matching, replies that come late or twice. No I/O of its own.

For transports that carry envelopes, whose replies come in any order (docs/protocol.md 6.3).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from ..errors import ABPError, no_answer
from ..tasks import Deadlines
from .messages import Message, new_id

__all__ = ["Outcome", "PendingReplies"]

#: The fate of a message that came in: ``delivered`` to the request that waited; ``late`` or ``duplicate``, a reply to a
#: request that has ended without or with one; ``unknown``, a reply to no request; ``event``, no reply at all.
Outcome: TypeAlias = Literal["delivered", "late", "duplicate", "unknown", "event"]

#: Types of replies, and the requests that they answer.
_REQUEST_OF_REPLY = {
    "initialize-result": "initialize",
    "capabilities/call-result": "capabilities/call",
    "capabilities/cancel-result": "capabilities/cancel",
}
#: How many ended requests are remembered, to tell a late reply from a foreign one.
_MAX_REMEMBERED = 4096


class PendingReplies:
    """The requests of one connection that wait for a reply; its length is their number. ``counts`` says how many
    messages had which :data:`Outcome`. Use it in one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._ended: OrderedDict[str, Literal["late", "duplicate"]] = OrderedDict()
        self._deadlines = Deadlines()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, message: Message) -> asyncio.Future[Message]:
        """Return a future for the reply to a request. Raises :class:`ValueError` without an id, or with one that was
        used before."""
        if message.id is None or message.id in self._waiting or message.id in self._ended:
            raise ValueError(f"a request needs an id of its own, not {message.id!r}")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = (message.type, future)
        return future

    def forget(self, message_id: str) -> None:
        """Wait no longer for a reply, after a timeout or a cancellation. If it still comes, it is late."""
        if self._waiting.pop(message_id, None) is not None:
            self._end(message_id, "late")

    async def request(
        self, message: Message, send: Callable[[Message], Awaitable[None] | None], *, timeout: float
    ) -> Message:
        """Send a request and return its reply. ``message`` gets an id if it has none.

        ``send`` returns ``None`` if the message has been sent, else what sends it. Raises what ``send`` raises, the
        error of :meth:`fail` or :meth:`fail_all`, and after ``timeout`` seconds, for sending and waiting together,
        :class:`~transports.errors.CallTimeout`.
        """
        message.id = identity = message.id or new_id()
        future = self.register(message)
        try:
            sending = send(message)
            if sending is None:
                self._deadlines.add(future, timeout, no_answer, message.type, timeout)
                return await future
            try:
                async with asyncio.timeout(timeout):
                    await sending
                    return await future
            except TimeoutError:
                raise no_answer(message.type, timeout) from None
        finally:
            self._deadlines.discard(future)
            self.forget(identity)
            future.cancel()

    def deliver(self, message: Message) -> Outcome:
        """Give a message to the request that waits for it, and return what became of it. The first reply wins. A reply
        of another type than the request's is ``unknown``, and the request goes on waiting."""
        outcome = self._match(message)
        self.counts[outcome] += 1
        return outcome

    def _match(self, message: Message) -> Outcome:
        request_type = _REQUEST_OF_REPLY.get(message.type)
        if request_type is None:
            return "event"
        identity = message.id
        if identity is None:
            return "unknown"
        waiting = self._waiting.get(identity)
        if waiting is None:
            return self._ended.get(identity, "unknown")
        if waiting[0] != request_type:
            return "unknown"
        del self._waiting[identity]
        self._end(identity, "duplicate")
        if not waiting[1].done():
            waiting[1].set_result(message)
        return "delivered"

    def fail(self, message_id: str, error: ABPError) -> None:
        """Raise ``error`` in one request instead of a reply. Does nothing if that request does not wait."""
        waiting = self._waiting.pop(message_id, None)
        if waiting is not None:
            self._end(message_id, "late")
            if not waiting[1].done():
                waiting[1].set_exception(error)

    def fail_all(self, error: ABPError) -> None:
        """Raise an error of the same class, message and details in every request, each its own instance."""
        for message_id in tuple(self._waiting):
            self.fail(message_id, type(error)(error.message, details=error.details))
        self._deadlines.clear()

    def _end(self, message_id: str, outcome: Literal["late", "duplicate"]) -> None:
        self._ended[message_id] = outcome
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)
