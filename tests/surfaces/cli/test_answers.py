"""What ``abp call`` prints of an answer: a small one itself, on a terminal for people."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from transports import LocalStore, Router
from transports.surfaces.cli._output import aligned_rows, print_result

#: An ANSI sequence that sets a colour.
COLOUR = re.compile(r"\x1b\[(\d+;)*[39][0-7]m")
ANSWER = {"imported": 5, "note": "é\u202e\x07", "rows": [1, None]}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


async def printed(data: object, stdout: io.StringIO, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What is printed of an answer, and the file that it is kept in."""
    result = await Router(LocalStore(folder)).route(data, capability="import.run")
    monkeypatch.setattr(sys, "stdout", stdout)
    print_result(result)
    return stdout.getvalue(), str(result.artifact().path)


async def test_non_terminal_prints_small_answer_and_measures_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, path = await printed({"imported": 5}, io.StringIO(), tmp_path, monkeypatch)
    assert text == f'{{"imported": 5}}\nOutput saved to file: {path}\n'
    text, path = await printed("x" * 5000, Terminal(), tmp_path, monkeypatch)
    assert text == f"Output saved to file: {path}\nSize: 5002 characters\n"


async def test_terminal_answer_is_indented_coloured_and_sanitized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text, path = await printed(ANSWER, Terminal(), tmp_path, monkeypatch)
    assert COLOUR.search(text)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    shown = json.dumps({**ANSWER, "note": "é\\u202e\\u0007"}, indent=2, ensure_ascii=False).replace("\\\\u", "\\u")
    assert bare == f"{shown}\nOutput saved to file: {path}\n"
    monkeypatch.setenv("NO_COLOR", "1")
    text, path = await printed(ANSWER, Terminal(), tmp_path / "again", monkeypatch)
    assert not COLOUR.search(text)  # bold stays
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == f"{shown}\nOutput saved to file: {path}\n"


def test_aligned_rows_count_cells_and_right_align_numbers_and_clean_text() -> None:
    lines = aligned_rows([("报表.导出", "a report"), ("export", "a file"), ("e\u0301tat", "combined")])
    starts = {cell_len(line[: line.index(text)]) for line, text in zip(lines, ("a rep", "a fi", "comb"), strict=True)}
    assert starts == {cell_len("报表.导出") + 2}
    assert aligned_rows([("a", "1,000", "x\n\x1b[31my"), ("bb", "7", "")], numbers=(1,)) == [
        "a   1,000  x �[31my", "bb      7"
    ]  # fmt: skip
    assert aligned_rows([]) == []
