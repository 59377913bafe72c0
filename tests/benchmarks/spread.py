"""How far the figures of several runs lie apart: a section of ``docs/performance.md``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.benchmarks.docs import AFTER_FIGURES, markdown_table
from tests.benchmarks.report import Report, Row

__all__ = ["read_report", "spread", "spread_in", "with_spread"]

_HEADING = "## Spread\n"
_LOAD = "load before the run"
_HEAD = ("work", "against", "lowest", "median", "highest", "at least", "reached")


def read_report(file: Path) -> Report:
    """Return the figures of a run that ``--json`` wrote, without its tables."""
    run = json.loads(file.read_text(encoding="utf-8"))
    rows = [Row(**{name: value for name, value in row.items() if name != "verdict"}) for row in run["rows"]]
    return Report(run["machine"], run["quick"], rows, seconds=run["seconds"])


def spread(runs: Sequence[Report]) -> str:
    """Return the section: one row for each figure, also of those that only some runs measured.

    Raises ``ValueError`` if the runs have no common spread: other machines or versions, or smaller sizes.
    """
    machines = [{name: value for name, value in run.machine.items() if name != _LOAD} for run in runs]
    if any(machine != machines[0] for machine in machines):
        raise ValueError("one run was on another machine, or with other versions")
    if any(run.quick for run in runs):
        raise ValueError("one run was smaller (--quick)")
    measured: dict[tuple[str, str], list[Row]] = {}
    for run in runs:
        for row in run.rows:
            measured.setdefault((row.work, row.baseline), []).append(row)
    where = ", ".join(f"{name} {value}" if name != "system" else value for name, value in machines[0].items())
    loads = sorted((run.machine[_LOAD] for run in runs), key=float)
    return "\n".join(
        [
            _HEADING,
            f"{len(runs)} runs on: {where}; {_LOAD}s {loads[0]} to {loads[-1]}. *Reached* is the number of runs whose",
            "figure was at least what is asked for, of those that measured it.\n",
            *markdown_table(_HEAD, [_line(rows) for rows in measured.values()]),
            "\n",
        ]
    )


def _line(rows: Sequence[Row]) -> list[str]:
    figures = [row.figure for row in rows]
    lowest, middle, highest = (
        replace(rows[-1], figure=figure).shown for figure in (min(figures), median(figures), max(figures))
    )
    least = rows[-1].at_least
    reached = "–" if least is None else f"{sum(not row.short for row in rows)} of {len(rows)}"
    return [rows[-1].work, rows[-1].baseline, lowest, f"**{middle}**", highest, rows[-1].target(least), reached]


def spread_in(document: str) -> str:
    """Return the section of a document, empty if it has none."""
    _, heading, rest = document.partition(_HEADING)
    return heading + rest.partition(AFTER_FIGURES)[0] if heading else ""


def with_spread(document: str, section: str) -> str:
    """Return the document with this section in the place of the one that it has."""
    figures, heading, rest = document.replace(spread_in(document), "").partition(AFTER_FIGURES)
    return figures + section + heading + rest
