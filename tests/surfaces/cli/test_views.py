"""``abp view``: views of MCP servers at the command line, and ``abp capabilities``, which marks their tools."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.command_line import CommandLine
from tests.support.rows import each_row
from webapp_fixture import Fixture


def test_tools_with_views_are_marked_and_view_only_ones_not_listed(abp: CommandLine, views: str) -> None:
    ran = abp("capabilities", views)
    lines = {line.split()[0]: line for line in ran.out.splitlines()[1:]}
    assert ran.status == 0 and "secret" not in lines
    assert lines["board"].endswith("  [view]") and lines["legacy"].endswith("earlier hosts had it. [view]")
    assert lines["model_only"].endswith("Answer agents alone.")
    listed = {one["name"]: one["view"] for one in abp("capabilities", views, "--json").document["capabilities"]}
    assert listed["board"] == "ui://views/board.html" and listed["model_only"] is None and "secret" not in listed
    assert abp("capabilities", views, "board").out.startswith("board [view]\n")


@pytest.mark.browser
def test_view_tools_are_called_in_order_with_their_params(abp: CommandLine, tmp_path: Path, views: str) -> None:
    picture = tmp_path / "view.png"
    calls = ["--call", "echo", "-p", "text=one", "--call", "fails", "--call", "hands", "--call", "echo", "-p", "text=1"]
    ran = abp("view", views, "board", "-p", "n=4", *calls, "--size", "400x300", "--screenshot", picture, "--json")
    document = ran.document
    assert ran.status == 1 and document["success"] is False
    assert document["result"]["data"]["n"] == 4 and len(document["result"]["artifacts"]) == 1
    assert document["view"] == {"name": "Board", "version": "3.1", "uri": "ui://views/board.html", "blank": False}
    assert "echo" in [one["name"] for one in document["tools"]]
    assert [one["capability"] for one in document["calls"]] == ["echo", "fails", "hands", "echo"]
    assert [one["success"] for one in document["calls"]] == [True, False, True, True]
    assert [one["data"] for one in document["calls"] if one["capability"] == "echo"] == [{"text": "one"}, {"text": "1"}]
    assert "no such thing" in document["calls"][1]["error"]["message"] and "fails: no such thing" in ran.err
    (file,) = document["calls"][2]["artifacts"]
    assert Path(file["path"]).read_bytes() == bytes([1, 2, 3])
    assert [one["kind"] for one in document["requests"]] == ["download-file"] and document["files"] == []
    head = picture.read_bytes()[:24]
    assert document["screenshot"] == str(picture) and struct.unpack(">II", head[16:]) == (400, 300)


@pytest.mark.browser
def test_cli_view_prints_summary_passes_theme_and_is_recorded(abp: CommandLine, tmp_path: Path, views: str) -> None:
    recording = tmp_path / "view.jsonl"
    options = ("told", "--theme", "dark", "--locale", "de-DE", "--csp", "loose", "--call", "picture")
    ran = abp("view", views, *options, "--record", recording)
    assert ran.status == 0 and "view: Board 3.1 (ui://views/told.html)\n" in ran.out
    assert "\ntools:\n  echo\n" in ran.out and "\npicture\nFile saved: " in ran.out
    (log,) = [line for line in ran.out.splitlines() if line.startswith("  log  ")]
    assert '"theme": "dark"' in log
    replayed = abp("view", f"replay:{recording}", *options)
    assert replayed.status == 0 and "view: Board 3.1 (ui://views/told.html)\n" in replayed.out


@pytest.mark.slow
@pytest.mark.browser
def test_view_command_explains_blank_view(abp: CommandLine, views: str) -> None:
    ran = abp("view", views, "hollow")
    assert ran.status == 0 and "the view shows nothing: its policy stops it: " in ran.err and "script-src" in ran.err
    ran = abp("view", views, "fails", "--timeout", "6", "--json")
    assert ran.status == 1 and ran.document["error"]["code"] == "NOT_SUPPORTED"
    assert "its script failed: TypeError: " in ran.err and "(line 3)" in ran.err


def test_replay_of_call_without_view_says_how_to_record_it(abp: CommandLine, tmp_path: Path, views: str) -> None:
    recording = tmp_path / "call.jsonl"
    assert abp("call", views, "board", "--record", recording).status == 0
    ran = abp("view", f"replay:{recording}", "board")
    assert ran.status == 1 and "was recorded without its view; record again, with `abp view --record`" in ran.err


@each_row(
    ("args", "said"),
    [
        (["model_only"], "'model_only' has no view; tools with views: board, "),
        (["bord"], "did you mean board?"),
        (["board", "--size", "9x"], "is not a size in pixels of the form WIDTHxHEIGHT"),
        (["board", "--host", "nobody"], "unknown host 'nobody'; use one of spec, "),
        (["board", "--csp", "none"], "'declared', 'spec', 'loose'"),
        (["board", "--screenshot", "/nonexistent/a.png"], "/nonexistent/a.png cannot be written"),
        (["board", "--record", "/nonexistent/a.jsonl"], "/nonexistent/a.jsonl cannot be written"),
        (["board", "--call", "echo", "-p", "text"], "'text' is not of the form -p KEY=VALUE"),
    ],
)
def test_usage_error_is_reported(abp: CommandLine, views: str, args: list[str], said: str) -> None:
    ran = abp("view", views, *args)
    assert ran.status in (1, 2) and said in ran.err and ran.out == ""


def test_non_mcp_app_has_no_views(abp: CommandLine, workbench: Fixture) -> None:
    ran = abp("view", workbench.ws_url, "data.json")
    assert ran.status == 2 and "views belong to the tools of MCP servers" in ran.err
