"""Throughput and cost over the number of workers, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.picture import COLOURS, line, text

_WIDTH, _LEFT, _RIGHT = 980, 90, 760


@dataclass(frozen=True, slots=True)
class Point:
    """So many workers end so many jobs a second; ``ledger`` and ``store`` are the shares of these that are used."""

    workers: int
    per_second: float
    ledger: float
    store: float


def picture(found: Mapping[str, Sequence[Point]], prices: Mapping[str, Sequence[float]]) -> str:
    style = "font-family: system-ui, sans-serif; font-size: 13px; fill: #222"
    workers = [point.workers for point in next(iter(found.values()))]
    throughput = {name: [point.per_second for point in points] for name, points in found.items()}
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 720" role="img" style="{style}">',
            "<title>Jobs a second, and the price of a thousand calls, over the number of workers</title>",
            f'<rect width="{_WIDTH}" height="720" fill="#fff"/>',
            *_panel("Jobs a second", 30, workers, throughput),
            *_panel("A thousand calls cost", 380, workers, prices),
            text(_RIGHT, 710, "workers", anchor="end"),
            "</svg>\n",
        ]
    )


def _panel(title: str, top: float, workers: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Iterator[str]:
    values = [value for points in lines.values() for value in points if value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    above, bottom = top + 15, top + 285

    def x(count: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * math.log(count / workers[0]) / math.log(workers[-1] / workers[0])

    def y(value: float) -> float:
        return bottom - (bottom - above) * (math.log10(max(value, 10.0**low)) - low) / (high - low)

    yield text(20, top, title, extra=' font-weight="bold"')
    for power in range(low, high + 1):
        yield line(_LEFT, y(10.0**power), _RIGHT, y(10.0**power), "#ddd")
        yield text(_LEFT - 8, y(10.0**power) + 4, f"{10.0**power:,g}", anchor="end")
    for count in workers:
        yield text(x(count), bottom + 18, f"{count:,}", anchor="middle")
    heights: list[float] = []
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        path = " ".join(f"{x(count):.1f},{y(value):.1f}" for count, value in zip(workers, points, strict=True))
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        height = y(points[-1])
        while any(abs(height - other) < 16 for other in heights):
            height += 4
        heights.append(height)
        yield text(_RIGHT + 10, height + 4, name, extra=f' fill="{colour}"')
