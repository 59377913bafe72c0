"""Opens a lost page again: one that crashed, navigated away or hangs, or whose browser died (docs/faults.md 1-5,
10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count

from ..errors import TransportError
from ..protocol.messages import Message
from ..tasks import backoff_delay
from .page.agent import PageAgent

__all__ = ["reconnect"]

logger = logging.getLogger("transports.browser")


async def reconnect(
    agent: PageAgent,
    *,
    can_reopen: Callable[[TransportError], bool],
    reopen: Callable[[], Awaitable[PageAgent]],
    emit: Callable[[Message], None],
) -> None:
    """Watch the page of ``agent`` and call ``reopen`` each time it is lost.

    Failed attempts are repeated, whatever their reason, with growing, jittered delays
    (:func:`~transports.tasks.backoff_delay`). ``emit`` gets a ``connection/lost`` event at each loss and a
    ``connection/restored`` one at each return, in that order. Ends when it is cancelled, or once ``can_reopen`` says
    that the page of a loss cannot be opened again.
    """
    while can_reopen(error := await asyncio.shield(agent.lost)):
        emit(Message("connection/lost", {"reason": error.message}))
        for attempt in count(1):
            try:
                agent = await reopen()
                break
            except Exception as failure:  # noqa: BLE001 - of a driver that ends meanwhile, any
                if not can_reopen(error):
                    return
                logger.info("the page could not be opened again: %s", failure)
            await asyncio.sleep(backoff_delay(attempt))
        emit(Message("connection/restored", {"reason": error.message}))
