"""MCP servers as apps (extra ``[mcp]``). The SDK is imported when a name is used that needs it.

* :mod:`._servers` — parsing of targets: command lines, addresses, configuration files.
* :mod:`._wire` — translation between JSON-RPC and ABP: lines, base64, tools, results, elicitations.
* :mod:`._process` — the process of a server.
* :mod:`._connection` — one initialized connection over stdio or HTTP, with repair of tool lists.
* :mod:`._transport` — the transport: requests, reconnection, the Transport contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.extras import needing
from .._internal.lazy import lazy_names
from ._servers import HttpServer, Server, StdioServer, parse_server

if TYPE_CHECKING:
    from ._connection import VIEW_TYPE as VIEW_TYPE
    from ._process import (
        end_process as end_process,
        end_stdout as end_stdout,
        exit_reason as exit_reason,
        start_process as start_process,
    )
    from ._transport import MCPTransport as MCPTransport
    from ._wire import (
        error_answer as error_answer,
        result_warnings as result_warnings,
        to_answer as to_answer,
        to_arguments as to_arguments,
    )
else:
    _load = lazy_names(
        __name__,
        {
            "_connection": ("VIEW_TYPE",),
            "_process": (
                "end_process",
                "end_stdout",
                "exit_reason",
                "start_process",
            ),
            "_transport": ("MCPTransport",),
            "_wire": (
                "error_answer",
                "result_warnings",
                "to_answer",
                "to_arguments",
            ),
        },
    )

    def __getattr__(name: str) -> object:
        with needing("the MCP SDK", "mcp"):
            return _load(name)


__all__ = ["HttpServer", "MCPTransport", "Server", "StdioServer", "parse_server"]
