"""Where the time of one small call goes, on both sides: in Python, on its way, and in the page.

``python -m tests.benchmarks.traced --json FILE`` measures, ``--picture BEFORE AFTER`` draws two such files into
docs/small-call.svg. Chromium's own trace and Python read the same clock. Parts are the 10th percentile of many calls,
in turns with the bare command: a busy machine stretches all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from playwright._impl.transport import PipeTransport  # where messages are written and read

from tests.benchmarks.answers import KEEP, OPTIONS, PARAMS
from tests.benchmarks.commands import command, parsed
from tests.benchmarks.empty_app import serve_empty_app
from tests.benchmarks.picture import COLOURS, line, text
from transports import Browser, PlaywrightTransport, connect

__all__ = ["PARTS", "drawn", "main"]

#: The parts of a call, in order.
PARTS = ("Python, until the command is written", "to the page", "in the page", "back", "Python, until the call returns")
_PICTURE = Path(__file__).resolve().parents[2] / "docs" / "small-call.svg"
_WARM, _CALLS = 200, 300
_CAPABILITY = "bench.small"


def _now() -> float:
    return time.monotonic_ns() / 1000  # microseconds, as the trace has


class _Wire:
    """Notes when messages are written to Playwright's driver, and read from it."""

    def __init__(self) -> None:
        self.written = self.read = 0.0
        send, deserialize = PipeTransport.send, PipeTransport.deserialize_message

        def sending(transport: PipeTransport, message: dict[str, Any]) -> None:
            send(transport, message)
            self.written = _now()

        def reading(transport: PipeTransport, data: str | bytes) -> Any:
            self.read = _now()
            return deserialize(transport, data)

        PipeTransport.send = sending  # type: ignore[method-assign, assignment]
        PipeTransport.deserialize_message = reading  # type: ignore[method-assign, assignment]


async def measure() -> dict[str, dict[str, float]]:
    """Microseconds of each part, of the bare command and of the kit."""
    wire = _Wire()
    calls: dict[str, list[tuple[float, float, float, float]]] = {"bare": [], "kit": []}
    async with serve_empty_app() as url, Browser() as browser:
        transport = PlaywrightTransport(url, browser=browser)
        known = {*browser.playwright.contexts}
        async with connect(url, transport=transport, store="none:") as app:
            (context,) = {*browser.playwright.contexts} - known
            page = context.pages[0]
            await page.evaluate(KEEP, 0)
            cdp = await context.new_cdp_session(page)
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "bare": parsed(await command(cdp.send, _CAPABILITY, PARAMS, OPTIONS)),
                "kit": partial(app.call, _CAPABILITY, PARAMS),
            }
            for _ in range(_WARM):
                for work in ways.values():
                    await work()
            await browser.playwright.start_tracing(page=page, categories=["toplevel"])
            for _ in range(_CALLS):
                for name, work in ways.items():
                    begun = _now()
                    await work()
                    calls[name].append((begun, wire.written, wire.read, _now()))
            trace = json.loads(await browser.playwright.stop_tracing())
    tasks = [event for event in trace["traceEvents"] if event.get("name") == "Receive mojo message"]
    return {name: _parts(found, tasks) for name, found in calls.items()}


def _parts(calls: list[tuple[float, float, float, float]], tasks: list[dict[str, Any]]) -> dict[str, float]:
    """The parts, from what Python noted and from the renderer's task between the message and its answer."""
    spent: dict[str, list[float]] = {name: [] for name in PARTS}
    for begun, written, read, ended in calls:
        found = [
            task
            for task in tasks
            if written < task["ts"] < read
            and task["args"]["chrome_mojo_event_info"].get("mojo_interface_tag", "").startswith("blink.mojom.DevToolsS")
            and not task["args"]["chrome_mojo_event_info"]["mojo_interface_tag"].endswith("Host")
        ]
        if len(found) == 1:
            (task,) = found
            inside = min(task.get("tdur", task["dur"]), read - task["ts"])
            values = (written - begun, task["ts"] - written, inside, read - task["ts"] - inside, ended - read)
            for name, value in zip(PARTS, values, strict=True):
                spent[name].append(value)
    return {name: sorted(values)[len(values) // 10] for name, values in spent.items()}


def drawn(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> Iterator[str]:
    """The lines of an SVG file with bars for the bare command and the kit, before and after: each pair was measured in
    turns."""
    bars = {
        "before: one bare command": before["bare"],
        "before: the kit": before["kit"],
        "after: one bare command": after["bare"],
        "after: the kit": after["kit"],
    }
    colours = (*COLOURS, "#a0522d")
    longest = max(sum(parts.values()) for parts in bars.values())
    style = "font-family: system-ui, sans-serif; font-size: 13px; fill: #222"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 310" role="img" style="{style}">'
    yield "<title>Where the time of one small call goes</title>"
    yield '<rect width="860" height="310" fill="#fff"/>'
    yield text(20, 24, "One small call, 14 rows of JSON, in µs", extra=' font-weight="bold"')
    for row, (name, parts) in enumerate(bars.items()):
        x, y = 270.0, 44 + 44 * row
        yield text(260, y + 19, name, anchor="end")
        for part, colour in zip(PARTS, colours, strict=True):
            width = 500 * parts[part] / longest
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="28" fill="{colour}"/>'
            if width > 24:
                yield text(x + width / 2, y + 19, f"{parts[part]:.0f}", anchor="middle", extra=' style="fill:#fff"')
            x += width
        yield text(x + 8, y + 19, f"{sum(parts.values()):.0f}")
    yield line(270, 40, 270, 220, "#222")
    for number, (part, colour) in enumerate(zip(PARTS, colours, strict=True)):
        x, y = 270 + 270 * (number % 2), 244 + 22 * (number // 2)
        yield f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour}"/>'
        yield text(x + 18, y, part)
    yield "</svg>\n"


def main() -> None:
    """Measure, or draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.traced", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the parts there")
    parser.add_argument("--picture", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help=f"draw {_PICTURE.name}")
    arguments = parser.parse_args()
    if arguments.picture:
        before, after = (json.loads(file.read_text()) for file in arguments.picture)
        _PICTURE.write_text("\n".join(drawn(before, after)), encoding="utf-8")
        return
    logging.getLogger("transports").setLevel(logging.ERROR)
    found = asyncio.run(measure())
    for name, parts in found.items():
        print(f"{name}: " + ", ".join(f"{part} {value:.0f}" for part, value in parts.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
