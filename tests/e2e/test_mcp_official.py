"""The official conformance runner and the inspector's command line, against ``abp mcp`` as a process."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.mcp_official.node import Node, installed
from tests.mcp_official.running import ERAS, conformance, inspect_http, inspect_stdio

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def node() -> Node:
    return installed()


@pytest.mark.requirement("R4-13d")
@pytest.mark.parametrize("era", ERAS)
async def test_applicable_official_scenarios_pass(node: Node, tmp_path: Path, era: str) -> None:
    report = await conformance(node, era, tmp_path)
    assert re.search(r"tools-list: [1-9]\d* passed, 0 failed", report)


@pytest.mark.requirement("R4-13d", "R4-13e")
@pytest.mark.parametrize("inspect", [inspect_stdio, inspect_http])
async def test_mcp_inspector_lists_calls_and_reads(node: Node, tmp_path: Path, inspect: object) -> None:
    assert callable(inspect)
    async with asyncio.timeout(300):
        report = await inspect(node, tmp_path)
    assert len(report) == 7
