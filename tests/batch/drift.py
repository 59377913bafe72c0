"""Whether a long run gets slower or larger: ``abp batch run`` against the reference app in a real Chromium.

``python -m tests.batch.drift --jobs 10000 --svg docs/batch.svg`` draws the time of jobs and the memory by job number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from tests.benchmarks.measure import MB, resident
from tests.benchmarks.picture import COLOURS, line, text
from webapp_fixture import serve

#: Jobs that a median is taken over, and seconds between two looks at the memory.
_WINDOW, _EVERY = 100, 0.5
#: The job that others are compared with.
_FIRST = 100
_WIDTH, _LEFT, _RIGHT = 980, 80, 840


@dataclass
class Course:
    """How a run went: milliseconds of each job in the order of their ends, and what was resident after so many."""

    milliseconds: list[float] = field(default_factory=list)
    memory: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    report: dict[str, object] = field(default_factory=dict)

    def around(self, job: int) -> float:
        """The median of the hundred jobs around one."""
        return median(self.milliseconds[max(job - _WINDOW // 2, 0) : job + _WINDOW // 2])

    def held(self, name: str, part: slice) -> float:
        """The median of what was resident in a part of the run, in MB."""
        return median(held[name] for _, held in self.memory[part]) / MB

    def as_dict(self) -> dict[str, object]:
        count, tenth = len(self.milliseconds), max(len(self.memory) // 10, 1)
        compared = [job for job in (count // 4, count // 2, 3 * count // 4, count - _WINDOW // 2) if job > _FIRST]
        return {
            "jobs": count,
            "ms around job": {job: round(self.around(job), 2) for job in (_FIRST, *compared)},
            "median of the last fifth against the first": round(
                median(self.milliseconds[-(count // 5) :]) / median(self.milliseconds[: count // 5]), 3
            ),
            "against the first": {job: round(self.around(job) / self.around(_FIRST), 3) for job in compared},
            "MB, second tenth and last tenth": {
                name: [round(self.held(name, slice(tenth, 2 * tenth))), round(self.held(name, slice(-tenth, None)))]
                for name in ("python", "driver", "browser")
            },
            "report": {name: self.report.get(name) for name in ("states", "milliseconds", "browsers")},
        }


async def run(folder: Path, jobs: int, size: int, options: list[str]) -> Course:
    """Run ``jobs`` jobs, each with a file of ``size`` bytes or a few more."""
    course, path = Course(), folder / "jobs.jsonl"
    with path.open("w") as file:
        for n in range(jobs):
            params = {"bytes": size + n % 1000, "filename": f"{n}.bin"}
            file.write(json.dumps({"id": str(n), "capability": "file.generate", "params": params}) + "\n")
    async with serve() as fixture:
        command = [sys.executable, "-m", "transports.surfaces.cli", "batch", "run", str(path), "--json"]
        command += ["--out", str(folder / "run"), "--target", fixture.url, *options]
        env = {key: value for key, value in os.environ.items() if not key.startswith("ABP_")}
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=asyncio.subprocess.PIPE, limit=1 << 24)
        watching = asyncio.ensure_future(_watch(course, psutil.Process(process.pid)))
        try:
            assert process.stdout is not None
            async for event in process.stdout:
                document = json.loads(event)
                if document["event"] == "ended":
                    course.milliseconds.append(document["duration_ms"])
                elif document["event"] == "report":
                    course.report = document
            await process.wait()
        finally:
            watching.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
    course.memory = [look for look in course.memory if look[0] < jobs]  # the end of the run is no part of it
    return course


async def _watch(course: Course, process: psutil.Process) -> None:
    while True:
        await asyncio.sleep(_EVERY)
        if course.milliseconds:
            course.memory.append((len(course.milliseconds), await asyncio.to_thread(resident, process)))


def picture(course: Course) -> str:
    count = len(course.milliseconds)

    def x(job: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * job / count

    times = [(job, course.around(job)) for job in range(_WINDOW // 2, count, _WINDOW)]
    style = "font-family: system-ui, sans-serif; font-size: 13px; fill: #222"
    first, tenth = course.around(_FIRST), max(len(course.memory) // 10, 1)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 560" role="img" style="{style}">',
            "<title>The time of jobs and the memory over a long run, by job number</title>",
            f'<rect width="{_WIDTH}" height="560" fill="#fff"/>',
            *_panel("Milliseconds of a job, the median of a hundred", 30, x, {"a job": times}, around=first),
            *_panel(
                "Resident memory, in % of what it was after a tenth of the jobs, the median of ten looks",
                290,
                x,
                {
                    f"{name}, {course.held(name, slice(tenth, 2 * tenth)):,.0f} MB": _smooth(course, name, tenth)
                    for name in ("browser", "driver", "python")
                },
            ),
            *(text(x(job), 530, f"{job:,}", anchor="middle") for job in range(0, count + 1, max(count // 10, 1))),
            text(_RIGHT, 550, "jobs that have ended", anchor="end"),
            "</svg>\n",
        ]
    )


def _smooth(course: Course, name: str, tenth: int) -> list[tuple[int, float]]:
    parts = [course.memory[at : at + 10] for at in range(0, len(course.memory), 10)]
    first = course.held(name, slice(tenth, 2 * tenth)) * MB / 100
    return [(part[len(part) // 2][0], median(held[name] for _, held in part) / first) for part in parts]


def _panel(
    title: str,
    top: float,
    x: Callable[[float], float],
    lines: dict[str, list[tuple[int, float]]],
    around: float | None = None,
) -> Iterator[str]:
    most = 1.1 * max(value for points in lines.values() for _, value in points)
    above, bottom = top + 20, top + 220

    def y(value: float) -> float:
        return bottom - (bottom - above) * value / most

    yield text(20, top, title, extra=' font-weight="bold"')
    if around is not None:
        high, low = y(1.1 * around), y(0.9 * around)
        yield f'<rect x="{_LEFT}" y="{high:.1f}" width="{_RIGHT - _LEFT}" height="{low - high:.1f}" fill="#e8f0fb"/>'
        yield text(_RIGHT + 10, high + 4, "10 % of job 100", extra=' style="font-size: 11px"')
    step = next((one for one in (1, 2, 5, 10, 20, 50, 100, 200, 500) if most / one <= 5), 1000)
    value = 0.0
    while value <= most:
        yield line(_LEFT, y(value), _RIGHT, y(value), "#ddd" if value else "#222")
        yield text(_LEFT - 8, y(value) + 4, f"{value:g}", anchor="end")
        value += step
    labels: list[float] = []
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        path = " ".join(f"{x(job):.1f},{y(value):.1f}" for job, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        height = y(points[-1][1])
        while any(abs(height - other) < 16 for other in labels):
            height += 4
        labels.append(height)
        yield text(_RIGHT + 10, height + 4, name, extra=f' fill="{colour}"')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=16_384)
    parser.add_argument("--svg", type=Path)
    args, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        course = asyncio.run(run(Path(folder), args.jobs, args.bytes, options))
    print(json.dumps(course.as_dict(), indent=1))
    if args.svg:
        args.svg.write_text(picture(course), encoding="utf-8")


if __name__ == "__main__":
    main()
