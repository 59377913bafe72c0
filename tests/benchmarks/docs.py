"""The table of ``docs/performance.md``, written from runs that ``--json`` kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.report import Report, Row

__all__ = ["DOCUMENT", "read_report", "with_figures"]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
_BEGIN, _END = "<!-- figures: python -m tests.benchmarks --write-docs -->\n", "<!-- end -->\n"
_HEAD = "| work | against | figure | all runs | at least |\n| --- | --- | --- | --- | --- |"
_LOAD = "load before the run"


def read_report(file: Path) -> Report:
    """Return the figures of a run."""
    run = json.loads(file.read_text(encoding="utf-8"))
    rows = [Row(**{name: value for name, value in row.items() if name != "verdict"}) for row in run["rows"]]
    return Report(run["machine"], run["quick"], rows, seconds=run["seconds"])


def with_figures(document: str, runs: Sequence[Report]) -> str:
    """Return the document with the median of each figure, and the lowest and highest of all runs.

    Figures without a target are left out. Raise ``ValueError`` if the runs cannot be compared.
    """
    machines = [{name: value for name, value in run.machine.items() if name != _LOAD} for run in runs]
    if any(machine != machines[0] for machine in machines):
        raise ValueError("one run was on another machine, or with other versions")
    if any(run.quick for run in runs):
        raise ValueError("one run was smaller (--quick)")
    measured: dict[tuple[str, str], list[Row]] = {}
    for run in runs:
        for row in run.rows:
            if row.at_least is not None:
                measured.setdefault((row.work, row.baseline), []).append(row)
    loads = sorted((run.machine[_LOAD] for run in runs), key=float)
    machine = ", ".join(value if name == "system" else f"{name} {value}" for name, value in machines[0].items())
    where = f"{len(runs)} runs on {machine}; load before the runs {loads[0]} to {loads[-1]}."
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join([where, "", _HEAD, *map(_line, measured.values())])
    return f"{before}{_BEGIN}{table}\n{_END}{after}"


def _line(rows: Sequence[Row]) -> str:
    by_figure = sorted(rows, key=lambda row: row.figure)
    median = by_figure[(len(rows) - 1) // 2]
    lowest, highest = by_figure[0].shown, by_figure[-1].shown
    figure = median.shown
    for row in rows:
        if row.wrong:
            figure = f"WRONG: {row.wrong}"
            median = row
    if median.short:
        figure = f"**{figure}**"
    return f"| {median.work} | {median.baseline} | {figure} | {lowest}–{highest} | {median.target(median.at_least)} |"
