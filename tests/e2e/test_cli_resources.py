"""``abp resources``, and ``abp call`` of an MCP server, as people and programs run them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, in_thread
from tests.support.mcp_over_http import tableau_server
from tests.support.mcp_servers.tableau import PDF, VIEW
from tests.surfaces.cli.conftest import abp as abp


@pytest.fixture(scope="module")
def tableau() -> Iterator[str]:
    """The server with workbooks, over HTTP."""
    with in_thread(tableau_server()) as served:
        yield served


def document(abp: CommandLine, *args: object) -> Any:
    done = abp(*args, "--json")
    assert done.status == 0, done.err
    return done.document


def test_cli_lists_and_reads_resources_and_calls_mcp_server_like_any_app(
    abp: CommandLine, tableau: str, tmp_path: Path
) -> None:
    listed = document(abp, "resources", tableau)
    assert (len(listed["resources"]), listed["resources"][0]["uri"]) == (26, VIEW)
    assert listed["templates"][0]["uriTemplate"] == "tableau://notes/{number}"
    lines = abp("resources", tableau).out.splitlines()
    assert lines[0].endswith("has 26 resources and 3 templates of addresses")
    assert lines[-4] == f"tableau://files/7.pdf       application/pdf  {len(PDF):,} bytes  7.pdf"

    out = ("--out", tmp_path)
    uris = ["--read", "tableau://files/7.pdf", "--read", "tableau://notes/1"]
    pdf, note = document(abp, "resources", tableau, *uris, *out)["results"]
    (artifact,) = pdf["artifacts"]
    assert hashlib.sha256(Path(artifact["path"]).read_bytes()).hexdigest() == hashlib.sha256(PDF).hexdigest()
    assert note["data"]["contents"][0]["text"] == "This is tableau://notes/1"
    done = abp("resources", tableau, "--read", "tableau://views/gone")
    assert (done.status, done.out) == (1, "") and "not found" in done.err

    called = document(abp, "call", tableau, "download_workbook", "-p", "id=a", *out)
    assert (called["transport"], called["artifacts"][0]["filename"]) == ("mcp", "Sales Dashboard.pdf")
    names = [one["name"] for one in document(abp, "capabilities", tableau)["capabilities"]]
    assert {"download_workbook", "resources.read"} <= set(names)
