"""MCP servers for tests. Each is a script that stands alone: a server inherits no ``PYTHONPATH``."""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def target(script: str, *args: str) -> str:
    """``mcp+stdio:`` with one of the scripts in this folder."""
    return " ".join([f"mcp+stdio:{sys.executable}", str(FOLDER / f"{script}.py"), *args])


def configured(folder: Path, servers: object, key: str = "mcpServers") -> str:
    """``mcp:`` with a file in which agents keep servers, each an entry by its name."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({key: servers}))
    return f"mcp:{file}"
