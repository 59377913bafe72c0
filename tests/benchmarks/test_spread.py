"""The spread of several runs, and the document that keeps it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as program
from tests.benchmarks.docs import document
from tests.benchmarks.report import Report, Row
from tests.benchmarks.spread import spread, spread_in, with_spread

CALL = Row("a small call", "a bare call", 0.9, "×", "1 ms against 0.9 ms", at_least=0.85)
MEMORY = Row("memory", "nothing", 12.0, "MB", "12 MB stay", at_least=16, want=8)
OPENING = Row("a session", "bare Playwright", 1.0, "×", "1 s against 1 s")
FRAME = Row("the longest frame", "a bare page", 33.0, "ms", "against 17 ms", at_least=50, want=50)
MACHINE = {"system": "Linux, 2 cores", "Python": "3.11.7", "load before the run": "0.2"}


def run(*rows: Row, load: str = "0.2") -> Report:
    return Report(MACHINE | {"load before the run": load}, quick=False, rows=list(rows), seconds=60.0)


def figures(row: Row, *values: float) -> list[Row]:
    return [replace(row, figure=value) for value in values]


def test_a_spread_has_a_row_for_each_figure_and_names_its_machine() -> None:
    calls, memories = figures(CALL, 0.91, 0.84, 0.87), figures(MEMORY, 20.0, 10.0)
    frames = figures(FRAME, 33.0, 51.0)
    runs = [
        run(calls[0], memories[0]),
        run(calls[1], OPENING, load="1.3"),
        run(memories[1], calls[2], *frames, load="0.1"),
    ]
    words = spread(runs)
    assert "3 runs on: Linux, 2 cores, Python 3.11.7; load before the runs 0.1 to 1.3." in words
    assert [line for line in words.splitlines() if line.startswith("| ")] == [
        "| work | against | lowest | median | highest | at least | reached |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| a small call | a bare call | 0.84× | **0.87×** | 0.91× | 0.85× | 2 of 3 |",
        "| memory | nothing | 10.0 MB | **15.0 MB** | 20.0 MB | < 16 MB | 1 of 2 |",
        "| a session | bare Playwright | 1.00× | **1.00×** | 1.00× | – | – |",
        "| the longest frame | a bare page | 33.0 ms | **42.0 ms** | 51.0 ms | < 50 ms | 1 of 2 |",
    ]


def test_a_run_with_wrong_content_reaches_nothing() -> None:
    assert "| 1 of 2 |" in spread([run(CALL), run(replace(CALL, wrong="two answers differ"))])


def test_runs_of_different_machines_have_no_common_spread() -> None:
    with pytest.raises(ValueError, match="another machine"):
        spread([run(CALL), Report(MACHINE | {"Python": "3.14.0"}, quick=False, rows=[CALL])])
    with pytest.raises(ValueError, match="--quick"):
        spread([run(CALL), Report(MACHINE, quick=True, rows=[CALL])])


def test_a_document_keeps_the_spread_when_it_is_written_again() -> None:
    plain = document(run(CALL))
    assert spread_in(plain) == ""
    first, second = spread([run(CALL)]), spread([run(CALL), run(CALL)])
    once = with_spread(plain, first)
    assert spread_in(once) == first
    assert once.index("## Nothing falls short") < once.index(first) < once.index("## Tried")
    assert once.replace(first, "") == plain
    assert with_spread(once, second) == once.replace(first, second)
    assert with_spread(document(run(OPENING)), spread_in(once)).count("## Spread\n") == 1


def test_the_program_reads_the_figures_that_runs_have_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for name, row in zip("ab", figures(CALL, 0.8, 0.9), strict=True):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(run(row).as_dict()), encoding="utf-8")
    written = tmp_path / "performance.md"
    written.write_text(document(run(CALL)), encoding="utf-8")
    monkeypatch.setattr(program, "DOCUMENT", written)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--spread", *map(str, files)])
    assert program.main() == 0
    assert "| 0.80× | **0.85×** | 0.90× | 0.85× | 1 of 2 |" in spread_in(written.read_text(encoding="utf-8"))
