"""The Playwright transport: drives an ABP page in a real browser, headless by default."""

from __future__ import annotations

from ._top_page import TopPageTransport

__all__ = ["PlaywrightTransport"]


class PlaywrightTransport(TopPageTransport):
    """Transport to a page with ``window.abp``.

    All options are those of :class:`~transports.playwright._top_page.TopPageTransport`: ``browser``, or ``page``,
    ``context`` or ``cdp_url`` for a page of the caller's, or ``browser_server``, with ``headers``; ``profile`` and
    ``storage_state``; ``timeout`` and ``grace``; ``dialogs`` and ``permissions``; ``adapter``. With
    ``protocol="auto"`` a page without ``window.abp`` is driven by its WebMCP tools, if it registers any.
    """

    name = "playwright"
