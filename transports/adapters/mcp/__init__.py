"""MCP servers as apps (extra ``[mcp]``). Imported only if such a target is used.

* :mod:`.servers` — parsing of targets: command lines, addresses, configuration files.
* :mod:`.wire` — translation between JSON-RPC and ABP: lines, base64, tools, results, elicitations.
* :mod:`.connection` — one initialized connection over stdio or HTTP, with repair of tool lists.
* :mod:`.transport` — the transport: requests, reconnection, the Transport contract.
"""

from .servers import HttpServer, Server, StdioServer, parse_server
from .transport import MCPTransport

__all__ = ["HttpServer", "MCPTransport", "Server", "StdioServer", "parse_server"]
