"""An MCP server over stdio with one tool, which answers a file as base64 in a field, as Tableau's does."""

from __future__ import annotations

import base64
from typing import Any

from fastmcp import FastMCP

server: Any = FastMCP("tableau")


@server.tool  # type: ignore[untyped-decorator]
def download_workbook() -> dict[str, str]:
    """Return a workbook as PDF (docs/requirements.md R2-B)."""
    content = base64.b64encode(b"%PDF-1.7\n" + b"x" * 2000).decode()
    return {"content": content, "name": "Sales Dashboard", "format": "pdf"}


if __name__ == "__main__":
    server.run(show_banner=False)
