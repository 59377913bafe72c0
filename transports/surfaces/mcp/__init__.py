"""MCP bridge (``abp mcp``): apps that speak ABP as tools and resources of the Model Context Protocol (``docs/mcp.md``).

Supports protocol versions with a handshake (until 2025-11-25) and 2026-07-28, which has none. Needs the extra ``mcp``;
importing this package without the extra raises :class:`ImportError`.
"""

from __future__ import annotations

from .access import parse_tokens
from .bridge import Bridge
from .http import serve_http
from .options import Options
from .stdio import serve_stdio

__all__ = ["Bridge", "Options", "parse_tokens", "serve_http", "serve_stdio"]
