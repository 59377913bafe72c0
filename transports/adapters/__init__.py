"""Transports: one package or module for each way to reach an app. They do not import each other.

* :mod:`.playwright` — a page in a real browser; :mod:`.postmessage` — an app embedded in an iframe; :mod:`.webmcp` — a
  page with WebMCP tools.
* :mod:`.websocket` — an app behind a ``ws://`` address; :mod:`.mcp` — an MCP server, and :mod:`.views` of its tools.
* :mod:`.memory` — an app in the same process; :mod:`.recording` — record another transport, replay a recording.

A name is imported when it is first used: each transport loads libraries of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .mcp import MCPTransport as MCPTransport
    from .memory import MemoryTransport as MemoryTransport
    from .playwright import PlaywrightTransport as PlaywrightTransport
    from .postmessage import PostMessageTransport as PostMessageTransport
    from .recording import (
        Recording as Recording,
        ReplayTransport as ReplayTransport,
        ServerReplay as ServerReplay,
        record_transport as record_transport,
        replay_transport as replay_transport,
    )
    from .webmcp import WebMcpTransport as WebMcpTransport
    from .websocket import WebSocketTransport as WebSocketTransport
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "mcp": ("MCPTransport",),
            "memory": ("MemoryTransport",),
            "playwright": ("PlaywrightTransport",),
            "postmessage": ("PostMessageTransport",),
            "recording": (
                "Recording",
                "ReplayTransport",
                "ServerReplay",
                "record_transport",
                "replay_transport",
            ),
            "webmcp": ("WebMcpTransport",),
            "websocket": ("WebSocketTransport",),
        },
    )
