"""The WebMCP transport: tools of a page and its frames as capabilities."""

from __future__ import annotations

from ._top_page import TopPageTransport

__all__ = ["WebMcpTransport"]


class WebMcpTransport(TopPageTransport):
    """Transport to the WebMCP tools of a page, even if the page also has ``window.abp``.

    The options are those of :class:`~transports.playwright._top_page.TopPageTransport`. The first tool may appear up to
    15 s after the page has loaded (``grace=``): large applications need several seconds.
    """

    name = "webmcp"
    _default_protocol = "webmcp"
    _default_grace = 15.0
