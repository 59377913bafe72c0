"""What a page said while a call ran: its console, and the errors that no script caught."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from ...protocol.secret_values import SecretValues
from ...protocol.timestamps import iso_utc
from ..page.listening import listener

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Error, Page, Request

__all__ = ["ConsoleLog"]

#: Lines that are kept, and characters of each; a page may say any number of things.
_MAX_LINES, _MAX_CHARS = 5000, 4000


class ConsoleLog:
    """Listens to a page from :meth:`start` to :meth:`stop`. Secrets of the requests that it sends are learned too."""

    def __init__(self, page: Page, secrets: SecretValues) -> None:
        self._page = page
        self._secrets = secrets
        self._lines: list[str] = []
        self._left_out = 0
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
        left_out = [f"… and {self._left_out} more lines, which were not kept"] * bool(self._left_out)
        lines = [self._secrets.line(line) for line in [*self._lines, *left_out]] or ["the page said nothing"]
        return "\n".join(lines) + "\n"

    def _on_console(self, message: ConsoleMessage) -> None:
        place = message.location
        where = f" ({place['url']}:{place['lineNumber'] + 1})" if place.get("url") else ""
        self._add(f"console.{message.type}: {message.text}{where}")

    def _on_error(self, error: Error) -> None:
        self._add(f"page error: {error.stack or error.message}")

    def _on_request(self, request: Request) -> None:
        self._secrets.learn(request.url)
        self._secrets.learn(dict(request.headers))
        with contextlib.suppress(UnicodeDecodeError):  # a body that is no text
            self._secrets.learn_pairs((request.post_data or "")[:_MAX_CHARS])

    def _add(self, text: str) -> None:
        if len(self._lines) >= _MAX_LINES:
            self._left_out += 1
            return
        cut = text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"
        self._lines.append(f"{iso_utc(time.time())} {cut}")
