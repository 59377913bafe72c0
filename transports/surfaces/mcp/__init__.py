"""MCP bridge (``abp mcp``): apps that speak ABP as tools and resources of the Model Context Protocol (``docs/mcp.md``).

Supports protocol versions with a handshake (until 2025-11-25) and 2026-07-28, which has none. Needs the extra ``mcp``;
a name that needs it raises :class:`ImportError` without the extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._internal.extras import needing
from ..._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._access import parse_tokens as parse_tokens
    from ._bridge import Bridge as Bridge
    from ._http import serve_http as serve_http
    from ._options import Options as Options
    from ._stdio import serve_stdio as serve_stdio
    from .proxy._running import (
        ProxyOptions as ProxyOptions,
        relay as relay,
        run_http as run_http,
        run_stdio as run_stdio,
        shared_by as shared_by,
    )
    from .proxy._stats import Count as Count, Stats as Stats, log_file as log_file, read_log as read_log, table as table
    from .proxy._upstreams import Upstream as Upstream, open_upstream as open_upstream, server_of as server_of
else:
    _load = lazy_names(
        __name__,
        {
            "_access": ("parse_tokens",),
            "_bridge": ("Bridge",),
            "_http": ("serve_http",),
            "_options": ("Options",),
            "_stdio": ("serve_stdio",),
            "proxy._running": (
                "ProxyOptions",
                "relay",
                "run_http",
                "run_stdio",
                "shared_by",
            ),
            "proxy._stats": (
                "Count",
                "Stats",
                "log_file",
                "read_log",
                "table",
            ),
            "proxy._upstreams": (
                "Upstream",
                "open_upstream",
                "server_of",
            ),
        },
    )

    def __getattr__(name: str) -> object:
        with needing("the MCP SDK", "mcp"):
            return _load(name)


__all__ = [
    "Bridge",
    "Count",
    "Options",
    "ProxyOptions",
    "Stats",
    "Upstream",
    "log_file",
    "open_upstream",
    "parse_tokens",
    "read_log",
    "relay",
    "run_http",
    "run_stdio",
    "serve_http",
    "serve_stdio",
    "server_of",
    "shared_by",
    "table",
]
