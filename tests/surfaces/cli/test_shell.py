"""``abp shell``: lines, completion, history, and Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.support.command_line import CTRL_C, CTRL_D, ENTER, TAB, CommandLine, Terminal
from tests.support.rows import each_row
from transports import BinaryData, Capability, UsageError
from transports.surfaces.cli import main
from transports.surfaces.cli._shell import COMMANDS, parse_line
from transports.surfaces.cli._terminal import LineCompleter
from webapp_fixture import Fixture


@each_row(
    ("line", "params"),
    [
        ("x", {}),
        ("x a=1 b=two c=null", {"a": 1, "b": "two", "c": None}),
        ('x html="<h1>a b</h1>" n=2', {"html": "<h1>a b</h1>", "n": 2}),
        ("x html='<p class=\"a b\">' n=2", {"html": '<p class="a b">', "n": 2}),
        ("x text='1'", {"text": "1"}),
        (
            'x rows=[{"a": "b c"}, 2]   deep.er.key={"a": 1}',
            {"rows": [{"a": "b c"}, 2], "deep": {"er": {"key": {"a": 1}}}},
        ),
        ("x url=http://a/?b=c@d e=", {"url": "http://a/?b=c@d", "e": ""}),
        ('x {"a": {"b": [1, 2.5]}} ', {"a": {"b": [1, 2.5]}}),
    ],
)
def test_shell_line_is_parsed_into_capability_and_params(line: str, params: object) -> None:
    assert parse_line(line) == ("x", params)


def test_shell_line_accepts_file_parameter(tmp_path: Path) -> None:
    file = tmp_path / "a b.txt"
    file.write_text("content")
    for line in (f"x deep.file@'{file}' n=1", f'x deep.file@"{file}" n=1'):
        _, params = parse_line(line)
        assert params["n"] == 1 and isinstance(params["deep"], dict)
        assert isinstance(params["deep"]["file"], BinaryData)


@each_row(
    ("line", "message"),
    [
        ("x a", "'a' is not of the form KEY=VALUE or KEY@FILE"),
        ("x a..b=1", "is not of the form KEY=VALUE"),
        ("x a=1 a=2", "'a' is given twice"),
        ("x a='b", "the quote ' does not end"),
        ("x a='b'c", "something follows it without a space"),
        ('x a="b', "is not JSON"),
        ("x a=[1]2", "'2' follows the value without a space"),
        ("x {a}", "this is not JSON"),
        ("x a@/dev/null", "/dev/null is not a regular file"),
    ],
)
def test_invalid_shell_line_is_rejected(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_line(line)
    assert message in caught.value.message


LISTED: list[dict[str, Any]] = [
    {
        "name": "export.pdf",
        "description": "A PDF",
        "inputSchema": {
            "properties": {
                "html": {"type": "string"},
                "format": {"enum": ["A4", "A5", "US Letter"]},
                "options": {"properties": {"landscape": {"type": "boolean"}, "scale": {}}},
                "broken": 1,
            }
        },
    },
    {"name": "export.png", "inputSchema": {"properties": [1]}},
    {"name": "help.me"},
]
KNOWN = {one["name"]: Capability.model_validate(one) for one in LISTED}


@each_row(
    ("typed", "completed"),
    [
        ("", ["exit", "export.pdf", "export.png", "help", "help.me", "quit"]),
        ("exp", ["export.pdf", "export.png"]),
        ("help exp", ["export.pdf", "export.png"]),
        ("export.pdf ", ["html=", "format=", "options.", "broken="]),
        ("export.pdf html=a b f", ["format="]),
        ("export.pdf html=a ", ["format=", "options.", "broken="]),
        ("export.pdf format=", ["A4", "A5", '"US Letter"']),
        ("export.pdf format=A4 options.", ["landscape=", "scale="]),
        ("export.pdf options.landscape=t", ["true"]),
        ("export.pdf html.x=", []),
        ("export.png ", []),
        ("nothing ", []),
    ],
)
def test_tab_completes_capabilities_parameters_and_values(typed: str, completed: list[str]) -> None:
    found = LineCompleter(lambda: KNOWN, COMMANDS).get_completions(Document(typed), CompleteEvent())
    assert [one.text for one in found] == completed


def test_tab_completes_paths(tmp_path: Path) -> None:
    (tmp_path / "photo.png").touch()
    typed = Document(f"export.pdf html@{tmp_path}/pho")
    assert [one.text for one in LineCompleter(lambda: KNOWN, COMMANDS).get_completions(typed, CompleteEvent())] == [
        "to.png"
    ]


@pytest.mark.load
def test_shell_makes_calls_at_terminal(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    def person(terminal: Terminal) -> None:
        terminal.wait_for("Workbench has ")
        terminal.answer("abp> ", 'data.json csv="a,b\\n1,2"')
        terminal.answer("abp> ", "data.josn")
        terminal.wait_for("did you mean data.json")
        terminal.answer("abp> ", "half a line", end=CTRL_C)
        terminal.answer("abp> ", "job.wait")
        # what a terminal makes of Ctrl-C while nobody reads keys
        terminal.interrupt("job.wait: cancelled", lambda: os.kill(os.getpid(), signal.SIGINT))
        terminal.answer("abp> ", "files.clear")
        terminal.answer("[y/N]: ", "y")
        terminal.answer("abp> ", "job.run label=hunter2 token=hunter2 delay=1")
        terminal.answer("abp> ", " job.run label=hunter2 delay=1")
        terminal.answer("abp> ", "help data.js", end=TAB)
        terminal.wait_for("help data.jsn")  # of what Tab adds, a dumb terminal shows the last character
        terminal.press(ENTER)
        terminal.answer("abp> ", "", end=CTRL_D)

    ran = abp.at_terminal("shell", workbench.ws_url, script=person)
    assert ran.status == 0 and ran.err.count("abp> ") == 9
    assert ran.out.count("Output saved to file: ") == 4 and "csv        string  yes              CSV text" in ran.out
    history = tmp_path / "state" / "abp-transports" / "shell-history"
    kept = [line[1:] for line in history.read_text().splitlines() if line.startswith("+")]
    assert kept == ['data.json csv="a,b\\n1,2"', "data.josn", "job.wait", "files.clear", "help data.json"]
    assert history.stat().st_mode & 0o777 == 0o600


def test_shell_runs_lines_from_stdin(abp: CommandLine, workbench: Fixture) -> None:
    lines = "job.run steps=1 delay=1\n\nhelp\nhelp nothing.json\njob.run steps=2 delay=1\nexit\njob.wait\n"
    ran = abp("shell", workbench.ws_url, stdin=lines)
    assert ran.status == 1 and ran.out.count("Output saved to file: ") == 2 and "KEY@FILE" in ran.out
    assert "exit, quit" in ran.out
    assert ran.err.count("\n") == 1 and "has no 'nothing.json'" in ran.err
    ran = abp("shell", workbench.ws_url, stdin="\ufeffjob.run steps=1 delay=1 label=a\u2028b")
    assert (ran.status, ran.err) == (0, ""), "a byte order mark, a text with a line separator, and no final line break"
    ran = abp("shell", workbench.ws_url, stdin="quit\nexport.nothing\n")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_shell_without_stdin_is_a_usage_error(
    workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as after <&-
    assert main(["shell", workbench.ws_url, "--out", str(tmp_path)]) == 2
    assert "stdin is closed" in capsys.readouterr().err
