"""``abp call`` of a tool that a page has by WebMCP, and its recording."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from transports import connect
from webapp_fixture import Fixture


@pytest.mark.slow
@pytest.mark.browser
def test_cli_drives_page_with_webmcp_tools(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    url, record = workbench.url + "webmcp/cases", tmp_path / "rec"
    sent = ["--file", f"text={__file__}"]
    ran = abp("call", url, "take", "--transport", "webmcp", "--json", *sent, "--record", record)
    document = ran.document
    assert document["success"] is True and document["transport"] == "webmcp" and ran.status == 0

    async def played() -> set[str]:
        async with connect(f"replay:{record}", store=tmp_path / "replayed") as app:
            return {*(await app.call("take", {"text": Path(__file__)})).artifacts}

    assert asyncio.run(played()) == {one["field"] for one in document["artifacts"]}
