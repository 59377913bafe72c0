"""``abp capabilities URL NAME`` and ``help NAME`` of the shell: a capability, its parameters, a call that works."""

from __future__ import annotations

import shlex

import pytest

from tests.support.command_line import CommandLine
from tests.support.rows import each_row
from transports.protocol._declarations import AppInfo, Capability
from transports.surfaces.cli._calls import print_capabilities, print_capability
from webapp_fixture import Fixture


def test_example_shows_file_option_and_transport_but_no_secret(abp: CommandLine, workbench: Fixture) -> None:
    url = workbench.ws_url.replace("://", "://ann:s3cret@")
    ran = abp("capabilities", url, "file.digest", "--transport", "websocket")
    assert " file " in ran.out and "yes" in ran.out and "s3cret" not in ran.out
    assert ran.out.endswith(
        f"example: abp call --transport websocket {workbench.ws_url} file.digest --file file=FILE.png\n"
    )


@pytest.mark.parametrize(
    ("app", "head"),
    [
        (AppInfo(id="dev.demo", name="Demo", version="1.0"), "Demo 1.0 (dev.demo)"),
        (AppInfo(id="dev.demo", name="Demo"), "Demo (dev.demo)"),
        (AppInfo(id="127.0.0.1:80", name="Table", version="0"), "Table (127.0.0.1:80)"),
        (AppInfo(name="Demo", version="1.0"), "Demo 1.0"),
    ],
)
def test_capability_list_has_no_empty_columns_or_overlong_lines(
    app: AppInfo, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [
        Capability(name="bare"),
        Capability(name="bare.old", deprecated=True),
        Capability(name="long", description="word " * 200),
    ]
    print_capabilities(app, listed)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [head, "  bare", "  bare.old  [deprecated]"]
    assert lines[3].startswith("  long      word word") and lines[3].endswith("…") and len(lines[3]) <= 140
    print_capability(listed[2])
    assert " ".join(["word"] * 200) in capsys.readouterr().out  # alone it is whole


def test_unknown_name_error_suggests_nearest(abp: CommandLine, workbench: Fixture) -> None:
    ran = abp("capabilities", workbench.ws_url, "export.htm")
    assert ran.status == 1 and "did you mean export.html" in ran.err and ran.out == ""


def test_any_schema_prints_a_bounded_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The schema is the app's: whatever it holds, the table is finite and has no effect on the terminal."""
    deep: dict[str, object] = {}
    for _ in range(70):
        deep = {"type": "object", "properties": {f"p{n}": deep for n in range(9)}, "required": ["p1", 7]}
    for schema in (deep, {"properties": {"a": 7, "b\x1b[31m": {"type": [1, None], "default": "x" * 500}}}):
        print_capability(Capability.model_validate({"name": "wide", "inputSchema": schema}))
        text = capsys.readouterr().out
        assert text.count("\n") < 120 and "\x1b" not in text and "example: wide" in text
    assert '"xxx' in text and "1 | None" in text
    print_capability(Capability.model_validate({"name": "plain", "deprecated": True}))
    assert capsys.readouterr().out == "plain [deprecated]\nIt declares no parameters.\n\nexample: plain\n"


@each_row("name", ["=ls", "='; id; '", "it's", "a b", "\\'$(id)\"\\'", "=\\'", "a \\"])
def test_name_of_capability_is_one_word_of_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_capability(Capability.model_validate({"name": name}), ["abp", "call", "ws://a/"])
    words = capsys.readouterr().out.splitlines()[-1].removeprefix("example: abp call ws://a/ ")
    assert shlex.split(words) == [name] and words.startswith(("'", '"'))
    assert "\\'" not in words, "fish takes it for a quote within quotes"


def test_short_enum_lists_choices_and_long_one_gives_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short, long = [f"choice-{n}" for n in range(12)], [f"choice-{n}" for n in range(500)]
    schema = {"properties": {"few": {"enum": short}, "many": {"enum": long}}}
    print_capability(Capability.model_validate({"name": "pick", "inputSchema": schema}))
    few, many = (line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(("few", "many")))
    assert " | ".join(short) in few and "…" not in few
    assert "choice-0 | choice-1" in many and "… (500)" in many and len(many) < 400
