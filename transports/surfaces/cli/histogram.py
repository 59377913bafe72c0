"""The latencies of ``abp bench`` as a histogram: in block characters, or as an SVG picture for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Bin", "bins_of", "format_ms", "histogram_lines", "histogram_picture"]

#: Characters of the longest bar in a terminal.
_BAR_CHARS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 690, 130, 350
#: Labels of the axis of times, at most.
_LABELS = 6
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #222 } .title { font-weight: bold; font-size: 15px }
.quiet { fill: #666 } .page { fill: #fff } .bar { fill: #5a97e3 } .grid { stroke: #ddd } .axis { stroke: #666 }
.mark { stroke: #7a3d00; stroke-width: 1.5; stroke-dasharray: 4 3 } .label { fill: #7a3d00 }
@media (prefers-color-scheme: dark) {
text { fill: #e6e6e6 } .quiet { fill: #a8a8a8 } .page { fill: #1b1d21 } .bar { fill: #3d74bd } .grid { stroke: #3a3d44 }
.axis { stroke: #a8a8a8 } .mark { stroke: #f5bd85 } .label { fill: #f5bd85 } }
"""


@dataclass(frozen=True, slots=True)
class Bin:
    """The number of values from ``low`` to ``high``, without ``high`` except in the last bin."""

    low: float
    high: float
    count: int


def bins_of(values: Sequence[float], most: int) -> list[Bin]:
    """Sort positive values into about as many bins as the root of their number, ``most`` at most. Bins grow by a
    constant factor: a few slow calls would else leave all the others in the first. One bin for equal values."""
    low, high = min(values), max(values)
    number = 1 if low == high else min(most, math.ceil(math.sqrt(len(values))))
    counts = [0] * number
    for value in values:
        counts[min(int(number * _place(value, low, high)), number - 1)] += 1
    edges = [low * (high / low) ** (step / number) for step in range(number)] + [high]
    return [Bin(edges[i], edges[i + 1], count) for i, count in enumerate(counts)]


def _place(value: float, low: float, high: float) -> float:
    """Where a value stands from ``low`` (0) to ``high`` (1) on a logarithmic axis; in the middle if these are one."""
    return math.log(value / low) / math.log(high / low) if high > low else 0.5


def format_ms(value: float) -> str:
    """Return milliseconds with three digits that count: ``0.123``, ``1.23``, ``12.3``, ``1,234``."""
    decimals = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}"


def histogram_lines(values: Sequence[float], *, blocks: bool = True) -> list[str]:
    """Return a line for each bin of latencies in milliseconds: its limits, a bar, its count. Without ``blocks`` the
    bars are in ASCII."""
    bins = bins_of(values, 12)
    limits = [(format_ms(one.low), format_ms(one.high)) for one in bins]
    width = max(len(text) for pair in limits for text in pair)
    most = max(one.count for one in bins)
    return [
        f"{low:>{width}} - {high:>{width}} ms  {_bar(one.count / most, blocks=blocks)} {one.count}"
        for one, (low, high) in zip(bins, limits, strict=True)
    ]


def _bar(part: float, *, blocks: bool) -> str:
    if not blocks:
        return "#" * round(part * _BAR_CHARS)
    whole, eighths = divmod(round(part * _BAR_CHARS * 8), 8)
    return "█" * whole + _EIGHTHS[eighths].strip()


def histogram_picture(title: str, notes: str, values: Sequence[float], marks: Mapping[str, float]) -> str:
    """Return the histogram of latencies in milliseconds as an SVG file. ``notes`` stand below the ``title``; ``marks``
    are values with a name, each written beside a line of its own."""
    bins = bins_of(values, 30)
    low, high = bins[0].low, bins[-1].high
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        _text(20, 28, title, "title"),
        _text(20, 50, notes, "quiet"),
        *_bars(bins),
        *_axis(bins),
    ]
    for number, (name, value) in enumerate(marks.items()):
        x, y = _LEFT + (_RIGHT - _LEFT) * _place(value, low, high), 82 + 17 * number
        lines.append(f'<line class="mark" x1="{x:.1f}" y1="{y - 11}" x2="{x:.1f}" y2="{_BOTTOM}"/>')
        before = x > (_LEFT + _RIGHT) / 2
        label = f"{name} {format_ms(value)} ms"
        lines.append(_text(x - 6 if before else x + 6, y, label, "label", "end" if before else "start"))
    return "\n".join([*lines, "</svg>\n"])


def _bars(bins: Sequence[Bin]) -> Iterator[str]:
    most, wide = max(one.count for one in bins), (_RIGHT - _LEFT) / len(bins)
    for count in sorted({most, most // 2, 0}):
        y = _BOTTOM - (_BOTTOM - _TOP) * count / most
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 8, y + 4, f"{count:,}", "quiet", "end")
    for number, one in enumerate(bins):
        height = (_BOTTOM - _TOP) * one.count / most
        x, y = _LEFT + wide * number + 1, _BOTTOM - height
        label = f"{one.count:,} from {format_ms(one.low)} to {format_ms(one.high)} ms"
        yield (
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{max(wide - 2, 1):.1f}" height="{height:.1f}">'
            f"<title>{label}</title></rect>"
        )


def _axis(bins: Sequence[Bin]) -> Iterator[str]:
    yield f'<line class="axis" x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_BOTTOM}"/>'
    edges = [one.low for one in bins] + [bins[-1].high]
    every = math.ceil(len(bins) / (_LABELS - 1))
    for number in range(0, len(edges), every):
        x = _LEFT + (_RIGHT - _LEFT) * number / len(bins)
        yield _text(x, _BOTTOM + 20, format_ms(edges[number]), "quiet", "middle")
    legend = "milliseconds that a call took (logarithmic); how many calls"
    yield _text((_LEFT + _RIGHT) / 2, _BOTTOM + 40, legend, "quiet", "middle")


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
