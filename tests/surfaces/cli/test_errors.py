"""Errors on stderr: one line each, and the lines of a difference."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import CommandLine
from webapp_fixture import Fixture


def test_the_difference_from_a_recording_keeps_its_lines(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    assert abp("call", workbench.ws_url, "data.json", "-p", "csv=a\n1", "--record", file).status == 0
    ran = abp("call", f"replay:{file}", "data.json", "-p", "csv=\x1b[31mb\n2", "--json")
    message, *difference = ran.err.splitlines()
    assert ran.status == 1 and message.startswith("abp: data.json was not asked for like this in ")
    assert message.endswith("record again if the difference is meant: [NOT_RECORDED]")
    assert '    -    "csv": "a\\n1"' in difference and '    +    "csv": "\\u001b[31mb\\n2"' in difference
    assert all(line.startswith("    ") for line in difference) and len(difference) > 5
    assert ran.document["error"]["details"]["diff"].count("\n") == len(difference) - 1
