"""What a page said while a call ran: its console, and the errors that no script caught."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...protocol.secret_values import SecretValues
from ..page.listening import listener
from .timed_lines import MAX_CHARS, TimedLines

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Error, Page, Request

__all__ = ["ConsoleLog"]


class ConsoleLog:
    """Listens to a page from :meth:`start` to :meth:`stop`. Secrets of the requests that it sends are learned too."""

    def __init__(self, page: Page, secrets: SecretValues) -> None:
        self._page = page
        self._secrets = secrets
        self._lines = TimedLines("the page said nothing")
        self._listening = False
        self._listeners: list[tuple[Any, Any]] = [
            ("console", listener(self._on_console)),
            ("pageerror", listener(self._on_error)),
            ("request", listener(self._on_request)),
        ]

    def start(self) -> None:
        """Begin to listen."""
        self._listening = True
        for event, handle in self._listeners:
            self._page.on(event, handle)

    def stop(self) -> None:
        """Listen no more. Idempotent."""
        listening, self._listening = self._listening, False
        for event, handle in self._listeners if listening else ():
            self._page.remove_listener(event, handle)

    def text(self) -> str:
        """Return the lines without secrets, each with its time (UTC) and where it was said."""
        return self._lines.text(self._secrets)

    def _on_console(self, message: ConsoleMessage) -> None:
        place = message.location
        where = f" ({place['url']}:{place['lineNumber'] + 1})" if place.get("url") else ""
        self._lines.add(message.text or " ", head=f"console.{message.type}: ", tail=where)

    def _on_error(self, error: Error) -> None:
        self._lines.add(f"page error: {error.stack or error.message}")

    def _on_request(self, request: Request) -> None:
        self._secrets.learn(request.url)
        self._secrets.learn(dict(request.headers))
        with contextlib.suppress(UnicodeDecodeError):  # a body that is no text
            self._secrets.learn_pairs((request.post_data or "")[:MAX_CHARS])
