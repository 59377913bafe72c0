"""What the tests of the bridge share. They need the MCP SDK."""

from importlib.util import find_spec

__all__ = ["abp", "era", "serve"]

if find_spec("mcp") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from tests.support.mcp_clients import era, serve
    from tests.surfaces.cli.conftest import abp
