"""Parameters that are given after ``-p``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings, strategies as st

from tests.support.command_line import CommandLine
from tests.support.rows import each_row
from transports.errors import UsageError
from transports.protocol._plain_text import plain_line
from transports.surfaces.cli import _options as module
from transports.surfaces.cli._options import ParamOptions, Params, example_words
from transports.surfaces.cli._shell import parse_line
from webapp_fixture import Fixture


def test_parameter_value_is_read_from_file(tmp_path: Path) -> None:
    page, rows = tmp_path / "page.html", tmp_path / "rows.json"
    page.write_text("<h1>Tea\n</h1>\n", encoding="utf-8-sig")
    rows.write_text('[{"product": "tea"}]')
    pairs = (f"html=@{page}", f"deep.rows=@{rows}", "by=@@ann", "mail=a@b")
    expected = {"html": "<h1>Tea\n</h1>\n", "deep": {"rows": [{"product": "tea"}]}, "by": "@ann", "mail": "a@b"}
    assert ParamOptions(None, [*pairs]).read() == expected
    assert parse_line(f"x {' '.join(pairs)}") == ("x", expected)
    assert parse_line("x by='@ann'") == ("x", {"by": "@ann"})


def test_params_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(b'\xef\xbb\xbf{"from": "file", "nested": {"kept": [1, 2.5, null]}}')
    pairs = ["int=7", "float=1.50", "yes=true", "none=null", "text=7 apples", 'quoted="7"', "empty=", "eq=a=b"]
    pairs += ['list=[1,{"a":"\u4e16"}]', "nested.deep.er=1", "nested.deep.est=-", "from=pair"]
    numbers = {"int": 7, "float": 1.5, "yes": True, "none": None, "list": [1, {"a": "\u4e16"}]}
    texts = {"from": "pair", "text": "7 apples", "quoted": "7", "empty": "", "eq": "a=b"}
    nested = {"kept": [1, 2.5, None], "deep": {"er": 1, "est": "-"}}
    assert ParamOptions(f"@{file}", pairs).read() == {**numbers, **texts, "nested": nested}


def test_parameter_file_without_valid_text_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_TEXT", 4)
    (tmp_path / "whole").write_bytes(b"1234")
    (tmp_path / "large").write_bytes(b"12345")
    (tmp_path / "binary").write_bytes(b"\xff")
    assert ParamOptions(None, [f"x=@{tmp_path}/whole"]).read() == {"x": 1234}
    for name, message in {
        "large": "is larger than 4 bytes; give a file with --file",
        "binary": "is not UTF-8 text",
        "\0": "cannot be read (embedded null",
        "gone": "cannot be read (No such file or directory); correct the file name, or write @@ for a text",
    }.items():
        with pytest.raises(UsageError) as caught:
            ParamOptions(None, [f"x=@{tmp_path}/{name}"]).read()
        assert caught.value.message.startswith(f"-p x=@{tmp_path}/{name}") and message in caught.value.message


def test_missing_file_error_is_the_same_for_each_option(abp: CommandLine, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for option, value in (("--params", f"@{gone}"), ("-p", f"x=@{gone}"), ("--file", f"x={gone}"), ("--each", gone)):
        ran = abp("call", "ws://127.0.0.1:9/", "x", option, value)
        assert ran.status == 2 and f"abp: {option} {value}: " in ran.err, ran
        assert "cannot be read (No such file or directory); correct the " in ran.err


#: Without the files of this user's configuration.
SHELLS = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


def read_back(words: list[str]) -> Params:
    """What ``abp call`` reads of the words of an example."""
    if words[:1] == ["--params"]:
        return ParamOptions(words[1]).read()
    assert words[::2] == ["-p"] * (len(words) // 2)
    return ParamOptions(None, words[1::2]).read()


@pytest.mark.load
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
@settings(max_examples=8)
@example(params={"a": "one\ntwo"})
@example(params={"a": "it's \\\\ a \\' b \\"})
@example(params={"a": "a  b\t\x7f\u202e\u2028", "=x": "~ $HOME `id` !!"})
@example(params={"a.b": 1, "c": {"d\n": ["\\", "'", '"']}})
@example(params={"a": "@ann", "b": "@@", "c": "12", "d": "null", "e": "", " ": " x"})
@given(params=st.dictionaries(st.text(min_size=1), VALUES, max_size=4))
def test_printed_example_survives_shell_quoting(params: dict[str, object], shell: str) -> None:
    with mock.patch.object(module, "_MAX_EXAMPLE", 1_000_000):  # no value is read from a file
        line = " ".join(example_words(params))
    assert plain_line(line) == line
    if "\\u0000" in line:
        return  # no program can be given it
    done = subprocess.run(
        [shell, *SHELLS[shell], "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, timeout=30
    )
    words = [] if not params else done.stdout.decode().split("\0")[:-1]
    assert read_back(words) == params


def test_long_example_value_is_read_from_file() -> None:
    assert example_words({"html": "x" * 2000}) == ["-p", "html=" + "x" * 2000]
    assert example_words({"html": "x" * 2001, "rows": [7] * 999}) == ["-p", "html=@html.txt", "-p", "rows=@rows.json"]


def test_schema_decides_whether_param_is_text(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("[1]")
    text, either = {"type": "string"}, {"type": ["string", "integer"]}
    schema = {
        "$defs": {"text": text},
        "properties": {
            "phone": {"$ref": "#/$defs/text"},
            "deep": {"properties": {"id": text, "n": {"type": "integer"}}},
            "either": either,
            "page": text,
            "maybe": {"anyOf": [text, {"type": "null"}]},
            "count": {"type": "integer"},
        },
        "required": ["gone", "lost", "absent", "missing", "left", "out"],
    }
    pairs = ["phone=1234567890", "deep.id=1e5", "deep.n=7", "either=12", f"page=@{page}", "maybe=null", "count=x"]
    given = ParamOptions('{"other": 1}', pairs).read()
    assert given.fit_to(schema) == {
        "other": 1,
        "phone": "1234567890",
        "deep": {"id": "1e5", "n": 7},
        "either": 12,
        "page": "[1]",
        "maybe": None,
        "count": "x",
    }
    assert given["phone"] == 1234567890 and given.fit_to({}) == given
    assert ParamOptions('{"phone": 1}').read().fit_to(schema) == {"phone": 1}  # --params is JSON


def test_text_params_stay_text_in_every_calling_command(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    job = (workbench.ws_url, "job.run", "-p", "steps=1", "-p", "delay=1", "-p", "label=2026")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"steps": 2}\n')
    assert abp("call", *job, "--out", tmp_path / "out").status == 0
    assert abp("call", *job, "--each", lines, "--out", tmp_path / "out").status == 0
    shell = abp("shell", workbench.ws_url, "--out", tmp_path / "out", stdin="job.run steps=1 delay=1 label=2026\n")
    assert shell.status == 0, shell.err


def test_all_parameter_errors_are_reported_at_once(abp: CommandLine, workbench: Fixture) -> None:
    ran = abp("call", workbench.ws_url, "job.run", "-p", "steps=many", "-p", "delay=[]", "-p", "label={}", "--json")
    assert ran.status == 2 and ran.document["error"]["code"] == "INVALID_PARAMS"
    for name in ("steps", "delay"):
        assert f"params.{name}: " in str(ran), ran
    assert "params.label" not in str(ran)  # which is text


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
    assert [line for line in ran.out.splitlines() if line.startswith("line")] == ["line 1", "line 2"]
    assert (ran.status, ran.err) == (0, "")


@each_row(
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
    file = tmp_path / f"jobs-{problem[:12]}.jsonl"
    if content is not None:
        file.write_bytes(content)
    ran = abp("call", "ws://127.0.0.1:9/", "job.run", "--each", file, "--json")
    assert ran.status == 2 and f"--each {file}" in ran.err and problem in ran.err
    assert json.loads(ran.out)["error"]["code"] == "INVALID_PARAMS"
