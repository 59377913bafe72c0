"""MCP servers as apps (extra ``[mcp]``): imported only where such a target is used.

* :mod:`.servers` — which server a target means.
* :mod:`.process`, :mod:`.http`, :mod:`.wire` — how its messages travel.
* :mod:`.mending` — lists that the SDK would refuse for one bad entry.
* :mod:`.connection` — greeted, listened to, and ended; :mod:`.keeper` — and opened again.
* :mod:`.requests` — a request and what comes of it; :mod:`.questions` — what the server asks.
* :mod:`.translation` — tools as capabilities, results as answers.
* :mod:`.transport` — all of it behind the Transport contract.
"""

from .servers import HttpServer, Server, StdioServer, server_of
from .transport import MCPTransport

__all__ = ["HttpServer", "MCPTransport", "Server", "StdioServer", "server_of"]
