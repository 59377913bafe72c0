"""MCP servers as apps (extra ``[mcp]``): imported only where such a target is used.

* :mod:`.servers` — which server a target names.
* :mod:`.process`, :mod:`.http` — the two ways to a server; :mod:`.wire` — lines of JSON-RPC and base64 in them.
* :mod:`.tool_repair` — lists of tools that the SDK would refuse because of one bad entry.
* :mod:`.connection` — one initialized connection; :mod:`.reconnect` — opens it again when it is lost.
* :mod:`.requests` — a request and its result; :mod:`.questions` — what the server asks of the client.
* :mod:`.translation` — tools as capabilities, results as answers.
* :mod:`.transport` — all of it behind the Transport contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy_names
from ._servers import HttpServer, Server, StdioServer, parse_server
from ._transport import MCPTransport

if TYPE_CHECKING:
    from ._wire import request_id as request_id
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_wire": ("request_id",),
        },
    )

__all__ = ["HttpServer", "MCPTransport", "Server", "StdioServer", "parse_server"]
