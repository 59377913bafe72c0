"""The command in this process, and the reference app for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, in_thread, serving
from tests.support.mcp_over_http import views_server
from webapp_fixture import Fixture


@pytest.fixture
def abp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> CommandLine:
    """``abp`` with an output folder and a state folder of its own."""
    env = {"ABP_OUTPUT_DIR": str(tmp_path / "out"), "XDG_STATE_HOME": str(tmp_path / "state")}
    return CommandLine(env, monkeypatch, capfdbinary)


@pytest.fixture(scope="session")
def workbench() -> Iterator[Fixture]:
    with serving() as fixture:
        yield fixture


@pytest.fixture(scope="session")
def views() -> Iterator[str]:
    """The MCP server with views, over HTTP."""
    with in_thread(views_server()) as target:
        yield target
