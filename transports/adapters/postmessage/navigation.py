"""What became of the embedded document: its response, or the reason why there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...browser.page.navigation import explain_load_failure

if TYPE_CHECKING:
    from playwright.async_api import Page, Request, Response

__all__ = ["NavigationWatcher"]


class NavigationWatcher:
    """Records what became of the requests for the frame's document."""

    def __init__(self, page: Page, harness_origin: str) -> None:
        self._harness_origin = harness_origin
        self._page = page
        self._failed: Request | None = None
        self.response: Response | None = None
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)

    def close(self) -> None:
        """Stop listening."""
        self._page.remove_listener("requestfailed", self._on_failed)
        self._page.remove_listener("response", self._on_response)

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request():
            self._failed = request

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request():
            self.response = response

    @property
    def status(self) -> int | None:
        """The HTTP status of the document, if it came over HTTP."""
        return self.response.status if self.response else None

    async def reason(self, url: str) -> str:
        """Return why the frame shows an error page, for ``url``."""
        failure = (self._failed.failure if self._failed else None) or "the browser does not say why"
        if "BLOCKED_BY_RESPONSE" not in failure or self.response is None:
            return explain_load_failure(failure, url)
        async with asyncio.timeout(5.0):
            headers = await self.response.all_headers()
        policy = headers.get("content-security-policy", "")
        directive = next((part.strip() for part in policy.split(";") if "frame-ancestors" in part), None)
        refusal = directive or f"X-Frame-Options: {headers.get('x-frame-options', '?')}"
        return (
            f"it refuses to be embedded ({refusal}); have the app allow {self._harness_origin}, or open it by itself "
            "(transport='playwright')"
        )
