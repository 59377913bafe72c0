"""The WebMCP transport: drives the tools that a page registers with ``document.modelContext`` (docs/webmcp.md)."""

from .transport import WebMcpTransport

__all__ = ["WebMcpTransport"]
