"""``answers.py CASES``: an MCP server over stdio with one tool, which gives the answers of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fastmcp import FastMCP

server: Any = FastMCP("answers")
cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


@server.tool  # type: ignore[untyped-decorator]
def answer(number: int) -> dict[str, Any]:
    """Return the answer of that number."""
    given: dict[str, Any] = cases[number]["answer"]
    return given


if __name__ == "__main__":
    server.run(show_banner=False)
