"""MCP servers of other people behind ``abp proxy``: the same answers, and the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.conformance import checks
from tests.hosts.proxied import SERVERS, Server, compare, files, installed, measured
from tests.mcp_official.node import Node

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def node() -> Node:
    return installed()


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
async def test_proxied_small_answers_are_equal_and_large_ones_complete(
    node: Node, tmp_path: Path, server: Server
) -> None:
    (tmp_path / "files").mkdir()
    files(tmp_path / "files")
    bare = await measured(server, node, tmp_path, proxied=False)
    proxied = await measured(server, node, tmp_path, proxied=True)
    compare(server, bare, proxied)


async def test_proxy_breaks_no_official_check(node: Node, tmp_path: Path) -> None:
    bare, behind = [await checks(node, tmp_path, behind=behind) for behind in (False, True)]
    assert sum(passed for passed, _ in bare.values()) > 10
    assert [name for name, (passed, _) in bare.items() if behind.get(name, (0, 0))[0] < passed] == []
