"""The figures as a picture: ratios with their targets, and latency over size for every rung of the ladder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from tests.benchmarks.report import Report, Row, Table

__all__ = ["COLOURS", "line", "picture", "text"]

_WIDTH = 860
_LEFT, _RIGHT = 330, 780  # where bars begin and end
COLOURS = ("#1a66cc", "#d9822b", "#2f8f4e", "#8a4fbf")
_UNITS = {"KB": 1 << 10, "MB": 1 << 20}


def picture(report: Report) -> str:
    """An SVG file."""
    ratios = [row for row in report.rows if row.unit == "×"]
    bars = list(_bars(ratios))
    top = 60 + 34 * len(ratios)
    curves = [line for table in report.tables if "Page → file" in table.title for line in _curves(table, top + 60)]
    height = top + (420 if curves else 0)
    style = "font-family: system-ui, sans-serif; font-size: 13px; fill: #222"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" style="{style}">',
            "<title>How much faster than the baselines, and latency over size</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            *bars,
            *curves,
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


def _size(name: str) -> int:
    number, unit = name.split()
    return int(number) * _UNITS[unit]


def _curves(table: Table, top: float) -> Iterator[str]:
    left, right, bottom = 90.0, 700.0, top + 290
    sizes = {name: _size(name) for name in table.columns}
    values = [value for row in table.cells.values() for value in row.values()]
    low, high = min(values), max(values)
    first, last = min(sizes.values()), max(sizes.values())

    def x(size: float) -> float:
        return left + (right - left) * math.log(size / first) / math.log(last / first)

    def y(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    yield text(20, top - 24, f"{table.title} (ms, both axes logarithmic)", extra=' font-weight="bold"')
    labelled = -math.inf
    for name, size in sizes.items():
        yield line(x(size), top, x(size), bottom, "#eee")
        if size == last or (x(last) - x(size) > 60 and x(size) - labelled > 60):
            yield text(x(size), bottom + 20, name, anchor="middle")
            labelled = x(size)
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        value = 10.0**power
        yield line(left, y(value), right, y(value), "#ddd")
        yield text(left - 8, y(value) + 4, f"{value:g}", anchor="end")
    ends = _spread({name: y(row[table.columns[-1]]) for name, row in table.cells.items()})
    for colour, (name, row) in zip(COLOURS, table.cells.items(), strict=False):
        points = " ".join(f"{x(sizes[column]):.1f},{y(value):.1f}" for column, value in row.items())
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        yield text(right + 10, ends[name] + 4, name, extra=f' fill="{colour}"')


def _spread(heights: Mapping[str, float], apart: float = 16) -> dict[str, float]:
    """The same heights, so far apart that labels there can be read."""
    placed: dict[str, float] = {}
    above = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        above = placed[name] = max(height, above + apart)
    return placed
