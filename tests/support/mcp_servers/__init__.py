"""MCP servers for tests. Each is a script that stands alone: a server inherits no ``PYTHONPATH``."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def target(script: str, *args: str) -> str:
    """``mcp+stdio:`` with one of the scripts in this folder."""
    return " ".join([f"mcp+stdio:{sys.executable}", str(FOLDER / f"{script}.py"), *args])
