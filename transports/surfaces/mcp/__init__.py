"""MCP bridge (``abp mcp``): apps that speak ABP as tools and resources of the Model Context Protocol (``docs/mcp.md``).

Supports protocol versions with a handshake (until 2025-11-25) and 2026-07-28, which has none. Needs the extra ``mcp``;
importing this package without the extra raises :class:`ImportError`.
"""

from __future__ import annotations

from ..._extras import needing

with needing("the MCP SDK", "mcp"):
    from ._access import parse_tokens
    from ._bridge import Bridge
    from ._http import serve_http
    from ._options import Options
    from ._stdio import serve_stdio
    from .proxy._running import MAX_INLINE, ProxyOptions, open_upstream, relay, run_proxy, server_of, shared_by
    from .proxy._stats import Count, Stats, log_file, read_log, table

__all__ = [
    "MAX_INLINE",
    "Bridge",
    "Count",
    "Options",
    "ProxyOptions",
    "Stats",
    "log_file",
    "open_upstream",
    "parse_tokens",
    "read_log",
    "relay",
    "run_proxy",
    "serve_http",
    "serve_stdio",
    "server_of",
    "shared_by",
    "table",
]
