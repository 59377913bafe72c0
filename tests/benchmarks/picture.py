"""The figures as a picture: ratios with their targets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape

from tests.benchmarks.report import Report, Row

__all__ = ["COLOURS", "line", "picture", "text"]

_WIDTH = 860
_LEFT, _RIGHT = 330, 780  # where bars begin and end
COLOURS = ("#1a66cc", "#d9822b", "#2f8f4e", "#8a4fbf")


def picture(report: Report) -> str:
    """An SVG file."""
    ratios = [row for row in report.rows if row.unit == "×"]
    bars = list(_bars(ratios))
    height = 60 + 34 * len(ratios)
    style = "font-family: system-ui, sans-serif; font-size: 13px; fill: #222"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" style="{style}">',
            "<title>How much faster than the baselines</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            *bars,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", extra: str = "") -> str:
    """Words at a place; ``extra`` are more attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, extra: str = "") -> str:
    """A line; ``extra`` are more attributes."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{extra}/>'


def _bars(rows: list[Row]) -> Iterator[str]:
    most = max([200.0, *(row.figure for row in rows)])
    least = min([0.5, *(row.figure for row in rows)])

    def at(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * math.log(value / least) / math.log(most / least)

    yield text(20, 24, "Times as fast as the baseline", extra=' font-weight="bold"')
    yield text(_RIGHT, 24, "| at least   ¦ wanted   (logarithmic)", anchor="end", extra=' fill="#666"')
    for number, row in enumerate(rows):
        y = 40 + 34 * number
        work = row.work.replace(", one after the other", "").replace("answered with", "→")
        yield text(_LEFT - 10, y + 15, work, anchor="end")
        colour = "#c0392b" if row.short else COLOURS[0]
        begin, end = sorted((at(1), at(row.figure)))
        yield f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 2):.1f}" height="20" fill="{colour}"/>'
        yield text(_RIGHT + 12, y + 15, row.shown)
        for target, dashes in ((row.at_least, ""), (row.want, ' stroke-dasharray="4 3"')):
            if target:
                yield line(at(target), y - 4, at(target), y + 24, "#222", f' stroke-width="1.5"{dashes}')
