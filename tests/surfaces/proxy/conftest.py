"""What the tests of the proxy share. They need the MCP SDK, except those of its start."""

from collections.abc import AsyncIterator
from importlib.util import find_spec

import pytest
import pytest_asyncio

from tests.support.relayed import Client, relayed
from tests.surfaces.cli.conftest import abp

__all__ = ["abp"]

if find_spec("mcp") is None:
    collect_ignore_glob = ["test_[!s]*.py", "test_stdio.py"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """One client of the server ``large.py`` behind the proxy, for all tests of a module that leave nothing in it."""
    async with relayed(tmp_path_factory.mktemp("proxy")) as client:
        yield client
