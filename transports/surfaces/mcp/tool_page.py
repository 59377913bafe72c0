"""The list of tools, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ListToolsResult, Tool

__all__ = ["tool_page"]

#: Tools in one page, and characters of a cursor.
_PAGE, _MAX_CURSOR = 100, 9


def tool_page(tools: Sequence[Tool], cursor: str | None) -> ListToolsResult:
    """Return the page of ``tools`` that ``cursor`` names, or the first. Raises :class:`MCPError` for a cursor that is
    none."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_CURSOR):
        raise MCPError(INVALID_PARAMS, "this cursor is not of this server; list the tools from the beginning")
    start = int(cursor or 0)
    more = str(start + _PAGE) if len(tools) > start + _PAGE else None
    return ListToolsResult(tools=list(tools[start : start + _PAGE]), next_cursor=more, ttl_ms=0)
