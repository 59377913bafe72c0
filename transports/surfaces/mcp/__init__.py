"""MCP bridge (``abp mcp``): apps that speak ABP as tools and resources of the Model Context Protocol (``docs/mcp.md``).

Supports protocol versions with a handshake (until 2025-11-25) and 2026-07-28, which has none. Needs the extra ``mcp``;
a name that needs it raises :class:`ImportError` without the extra.
"""

from __future__ import annotations

from ..._internal.lazy import attach_stub, requiring_extra

_load, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    with requiring_extra("the MCP SDK", "mcp"):
        return _load(name)
