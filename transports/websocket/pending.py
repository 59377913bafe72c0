"""Requests that wait for their replies: ids, matching, replies that come late or twice. No I/O of its own.

For transports that carry envelopes, whose replies come in any order (docs/protocol.md 6.3).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from ..errors import ABPError, no_answer
from ..protocol.messages import Message, new_id

__all__ = ["Outcome", "PendingReplies"]

#: Outcome of an incoming message: ``delivered`` to its request; ``late`` or ``duplicate``, a reply to a request that
#: has ended without or with a reply; ``unknown``, a reply without a request; ``event``, not a reply.
Outcome: TypeAlias = Literal["delivered", "late", "duplicate", "unknown", "event"]

#: Types of replies, and the requests that they answer.
_REQUEST_OF_REPLY = {
    "initialize-result": "initialize",
    "capabilities/call-result": "capabilities/call",
    "capabilities/cancel-result": "capabilities/cancel",
}


class PendingReplies:
    """Pending requests of one connection. Its length is their number. ``counts`` are the messages by :data:`Outcome`.

    Use it in one event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._ended: OrderedDict[str, Literal["late", "duplicate"]] = OrderedDict()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, message: Message) -> asyncio.Future[Message]:
        """Return a future for the reply to a request. Raises :class:`ValueError` for a missing or reused id."""
        if message.id is None or message.id in self._waiting or message.id in self._ended:
            raise ValueError(f"a request needs a new id, not {message.id!r}")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = (message.type, future)
        return future

    def forget(self, message_id: str) -> None:
        """Stop waiting for a reply, after a timeout or a cancellation. A reply that still comes counts as late."""
        if self._waiting.pop(message_id, None) is not None:
            self._remember_ended(message_id, "late")

    async def request(
        self, message: Message, send: Callable[[Message], Awaitable[None] | None], *, timeout: float
    ) -> Message:
        """Send a request and return its reply. ``message`` gets an id if it has none.

        ``send`` returns ``None`` if the message has been sent, otherwise an awaitable that sends it. Raises the errors
        of ``send``, the error of :meth:`fail` or :meth:`fail_all`, and :class:`~transports.errors.CallTimeout` after
        ``timeout`` seconds of sending and waiting together.
        """
        message_id = message.id or new_id()
        message.id = message_id
        future = self.register(message)

        try:
            async with asyncio.timeout(timeout):
                sending = send(message)
                if sending is not None:
                    await sending
                return await future
        except TimeoutError:
            raise no_answer(message.type, timeout) from None
        finally:
            self.forget(message_id)
            future.cancel()

    def deliver(self, message: Message) -> Outcome:
        """Deliver a message to its pending request and return the outcome.

        The first reply wins. A reply of a different type than the request's is ``unknown``; the request stays pending.
        """
        outcome = self._match(message)
        self.counts[outcome] += 1
        return outcome

    def _match(self, message: Message) -> Outcome:
        request_type = _REQUEST_OF_REPLY.get(message.type)
        if request_type is None:
            return "event"
        message_id = message.id
        if message_id is None:
            return "unknown"
        if message_id not in self._waiting:
            return self._ended.get(message_id, "unknown")
        waiting_type, future = self._waiting[message_id]
        if waiting_type != request_type:
            return "unknown"

        del self._waiting[message_id]
        self._remember_ended(message_id, "duplicate")
        if not future.done():
            future.set_result(message)
        return "delivered"

    def fail(self, message_id: str, error: ABPError) -> None:
        """Raise ``error`` in one request instead of a reply. Does nothing if that request is not pending."""
        if message_id not in self._waiting:
            return
        _, future = self._waiting.pop(message_id)
        self._remember_ended(message_id, "late")
        if not future.done():
            future.set_exception(error)

    def fail_all(self, error: ABPError) -> None:
        """Raise an error in every pending request, each a new instance of its class, message and details."""
        for message_id in tuple(self._waiting):
            self.fail(message_id, type(error)(error.message, details=error.details))

    def _remember_ended(self, message_id: str, outcome: Literal["late", "duplicate"]) -> None:
        self._ended[message_id] = outcome
        # They are remembered to distinguish late replies from unknown ones.
        max_remembered = 4096
        if len(self._ended) > max_remembered:
            self._ended.popitem(last=False)
