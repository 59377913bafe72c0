"""What is lost is opened again: a page that crashed, went elsewhere or spins, a browser that died (FAULTS 1-5, 10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count

from playwright.async_api import Error as PlaywrightError

from ..errors import TransportError
from ..protocol.messages import Message
from ..tasks import backoff_delay
from .page.agent import PageAgent

__all__ = ["keep"]

logger = logging.getLogger("transports.browser")


async def keep(
    agent: PageAgent,
    *,
    ours: Callable[[TransportError], bool],
    reopen: Callable[[], Awaitable[PageAgent]],
    tell: Callable[[Message], None],
) -> None:
    """Until it is cancelled, or loses what is not ``ours`` to open, have ``reopen`` open what was lost, with growing,
    jittered delays; ``tell`` the session of each loss and each return."""
    while ours(error := await asyncio.shield(agent.lost)):
        tell(Message("connection/lost", {"reason": error.message}))
        for attempt in count(1):
            try:
                agent = await reopen()
                break
            except (TransportError, PlaywrightError, TimeoutError) as failed:
                logger.info("the page could not be opened again: %s", failed)
            await asyncio.sleep(backoff_delay(attempt))
        tell(Message("connection/restored", {"reason": error.message}))
