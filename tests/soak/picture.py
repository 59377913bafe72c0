"""A run as a picture: calls a second, what was broken when, and resources over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

from tests.benchmarks.picture import COLOURS, line, text
from tests.soak.faults import NAMES
from tests.soak.resources import Resources
from tests.soak.run import Outcome

_WIDTH, _LEFT, _RIGHT = 980, 240, 850
_CALLS, _FAULTS, _ROW = 60, 230, 17  # where the panels begin, and the height of one fault
_ERROR = "#c0392b"
_BARS = 120


def picture(outcome: Outcome) -> str:
    total = max(outcome.record.elapsed if not outcome.marks else outcome.marks[-1], 1.0)

    def x(seconds: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * min(seconds, total) / total

    below = _FAULTS + 40 + _ROW * len(NAMES)
    height = below + 255
    style = "font-family: system-ui, sans-serif; font-size: 13px; fill: #222"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" style="{style}">',
            "<title>Calls, faults and resources of a soak over time</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            *_calls(outcome, x, total),
            *_faults(outcome, x),
            *_resources(outcome, x, below),
            *_axis(outcome, x, total, below + 230),
            "</svg>\n",
        ]
    )


def _calls(outcome: Outcome, x: Callable[[float], float], total: float) -> Iterator[str]:
    width = total / _BARS
    heights = {(bar, good): 0.0 for bar in range(_BARS) for good in (True, False)}
    for (second, good), number in outcome.record.curve.items():
        heights[min(int(second / width), _BARS - 1), good] += number / width
    most = max(1.0, *(heights[bar, True] + heights[bar, False] for bar in range(_BARS)))
    bottom, tall = _CALLS + 110, 110
    yield text(20, 30, "Calls a second", extra=' font-weight="bold"')
    yield text(_LEFT, 30, "with a result", extra=f' fill="{COLOURS[0]}"')
    yield text(_LEFT + 110, 30, "with a typed error", extra=f' fill="{_ERROR}"')
    for value in (most / 2, most):
        y = bottom - tall * value / most
        yield line(_LEFT, y, _RIGHT, y, "#ddd")
        yield text(_LEFT - 8, y + 4, f"{value:.1f}", anchor="end")
    for bar in range(_BARS):
        y = float(bottom)
        for good, colour in ((True, COLOURS[0]), (False, _ERROR)):
            high = tall * heights[bar, good] / most
            y -= high
            if high:
                left, wide = x(bar * width), x((bar + 1) * width) - x(bar * width)
                yield f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide:.2f}" height="{high:.1f}" fill="{colour}"/>'
    yield line(_LEFT, bottom, _RIGHT, bottom, "#222")


def _faults(outcome: Outcome, x: Callable[[float], float]) -> Iterator[str]:
    yield text(20, _FAULTS, "What was broken", extra=' font-weight="bold"')
    rows = {name: _FAULTS + 22 + _ROW * number for number, name in enumerate(NAMES)}
    for name, y in rows.items():
        yield text(_LEFT - 8, y + 4, name, anchor="end", extra=' style="font-size: 12px"')
        yield line(_LEFT, y, _RIGHT, y, "#eee")
    for seconds, name in outcome.record.faults:
        yield f'<circle cx="{x(seconds):.1f}" cy="{rows[name]}" r="3" fill="{_ERROR}"/>'


def _resources(outcome: Outcome, x: Callable[[float], float], top: float) -> Iterator[str]:
    """Lines relative to what was held after the warm-up."""
    yield text(20, top + 10, "Held, in % of what was", extra=' font-weight="bold"')
    yield text(20, top + 28, "held after the warm-up", extra=' font-weight="bold"')
    base, bottom, tall = outcome.before, top + 210, 200
    if base is None:
        return

    def y(percent: float) -> float:
        return bottom - tall * min(percent, 200) / 200

    for percent in (0, 50, 100, 110, 150, 200):
        dashes = ' stroke-dasharray="4 3"' if percent == 110 else ""
        yield line(_LEFT, y(percent), _RIGHT, y(percent), "#999" if percent in (0, 110) else "#ddd", dashes)
        if percent != 110:
            yield text(_LEFT - 8, y(percent) + 4, f"{percent}", anchor="end")
    labels = 0
    for colour, name in zip((*COLOURS, "#222"), (one.name for one in fields(Resources)), strict=True):
        first = getattr(base, name)
        if not first:
            continue
        points = " ".join(f"{x(at):.1f},{y(100 * held / first):.1f}" for at, held in _means(outcome, name))
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield text(_RIGHT + 10, top + 40 + 20 * labels, name, extra=f' fill="{colour}"')
        labels += 1
    for mark in outcome.marks:
        yield line(x(mark), top + 10, x(mark), bottom, "#222", ' stroke-dasharray="2 3"')
        yield text(x(mark), top + 4, "quiet", anchor="middle", extra=' style="font-size: 11px"')


def _means(outcome: Outcome, name: str) -> Iterator[tuple[float, float]]:
    """Means of so many samples that a line stays readable: (seconds, what was held)."""
    many = -(-len(outcome.samples) // _BARS)
    for samples in (outcome.samples[at : at + many] for at in range(0, len(outcome.samples), many)):
        values = [getattr(held, name) for _, held in samples]
        yield samples[len(samples) // 2][0], sum(values) / len(values)


def _axis(outcome: Outcome, x: Callable[[float], float], total: float, y: float) -> Iterator[str]:
    step = next((one for one in (10, 30, 60, 300, 600, 1800) if total / one <= 9), 3600)
    for number in range(int(total // step) + 1):
        at = number * step
        yield text(x(at), y, f"{at} s" if total < 300 else f"{at // 60} min", anchor="middle")
