"""What is lost is opened again: a page that crashed, went elsewhere or spins, a browser that died (FAULTS 1-5, 10)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from playwright.async_api import Error as PlaywrightError

from ..errors import TransportError
from ..messages import Message
from .agent import PageAgent

__all__ = ["keep"]

logger = logging.getLogger("transports.browser")

#: Seconds between two attempts, at the most.
_LONGEST_DELAY = 30.0


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
        delay = 0.1
        while True:
            try:
                agent = await reopen()
                break
            except (TransportError, PlaywrightError, TimeoutError) as failed:
                logger.info("the page could not be opened again: %s", failed)
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(delay * 2, _LONGEST_DELAY)
        tell(Message("connection/restored", {"reason": error.message}))
