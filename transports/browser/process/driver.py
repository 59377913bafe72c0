"""Starts Playwright's driver, the process between Python and the browsers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Playwright

__all__ = ["start_driver"]


async def start_driver() -> tuple[Playwright, list[int]]:
    """Start the driver; return Playwright and the driver's process id, as a list of one.

    The list is empty if this version of Playwright keeps its process elsewhere: it is private there. Then a driver
    that hangs while it is attached to a browser ends only with this process.
    """
    from playwright.async_api import async_playwright

    manager = async_playwright()
    playwright = await manager.start()
    client = getattr(manager, "_client", None) or getattr(manager, "_connection", None)
    transport = getattr(client, "_transport", None)
    ended = getattr(transport, "on_error_future", None)
    if isinstance(ended, asyncio.Future):  # nobody awaits it: asyncio would log the end of each driver that is killed
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())
    process = getattr(transport, "_proc", None)
    return playwright, [] if process is None else [process.pid]
