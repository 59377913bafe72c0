"""Messages that have come in: replies, events, the unknown, and those that cannot be read."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter

from ...errors import ProtocolError
from ...protocol.messages import Message
from ...protocol.pending import PendingReplies

__all__ = ["Incoming", "answered_request"]

logger = logging.getLogger("transports.websocket")

_EVENTS = {"notification", "progress", "elicitation/request"}
_ID_PATTERN = re.compile(rb'"id"\s*:\s*"([^"\\]{1,128})"')


class Incoming:
    """What becomes of messages: ``pending`` gets replies, ``events`` what the app sends on its own, and ``None`` at the
    end. The rest is logged and counted."""

    def __init__(self) -> None:
        self.pending = PendingReplies()
        self.events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._unknown: Counter[str] = Counter()

    def deliver(self, message: Message) -> None:
        """Give a message to whom it is for."""
        outcome = self.pending.deliver(message)
        if outcome == "delivered":
            return
        if outcome != "event":
            # a late one is what a call that was cancelled or timed out leaves behind
            level = logging.INFO if outcome == "late" else logging.WARNING
            logger.log(level, "ignored a %s reply (%s)", outcome, message.type)
        elif message.type in _EVENTS:
            self.events.put_nowait(message)
        else:
            self._unknown[message.type] += 1
            if self._unknown[message.type] == 1:
                logger.warning(
                    "ignored a message of the unknown type %r; more of them are ignored quietly", message.type
                )

    def refuse(self, data: bytes, reason: Exception) -> None:
        """Ignore a message that cannot be read. The request that it answers fails now, instead of at its timeout."""
        error = reason
        if not isinstance(error, ProtocolError):
            error = ProtocolError(f"the app sent a message that cannot be read ({type(reason).__name__})")
        self.pending.counts["unreadable"] += 1
        if (request := answered_request(data)) is not None:
            self.pending.fail(request, error)
        logger.warning("%s", error.message)


def answered_request(data: bytes) -> str | None:
    """Return the id that stands near the beginning or the end of a message that cannot be parsed."""
    found = _ID_PATTERN.search(data[:4096]) or _ID_PATTERN.search(data[-4096:])
    return found[1].decode(errors="replace") if found else None
