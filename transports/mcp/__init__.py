"""MCP servers as apps (extra ``[mcp]``). The SDK is imported when a name is used that needs it.

* :mod:`._servers` — targets: command lines, addresses, configuration files.
* :mod:`._stdio` — the process of a server, and its lines. Without the SDK.
* :mod:`._wire` — JSON-RPC as ABP and back: base64, tools, results, elicitations.
* :mod:`._events` — server-sent events with messages. Without the SDK.
* :mod:`._streams` — stdio and HTTP for the SDK, with repair of tool lists.
* :mod:`._connection` — an initialized connection that is replaced when it is lost, and requests over it.
* :mod:`._transport` — the transport.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub, requiring_extra

_load, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    with requiring_extra("the MCP SDK", "mcp"):
        return _load(name)
