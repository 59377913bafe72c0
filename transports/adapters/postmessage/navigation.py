"""What became of the embedded document: its response, or the reason why there is none."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...browser.page.listening import listener
from ...browser.page.navigation import explain_load_failure, same_document, shown_address

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request, Response

__all__ = ["NavigationWatcher"]


class NavigationWatcher:
    """Records what became of the requests for the document of the frame in ``page``, until it is closed."""

    def __init__(self, page: Page, harness_origin: str) -> None:
        self._harness_origin = harness_origin
        self._page = page
        self._failed: Request | None = None
        self.response: Response | None = None
        #: Is set once the frame shows an error page of the browser: nothing in it will ever answer.
        self.failed = asyncio.Event()
        self._listeners = {
            "requestfailed": listener(self._on_failed),
            "response": listener(self._on_response),
            "framenavigated": listener(self._on_document),
        }
        for event, handle in self._listeners.items():
            page.on(event, handle)  # type: ignore[call-overload]

    def close(self) -> None:
        """Stop listening."""
        while self._listeners:
            self._page.remove_listener(*self._listeners.popitem())

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request() and self._is_apps(request.frame):
            self._failed = request

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request() and self._is_apps(response.frame):
            self.response = response

    def _on_document(self, frame: Frame) -> None:
        if self._is_apps(frame) and frame.url.startswith("chrome-error:"):
            self.failed.set()

    def _is_apps(self, frame: Frame) -> bool:
        return frame.parent_frame == self._page.main_frame  # and not one that the app embeds

    @property
    def status(self) -> int | None:
        """The HTTP status of the document, if it came over HTTP."""
        return self.response.status if self.response else None

    async def reason(self, url: str) -> str:
        """Return why the frame, opened at ``url``, shows an error page."""
        leads = ""
        if self._failed is not None and not same_document(self._failed.url, url):
            leads = f"it leads to {shown_address(self._failed.url).partition('?')[0]}: "
        failure = (self._failed.failure if self._failed else None) or "the browser does not say why"
        if "BLOCKED_BY_RESPONSE" not in failure or self.response is None:
            return leads + explain_load_failure(failure, url)
        headers: dict[str, str] = {}
        with contextlib.suppress(Exception):  # of a page that is gone meanwhile, any
            async with asyncio.timeout(5.0):
                headers = await self.response.all_headers()
        policy = headers.get("content-security-policy", "")
        directive = next((part.strip() for part in policy.split(";") if "frame-ancestors" in part), None)
        refusal = directive or f"X-Frame-Options: {headers.get('x-frame-options', '?')}"
        return (
            f"{leads}it refuses to be embedded ({refusal}); have the app allow {self._harness_origin}, or open it by "
            "itself (transport='playwright')"
        )
