"""Figures on the terminal."""

from __future__ import annotations

from tests.benchmarks.report import Report, Row, Table

__all__ = ["print_report", "print_row", "print_table"]


def print_row(row: Row) -> None:
    """One figure, at once when it is known."""
    print(f"\n{row.work}\n    against {row.baseline}")
    targets = f" (at least {row.target(row.at_least)}, we want {row.target(row.want)})" if row.at_least else ""
    print(f"    {row.shown}: {row.verdict}{targets}\n    {row.measured}", flush=True)
    if row.explanation:
        print(f"    why: {row.explanation}", flush=True)


def print_table(table: Table) -> None:
    """A table for information."""
    lines = table.lines()
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    print(f"\n{table.title}")
    for line in lines:
        print("    " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def print_report(report: Report) -> None:
    """The end of a run: what falls short."""
    short = [row for row in report.rows if row.short]
    print(f"\n{len(report.rows)} figures in {report.seconds:.0f} s", end="")
    print(f"; {len(short)} short: {'; '.join(row.work for row in short)}" if short else "; none falls short")
    if report.quick:
        print("(--quick: the sizes are not those of the targets)")
