"""The table of ``docs/performance.md`` is written from runs that were kept as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as program
from tests.benchmarks.docs import DOCUMENT, with_figures
from tests.benchmarks.filled import SESSIONS, filled_store
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Report, Row
from transports import LocalStore
from transports.artifacts import Scope

CALL = Row("a small call", "a bare call", 0.9, "×", "1 ms against 0.9 ms", at_least=0.85)
MEMORY = Row("memory", "nothing", 12.0, "MB", "12 MB stay", at_least=16, want=8)
OPENING = Row("a session", "bare Playwright", 1.0, "×", "1 s against 1 s")
MACHINE = {"system": "Linux, 2 cores", "Python": "3.11.7", "load before the run": "0.2"}


def run(*rows: Row, load: str = "0.2") -> Report:
    return Report(MACHINE | {"load before the run": load}, quick=False, rows=list(rows), seconds=60.0)


def table(document: str) -> list[str]:
    figures = document.partition("<!-- end -->")[0]
    return [line for line in figures.splitlines() if line.startswith("| ")][2:]


def test_benchmark_table_shows_median_and_extremes() -> None:
    runs = [
        run(replace(CALL, figure=0.91), replace(MEMORY, figure=20.0)),
        run(replace(CALL, figure=0.84), OPENING, load="1.3"),
        run(replace(MEMORY, figure=10.0), replace(CALL, figure=0.87), load="0.1"),
    ]
    document = DOCUMENT.read_text(encoding="utf-8")
    written = with_figures(document, runs)
    assert "3 runs on Linux, 2 cores, Python 3.11.7; load before the runs 0.1 to 1.3." in written
    assert table(written) == [
        "| a small call | a bare call | 0.87× | 0.84×–0.91× | 0.85× |",
        "| memory | nothing | 10.0 MB | 10.0 MB–20.0 MB | < 16 MB |",
    ]
    assert with_figures(written, runs) == written
    assert written.partition("<!-- end -->")[2] == document.partition("<!-- end -->")[2] != ""


def test_benchmark_table_marks_shortfalls_bold() -> None:
    runs = [run(replace(CALL, figure=0.8), replace(MEMORY, wrong="two files differ"))]
    short, wrong = table(with_figures(DOCUMENT.read_text(encoding="utf-8"), runs))
    assert "| **0.80×** |" in short and "| **WRONG: two files differ** |" in wrong


def test_incomparable_benchmark_runs_are_rejected() -> None:
    with pytest.raises(ValueError, match="another machine"):
        with_figures("", [run(CALL), Report(MACHINE | {"Python": "3.14.0"}, quick=False, rows=[CALL])])
    with pytest.raises(ValueError, match="--quick"):
        with_figures("", [run(CALL), Report(MACHINE, quick=True, rows=[CALL])])


def test_docs_program_reads_runs_and_writes_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for figure in (0.8, 0.9):
        files.append(tmp_path / f"{figure}.json")
        files[-1].write_text(json.dumps(run(replace(CALL, figure=figure)).as_dict()), encoding="utf-8")
    page = tmp_path / "performance.md"
    page.write_text(DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(program, "DOCUMENT", page)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--write-docs", *map(str, files)])
    assert program.main() == 0
    (line,) = table(page.read_text(encoding="utf-8"))
    assert line == "| a small call | a bare call | **0.80×** | 0.80×–0.90× | 0.85× |"


@pytest.mark.slow
async def test_benchmark_store_is_intact_and_built_once(tmp_path: Path) -> None:
    bench = Bench("", None, tmp_path / "one", quick=True, shared=tmp_path)
    root = await filled_store(bench, 2 * SESSIONS)
    async with LocalStore(root) as store:
        refs = await store.list()
        assert len(refs) == 2 * SESSIONS
        assert [len(await store.get(ref.id) or b"") for ref in refs] == [ref.size_bytes for ref in refs]
        assert not (await store.fsck()).problems
        assert len(await store.scoped(Scope(session="session-7")).list()) == 2
        await store.delete(refs[0].id)
        assert await filled_store(Bench("", None, tmp_path / "two", quick=True, shared=tmp_path), 2 * SESSIONS) == root
        assert len(await store.list()) == 2 * SESSIONS - 1


def test_browserless_measurements_are_registered() -> None:
    assert program._MEASUREMENTS.keys() > program.WITHOUT_BROWSER
