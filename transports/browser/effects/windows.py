"""Manages windows that an app opens: they live until their call ends, and what they show may become an output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...binary import BinaryData, Download, Handle
from ...protocol.urls import redact_url
from ..page.agent import PageAgent
from ..page.listening import listen
from ..page.received import Held, parse_json
from ..source import close_quietly
from .call_effects import CallEffects, Detail, EffectTracker, ExpectedEffect

if TYPE_CHECKING:
    from playwright.async_api import Dialog, Page

__all__ = ["Windows"]

#: Windows open at once; one more is closed as soon as it opens.
_MAX_OPEN = 8
_MAX_TEXT = 500
_STEP_TIMEOUT = 2.0
#: Seconds for a window to show its content. Longer than a call waits, since the next call may take it.
_CAPTURE_TIMEOUT = 5.0


class Windows:
    """The windows of one page. The page announces each (:meth:`on_window_open`) before the browser opens it."""

    def __init__(self, agent: PageAgent, tracker: EffectTracker) -> None:
        self._agent = agent
        self._tracker = tracker
        self._open_windows: list[Page] = []
        self._on_dialog: Callable[[Dialog], None] = lambda _: None

    def watch(self, page: Page, on_dialog: Callable[[Dialog], None]) -> None:
        """Follow the windows that ``page`` opens, and their own windows; their dialogs go to ``on_dialog``.

        Other pages of the context are not touched.
        """
        self._on_dialog = on_dialog
        listen(page, "popup", self._on_popup)

    def on_window_open(self, event: dict[str, Any]) -> None:
        """Record a window from the event ``Page.windowOpen``: ``window.open``, or a link or form with a target."""
        detail: Detail = {"url": redact_url(event["url"])[:_MAX_TEXT]}
        call = self._tracker.current_call()
        if self._tracker.record(call, "popup", detail):
            self._tracker.expect(call, "window", detail)

    def close_windows_of(self, call: CallEffects) -> None:
        """Close the windows of a call that has ended, and those that no call opened."""
        for window in (*call.windows, *self._tracker.unattributed.windows):
            self._tracker.spawn(close_quietly(window))
        call.windows.clear()
        self._tracker.unattributed.windows.clear()

    def _on_popup(self, window: Page) -> None:
        self.watch(window, self._on_dialog)
        window.on("dialog", self._on_dialog)
        expected = self._tracker.take_expected("window")
        if expected is None:  # opened by another window
            self.on_window_open({"url": window.url})
            expected = self._tracker.take_expected("window")
        self._open_windows = [open_ for open_ in self._open_windows if not open_.is_closed()]
        if expected is None or len(self._open_windows) >= _MAX_OPEN:
            (expected.call if expected else self._tracker.current_call()).refused += 1
            if expected is not None:
                expected.detail["closed"] = "too many windows"
                self._tracker.mark_begun(expected)
            self._tracker.spawn(close_quietly(window))
            return
        self._open_windows.append(window)
        call = (
            expected.call
            if self._tracker.current_call(expected.call.id) is expected.call
            else self._tracker.unattributed
        )
        call.windows.append(window)
        self._tracker.spawn(self._capture(call, window, expected))

    async def _capture(self, call: CallEffects, window: Page, expected: ExpectedEffect) -> None:
        """Take what the window shows as an output, if it is content.

        A window that turns into a download has no address, and closes itself.
        """
        from playwright.async_api import Error

        try:
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_CAPTURE_TIMEOUT):
                    if not window.url:
                        await window.wait_for_event("close")
                    elif window.url.startswith("blob:"):
                        found = await self._agent.invoke("blobOfUrl", window.url, timeout=_STEP_TIMEOUT, returns=str)
                        for held in parse_json(found, list[Held], "the content of a window")[:1]:
                            content = BinaryData(Handle(f"held:{held.id}", held.size), held.type or None)
                            self._tracker.add_content(call, content, "what a window showed")
                    elif (
                        urlsplit(window.url)[:2] == urlsplit(self._agent.page.url)[:2]  # the app's own origin
                        and await window.evaluate("document.contentType") == "application/pdf"
                    ):
                        content = BinaryData(Download(window.url), "application/pdf")
                        self._tracker.add_content(call, content, "what a window showed")
        finally:
            self._tracker.mark_begun(expected)
