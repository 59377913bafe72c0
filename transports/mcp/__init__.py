"""MCP servers as apps (extra ``[mcp]``). The SDK is imported when a name is used that needs it.

* :mod:`._servers` — parsing of targets: command lines, addresses, configuration files.
* :mod:`._wire` — translation between JSON-RPC and ABP: lines, base64, tools, results, elicitations.
* :mod:`._process` — the process of a server.
* :mod:`._connection` — one initialized connection over stdio or HTTP, with repair of tool lists.
* :mod:`._transport` — the transport: requests, reconnection, the Transport contract.
"""

from __future__ import annotations

from .._internal.extras import needing
from .._internal.lazy import attach_stub

_load, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    with needing("the MCP SDK", "mcp"):
        return _load(name)
