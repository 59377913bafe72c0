"""Windows that an app opens: they may live until their call ends, and what they show is kept if it is content."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...binary import BinaryData, Download, Handle
from ...protocol.urls import redact_url
from ..page.agent import PageAgent
from ..source import closing
from .ledger import Announced, Caused, Detail, Ledger

if TYPE_CHECKING:
    from playwright.async_api import Dialog, Page

__all__ = ["Windows"]

#: At once; one more is closed as soon as it opens.
_MOST = 8
_TEXT = 500
_STEP = 2.0
#: Seconds for a window to show what it shows; longer than a call waits, for the next one may take it.
_LOOK = 5.0


class Windows:
    """The windows of one page. The page announces each (:meth:`announced`) before the browser has it."""

    def __init__(self, agent: PageAgent, ledger: Ledger) -> None:
        self._agent = agent
        self._ledger = ledger
        self._open: list[Page] = []
        self._on_dialog: Callable[[Dialog], None] = lambda _: None

    def watch(self, page: Page, on_dialog: Callable[[Dialog], None]) -> None:
        """Take in the windows of ``page``, and theirs; their dialogs go to ``on_dialog``. A context may have other
        pages, which are nobody's business here."""
        self._on_dialog = on_dialog
        page.on("popup", self._opened)

    def announced(self, event: dict[str, Any]) -> None:
        """``Page.windowOpen``: ``window.open``, or a link or form with a target."""
        detail: Detail = {"url": redact_url(event["url"])[:_TEXT]}
        call = self._ledger.running()
        if self._ledger.record(call, "popup", detail):
            self._ledger.expect(call, "window", detail)

    def close(self, call: Caused) -> None:
        """The call has ended, and so do its windows, and those that no call has opened."""
        for window in (*call.windows, *self._ledger.outside.windows):
            self._ledger.spawn(closing(window))
        call.windows.clear()
        self._ledger.outside.windows.clear()

    def _opened(self, window: Page) -> None:
        self.watch(window, self._on_dialog)
        window.on("dialog", self._on_dialog)
        announced = self._ledger.take("window")
        if announced is None:  # opened by another window
            self.announced({"url": window.url})
            announced = self._ledger.take("window")
        self._open = [open_ for open_ in self._open if not open_.is_closed()]
        if announced is None or len(self._open) >= _MOST:
            if announced is not None:
                announced.detail["closed"] = "too many windows"
                self._ledger.begun(announced)
            self._ledger.spawn(closing(window))
            return
        self._open.append(window)
        call = announced.call if self._ledger.running(announced.call.id) is announced.call else self._ledger.outside
        call.windows.append(window)
        self._ledger.spawn(self._look(call, window, announced))

    async def _look(self, call: Caused, window: Page, announced: Announced) -> None:
        """What the window shows. One that becomes a download has no address and closes itself."""
        from playwright.async_api import Error

        try:
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_LOOK):
                    if not window.url:
                        await window.wait_for_event("close")
                    elif window.url.startswith("blob:"):
                        found = await self._agent.invoke("opened", window.url, timeout=_STEP)
                        if found:
                            handle = Handle(f"held:{found['id']}", found["size"])
                            shown = BinaryData(handle, found["type"] or None)
                            self._ledger.ready(call, shown, "what a window showed")
                    elif (
                        urlsplit(window.url)[:2] == urlsplit(self._agent.page.url)[:2]  # the app's own origin
                        and await window.evaluate("document.contentType") == "application/pdf"
                    ):
                        shown = BinaryData(Download(window.url), "application/pdf")
                        self._ledger.ready(call, shown, "what a window showed")
        finally:
            self._ledger.begun(announced)
