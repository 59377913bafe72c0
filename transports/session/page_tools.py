"""Tools of the kit's own on an app's page: the content that they make is stored as the answer of a call."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ..base import PageTools, PdfOptions, ScreenshotOptions, Transport, WebResource
from ..errors import UsageError
from ..protocol.ids import new_id
from ..routing import Result
from .calls import Calls
from .results import Results

__all__ = ["PageToolCalls"]

#: Seconds for one request of HTML that is printed.
_FETCH_TIMEOUT = 30.0


class PageToolCalls:
    """The page tools of one session. Each raises :class:`~transports.errors.UsageError` if the transport has no page.
    ``timeout`` is in seconds.

    HTML that is printed may reach private hosts, too, with ``allow_private``."""

    def __init__(self, transport: Transport, results: Results, calls: Calls, *, allow_private: bool) -> None:
        self._transport = transport
        self._results = results
        self._calls = calls
        self._allow_private = allow_private

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float, public_hosts: bool) -> Result:
        """Return ``html`` as a PDF, stored under ``document``."""
        fetch = self._fetch_public if public_hosts else None
        return await self._run(
            "render_to_pdf", "document", lambda page: page.render_to_pdf(html, options, timeout=timeout, fetch=fetch)
        )

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> Result:
        """Return a picture of a page, stored under ``image``."""
        return await self._run("screenshot", "image", lambda page: page.screenshot(options, timeout=timeout))

    async def _run(self, tool: str, field: str, use: Callable[[PageTools], Awaitable[object]]) -> Result:
        page, call, started = self._transport, new_id(), time.perf_counter()
        if not isinstance(page, PageTools):
            raise UsageError(f"{tool} needs an app in a page; this one is reached by {page.name}")

        async def work() -> Result:
            return await self._results.from_data({field: await use(page)}, tool, started, call)

        return await self._calls.with_events(call, tool, work())

    async def _fetch_public(self, url: str, accept: str, max_bytes: int) -> WebResource:
        from ..http import fetch_public  # late: few sessions need it

        return await fetch_public(
            url, accept=accept, timeout=_FETCH_TIMEOUT, max_bytes=max_bytes, allow_private=self._allow_private
        )
