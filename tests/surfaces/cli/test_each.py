"""``abp call --each``: one capability, several calls, one connection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from webapp_fixture import Fixture


def test_each_input_line_is_called_over_one_connection(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"steps": 1}\n\n{"steps": 2, "label": "two"}\n{"steps": 0}\n{"steps": 1}\n')
    opened = len(workbench.handshakes)
    ran = abp("call", workbench.ws_url, "job.run", "--each", file, "-p", "label=all", "-p", "delay=1", "--json")
    assert ran.status == 1 and ran.document["success"] is False and len(workbench.handshakes) == opened + 1
    results = ran.document["results"]
    assert [(one["line"], one["success"]) for one in results] == [(1, True), (3, True), (4, False), (5, True)]
    assert [one["data"]["label"] for one in results if one["success"]] == ["all", "two", "all"]
    assert results[2]["error"]["code"] == "INVALID_PARAMS" and results[2]["cancelled"] is False
    assert "abp: line 4: job.run" in ran.err and "abp: 1 of 4 calls failed" in ran.err

    file.write_text('{"steps": 1}\n{"steps": 2}\n')
    ran = abp("call", workbench.ws_url, "job.run", "--each", file, "-p", "delay=1")
    assert ran.status == 0 and [line for line in ran.out.splitlines() if line.startswith("line")] == [
        "line 1",
        "line 2",
    ]
    assert ran.err == ""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1}\n{"a": }\n', "line 2 is not JSON"),
        (b'{"a": 1}\n[1]\n', "line 2 is not a JSON object of parameters"),
        (b"\n \n", "has no lines"),
        (b"\xff\n", "is not UTF-8 text"),
        (None, "cannot be read (No such file or directory); correct the file name"),
    ],
)
def test_invalid_jobs_file_is_rejected_before_any_call(
    abp: CommandLine, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "jobs.jsonl"
    if content is not None:
        file.write_bytes(content)
    ran = abp("call", "ws://127.0.0.1:9/", "job.run", "--each", file, "--json")
    assert ran.status == 2 and f"--each {file}" in ran.err and problem in ran.err
    assert json.loads(ran.out)["error"]["code"] == "INVALID_PARAMS"
