"""Sessions that are held open between calls, and browser contexts that are cleared between sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ...browser.process.launch import Browser
from ...browser.source import close_quietly
from ...errors import ABPError, ConnectFailed, first_line
from ...protocol.urls import redact_url
from ...session.session import Session
from ...tasks import cancel_and_wait

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

__all__ = ["HeldSession", "clear_context", "open_context"]

logger = logging.getLogger("transports.batch")

#: Seconds for a session to close; its transport has stricter limits of its own.
_CLOSE_TIMEOUT = 10.0
#: Seconds for a context to open, or to be cleared.
_CONTEXT_TIMEOUT = 10.0


class HeldSession:
    """A session that is opened, held open and closed by a task of its own, since calls come and go in others."""

    def __init__(self, target: str, session: Session) -> None:
        self.target = target
        self.session = session
        self._opened = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        async with self.session:
            self._opened.set()
            await self._leave.wait()

    async def opened(self, timeout: float) -> None:
        """Wait until the session is open, ``timeout`` seconds at most; its own limit is stricter.

        Raises what opening it raises. It is closed if this is cancelled."""
        waiting = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait((waiting, self._task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            if not self._opened.is_set() and not self._task.done():
                await cancel_and_wait((self._task,))
        if self._opened.is_set():
            return
        if not self._task.done() or self._task.cancelled():
            raise ConnectFailed(f"the session with {redact_url(self.target)} did not open and does not end")
        await self._task

    async def aclose(self) -> None:
        """Close the session, within ten seconds. Never raises: what goes wrong is logged."""
        self._leave.set()
        await asyncio.wait((self._task,), timeout=_CLOSE_TIMEOUT)
        if not self._task.done():
            await cancel_and_wait((self._task,))
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()):
            logger.info("a session closed with an error: %s", first_line(error))


async def open_context(browser: Browser) -> BrowserContext:
    """Return a new context of ``browser``. Raises :class:`~transports.errors.ConnectFailed` if it opens none."""
    try:
        async with asyncio.timeout(_CONTEXT_TIMEOUT):
            return await browser.playwright.new_context()
    except ABPError:
        raise
    except Exception as error:  # noqa: BLE001 - of a driver that ends meanwhile, any
        raise ConnectFailed(f"the browser opens no context: {first_line(error)}") from None


async def clear_context(context: BrowserContext) -> bool:
    """Remove everything that pages of ``context`` have stored: cookies, local storage, databases, caches, files and
    service workers of all origins, and what they were permitted. The browser's HTTP cache stays.

    Returns whether it is clean. Where it may not be, the context has been closed: a browser without CDP cannot do it.
    """
    try:
        async with asyncio.timeout(_CONTEXT_TIMEOUT):
            page = await context.new_page()
            cdp = await context.new_cdp_session(page)
            await cdp.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
            await context.clear_cookies()
            await context.clear_permissions()
            await page.close()
    except Exception as error:  # noqa: BLE001 - whatever it was, the context is given up
        logger.info("a context could not be cleared: %s", first_line(error))
        await close_quietly(context)
        return False
    return True
