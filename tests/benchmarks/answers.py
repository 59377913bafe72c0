"""Answers of a page's app, small and large, against the least that a client of the page can do for them.

The app has made each answer beforehand: its work is in no figure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Way, in_turns
from tests.benchmarks.pages import Bench, plain_page
from tests.benchmarks.report import Row, Table

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["large_answers", "small_calls"]

#: Answers that are made once: 1 KB of content, 1 KB of JSON, and a table.
_KEEP = """(rows) => {
  const abp = window.abp, call = abp.call.bind(abp);
  const table = (length, row) => ({ success: true, data: { rows: Array.from({ length }, (_, i) => row(i)) } });
  const kept = {
    "bench.file": { success: true, data: { file: { content: new Uint8Array(1024).buffer, mimeType: "a/b" } } },
    "bench.small": table(14, (i) => ({ name: `person ${i}`, city: `town ${i}`, note: "a few more words" })),
    "bench.table": table(rows, (i) =>
      ({ id: i, name: `person ${i}`, city: `town ${i % 100}`, amount: i * 1.25, note: "a few words" })),
  };
  abp.call = async (name, ...rest) => kept[name] ?? call(name, ...rest);
}"""
_PARAMS = {"query": "the same for all"}
_OPTIONS = {"timeout": 60_000, "callId": "bench", "progressToken": "bench"}  # as the kit gives them
_CALL = "([name, params, options]) => window.abp.call(name, params, options)"
_TEXT = "async ([name, params, options]) => JSON.stringify(await window.abp.call(name, params, options))"
_METHOD = "function (name, params, options) { return this.call(name, params, options); }"


def _timed(work: Callable[[], Awaitable[object]], calls: int) -> Way:
    async def way() -> Sequence[float]:
        taken = []
        for _ in range(calls):
            started = time.perf_counter()
            await work()
            taken.append(time.perf_counter() - started)
        return taken

    return way


async def _command(page: Page, name: str) -> Callable[[], Awaitable[object]]:
    """The call as one ``Runtime.callFunctionOn`` of a raw CDP session, its answer by value."""
    cdp = await page.context.new_cdp_session(page)
    app = (await cdp.send("Runtime.evaluate", {"expression": "window.abp"}))["result"]["objectId"]
    call = {
        "objectId": app,
        "functionDeclaration": _METHOD,
        "arguments": [{"value": value} for value in (name, _PARAMS, _OPTIONS)],
        "awaitPromise": True,
        "returnByValue": True,
    }
    return partial(cdp.send, "Runtime.callFunctionOn", call)


async def small_calls(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Small answers one after the other; against ``evaluate`` of the very same call and one bare command of CDP."""
    calls, rounds = (30, 4) if bench.quick else (100, 10)
    medians: dict[str, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        app, _, page = await stack.enter_async_context(bench.session())
        plain = await stack.enter_async_context(plain_page(bench.browser, bench.url))
        for one in (page, plain):
            await one.evaluate(_KEEP, 0)
        for name in ("bench.file", "bench.small"):
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "evaluate": partial(plain.evaluate, _CALL, [name, _PARAMS, _OPTIONS]),
                "command": await _command(plain, name),
                "kit": partial(app.call, name, _PARAMS),
            }
            times = await in_turns({way: _timed(work, calls) for way, work in ways.items()}, rounds=rounds)
            medians[name] = {way: median(taken) for way, taken in times.items()}

    def row(work: str, baseline: str, name: str, way: str, at_least: float, want: float, reason: str) -> Row:
        ours, theirs = medians[name]["kit"], medians[name][way]
        measured = f"median {1000 * ours:.2f} ms against {1000 * theirs:.2f} ms"
        return Row(work, baseline, theirs / ours, "×", measured, at_least, want, reason)

    small, spent = "call answered with 1 KB of JSON, one after the other", medians["bench.small"]
    checks = (
        f"the kit's {1000 * (spent['kit'] - spent['command']):.2f} ms on top of one bare command go into what that "
        "does not do: an id and a deadline, a look for content in the page and in the answer, a result"
    )
    peer = "page.evaluate of the same window.abp.call"
    return [
        row("call answered with a file of 1 KB, one after the other", peer, "bench.file", "evaluate", 1, 1.5,
            "the kit decodes, verifies, hashes and describes the file, of which evaluate gives nothing"),
        row(small, peer, "bench.small", "evaluate", 1.5, 1.5, checks),
        row(f"{small}, beside its limit", "one Runtime.callFunctionOn of the same call", "bench.small", "command",
            0.85, 1, checks),
    ], []  # fmt: skip


async def large_answers(bench: Bench) -> tuple[list[Row], list[Table]]:
    """A table of 20,000 rows, all of it looked at; against the way that a client finds for text."""
    rows, rounds = (4_000, 3) if bench.quick else (20_000, 6)
    async with AsyncExitStack() as stack:
        app, transport, page = await stack.enter_async_context(bench.session())
        plain = await stack.enter_async_context(plain_page(bench.browser, bench.url))
        for one in (page, plain):
            await one.evaluate(_KEEP, rows)
        size = len(await plain.evaluate(_TEXT, ["bench.table", _PARAMS, _OPTIONS]))

        async def kit() -> None:
            answer = (await app.call("bench.table", _PARAMS)).data
            assert isinstance(answer, dict)
            assert len(answer["rows"]) == rows  # type: ignore[arg-type]

        async def documented() -> None:
            answer = json.loads(await plain.evaluate(_TEXT, ["bench.table", _PARAMS, _OPTIONS]))
            assert len(answer["data"]["rows"]) == rows

        times = await in_turns({"text": _timed(documented, 2), "kit": _timed(kit, 2)}, rounds=rounds)
        used = dict(transport.rungs)
    ours, theirs = median(times["kit"]), median(times["text"])
    moved = ", ".join(f"{name} {number}" for name, number in used.items() if number) or "none (in the reply)"
    return [
        Row(
            work=f"{size / 1e6:.1f} MB of JSON, {rows:,} rows",
            baseline="page.evaluate of JSON.stringify, then json.loads",
            figure=theirs / ours,
            unit="×",
            at_least=0.75,
            want=1,
            measured=f"median {1000 * ours:.0f} ms against {1000 * theirs:.0f} ms; rungs used: {moved}",
            reason="the kit also looks at every value, in the page and in Python, and makes the JSON of the result",
        )
    ], []
