"""The tests of the proxy need the MCP SDK, except those of its start."""

from importlib.util import find_spec

from tests.surfaces.cli.conftest import abp

__all__ = ["abp"]

if find_spec("mcp") is None:
    collect_ignore_glob = ["test_[!s]*.py", "test_sessions.py", "test_stdio.py"]
