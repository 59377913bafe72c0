"""Requests of a page that has no network, answered by a :class:`~transports.base.Fetch`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from playwright.async_api import Error

from ..base import Fetch
from ..errors import ABPError

if TYPE_CHECKING:
    from playwright.async_api import Route

__all__ = ["FetchedRequests"]

#: Requests of one page, those at a time, and bytes of all answers.
_MAX_REQUESTS, _MAX_AT_ONCE, _MAX_BYTES = 500, 6, 64 << 20


class FetchedRequests:
    """Answers the requests of one page, within limits for their number and size; anything but a GET fails."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._requests, self._bytes = _MAX_REQUESTS, _MAX_BYTES
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)

    async def answer(self, route: Route) -> None:
        """Answer one request, or fail it. Nothing is raised: the page may be gone before."""
        request = route.request
        self._requests -= 1
        with contextlib.suppress(Error):
            if not request.url.lower().startswith(("http:", "https:")):
                await route.continue_()  # blob: and its like, which need no network
            elif request.method != "GET" or self._requests < 0:
                await route.abort("blockedbyclient")
            else:
                await self._answer_get(route)

    async def _answer_get(self, route: Route) -> None:
        async with self._slots:
            try:
                accept = route.request.headers.get("accept", "")
                found = await self._fetch(route.request.url, accept, self._bytes)
            except ABPError:
                await route.abort("blockedbyclient")
                return
            self._bytes = max(0, self._bytes - len(found.body))
            await route.fulfill(status=200, headers=dict(found.headers), body=found.body)
