"""Starts Playwright's driver, the process between Python and the browsers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import BrowserNotFound, first_line

if TYPE_CHECKING:
    from playwright.async_api import Playwright

__all__ = ["start_driver"]

_HOW_TO_SEE_WHY = (
    "`playwright --version` shows why: a slim image of Debian, for one, lacks a library of it "
    "(apt-get install libatomic1)"
)


async def start_driver() -> tuple[Playwright, list[int]]:
    """Start the driver; return Playwright and the driver's process id, as a list of one.

    The list is empty if this version of Playwright keeps its process elsewhere: it is private there. Then a driver
    that hangs while it is attached to a browser ends only with this process.

    Raises :class:`~transports.errors.BrowserNotFound` for a driver that cannot run here.
    """
    from playwright.async_api import async_playwright

    manager = async_playwright()
    try:
        playwright = await manager.start()
    except Exception as error:  # plain ones: the driver, a Node.js, is not there, or ends at once
        raise BrowserNotFound(f"Playwright's driver did not start ({first_line(error)}); {_HOW_TO_SEE_WHY}") from error
    client = getattr(manager, "_client", None) or getattr(manager, "_connection", None)
    transport = getattr(client, "_transport", None)
    ended = getattr(transport, "on_error_future", None)
    if isinstance(ended, asyncio.Future):  # nobody awaits it: asyncio would log the end of each driver that is killed
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())
    process = getattr(transport, "_proc", None)
    return playwright, [] if process is None else [process.pid]
