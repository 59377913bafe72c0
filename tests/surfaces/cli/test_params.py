"""Parameters that are given after ``-p``."""

from __future__ import annotations

from pathlib import Path

import pytest

from transports.errors import UsageError
from transports.protocol import Capability
from transports.surfaces.cli import _params as params
from transports.surfaces.cli._calls import print_capability
from transports.surfaces.cli._params import read_params
from transports.surfaces.cli._shell import parse_line


def test_a_value_is_read_from_a_file(tmp_path: Path) -> None:
    page, rows = tmp_path / "page.html", tmp_path / "rows.json"
    page.write_text("<h1>Tea\n</h1>\n", encoding="utf-8-sig")
    rows.write_text('[{"product": "tea"}]')
    pairs = (f"html=@{page}", f"deep.rows=@{rows}", "by=@@ann", "mail=a@b")
    expected = {"html": "<h1>Tea\n</h1>\n", "deep": {"rows": [{"product": "tea"}]}, "by": "@ann", "mail": "a@b"}
    assert read_params(None, pairs, ()) == expected
    assert parse_line(f"x {' '.join(pairs)}") == ("x", expected)
    assert parse_line("x by='@ann'") == ("x", {"by": "@ann"})


def test_a_file_that_gives_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "_MAX_TEXT", 4)
    (tmp_path / "whole").write_bytes(b"1234")
    (tmp_path / "large").write_bytes(b"12345")
    (tmp_path / "binary").write_bytes(b"\xff")
    assert read_params(None, [f"x=@{tmp_path}/whole"], ()) == {"x": 1234}
    for name, message in {
        "large": "is larger than 4 bytes; give a file with --file",
        "binary": "is not UTF-8 text",
        "\0": "cannot be read (embedded null",
        "gone": "cannot be read (No such file or directory); correct the file name, or write @@ for a text",
    }.items():
        with pytest.raises(UsageError) as caught:
            read_params(None, [f"x=@{tmp_path}/{name}"], ())
        assert caught.value.message.startswith(f"-p x=@{tmp_path}/{name}") and message in caught.value.message


def test_the_example_of_a_capability_gives_a_text_that_begins_with_at_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema: dict[str, object] = {"properties": {"by": {"type": "string", "examples": ["@ann"]}}, "required": ["by"]}
    print_capability(Capability(name="notes.add", input_schema=schema), ["abp", "call", "x"])
    assert capsys.readouterr().out.endswith("notes.add -p 'by=\"@ann\"'\n")
    assert read_params(None, ['by="@ann"'], ()) == {"by": "@ann"}
