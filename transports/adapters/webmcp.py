"""The WebMCP transport: the tools of a page and its frames, as capabilities."""

from __future__ import annotations

from ..browser import TopPageTransport

__all__ = ["WebMcpTransport"]


class WebMcpTransport(TopPageTransport):
    """The WebMCP tools of a page, whether or not it has ``window.abp`` as well.

    The options are those of :class:`~transports.browser._top_page.TopPageTransport`. The first tool may take 15 s after
    the page has loaded (``grace=``): large applications need several.
    """

    name = "webmcp"
    _default_protocol = "webmcp"
    _default_grace = 15.0
