"""Answers of a page's app, small and large, against the least that a client of the page can do for them.

The app has made each answer beforehand: its work is in no figure.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median

from tests.benchmarks.commands import AS_BASE64, AS_TEXT, command, hashed, parsed
from tests.benchmarks.measure import Way, in_turns
from tests.benchmarks.pages import Bench, plain_page
from tests.benchmarks.report import Row, Table
from tests.benchmarks.wire import page_without_driver

__all__ = ["KEEP", "OPTIONS", "PARAMS", "large_answers", "small_calls"]

#: Answers that are made once: 1 KB of content, 1 KB of JSON, and a table.
KEEP = """(rows) => {
  const abp = window.abp, call = abp.call.bind(abp);
  const table = (length, row) => ({ success: true, data: { rows: Array.from({ length }, (_, i) => row(i)) } });
  const kept = {
    "bench.file": { success: true, data: { file: { content: new Uint8Array(1024).buffer, mimeType: "a/b" } } },
    "bench.empty": { success: true, data: null },
    "bench.small": table(14, (i) => ({ name: `person ${i}`, city: `town ${i}`, note: "a few more words" })),
    "bench.table": table(rows, (i) =>
      ({ id: i, name: `person ${i}`, city: `town ${i % 100}`, amount: i * 1.25, note: "a few words" })),
  };
  abp.call = async (name, ...rest) => kept[name] ?? call(name, ...rest);
}"""
PARAMS = {"query": "the same for all"}
OPTIONS = {"timeout": 60_000, "callId": "bench", "progressToken": "bench"}  # as the kit gives them
_CALL = "([name, params, options]) => window.abp.call(name, params, options)"
_TEXT = "async ([name, params, options]) => JSON.stringify(await window.abp.call(name, params, options))"


def _timed(work: Callable[[], Awaitable[object]], calls: int) -> Way:
    async def way() -> Sequence[float]:
        taken = []
        for _ in range(calls):
            started = time.perf_counter()
            await work()
            taken.append(time.perf_counter() - started)
        return taken

    return way


_SMALL = {
    "bench.small": "call answered with 1 KB of JSON, one after the other",
    "bench.empty": "call answered with nothing, one after the other",
    "bench.file": "call answered with a file of 1 KB, one after the other",
}


_OUTCOMES = {
    "bench.small": "one JSON text, then parsed",
    "bench.empty": "one JSON text, then parsed",
    "bench.file": "base64, then decoded and hashed",
}


async def small_calls(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Small answers one after the other, against the cheapest command for the same outcome: through Playwright's
    driver, as the kit's, and, for information, without it."""
    calls, rounds = (30, 4) if bench.quick else (40, 8)
    medians: dict[str, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        app, _, page = await stack.enter_async_context(bench.session())
        plain = await stack.enter_async_context(plain_page(bench.browser, bench.url))
        wired = await stack.enter_async_context(page_without_driver(bench.url, bench.folder / "wired"))
        for one in (page, plain):
            await one.evaluate(KEEP, 0)
        await wired.send("Runtime.evaluate", {"expression": f"({KEEP})(0)"})
        cdp = await plain.context.new_cdp_session(plain)
        for name in _SMALL:
            of_text, form = (hashed, AS_BASE64) if name == "bench.file" else (parsed, AS_TEXT)
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "evaluate": partial(plain.evaluate, _CALL, [name, PARAMS, OPTIONS]),
                "command": of_text(await command(cdp.send, name, PARAMS, OPTIONS, form)),
                "wire": of_text(await command(wired.send, name, PARAMS, OPTIONS, form)),
                "kit": partial(app.call, name, PARAMS),
            }
            times = await in_turns({way: _timed(work, calls) for way, work in ways.items()}, rounds=rounds)
            medians[name] = {way: median(taken) for way, taken in times.items()}

    def row(name: str, way: str, baseline: str, at_least: float | None = None, want: float | None = None) -> Row:
        ours, theirs = medians[name]["kit"], medians[name][way]
        measured = f"median {1000 * ours:.2f} ms against {1000 * theirs:.2f} ms"
        reason = (
            f"{1000 * (ours - theirs):.2f} ms go into what that does not do: an id, a deadline, side effects, a look "
            "for content in the page and in the answer, a result"
        )
        return Row(_SMALL[name], baseline, theirs / ours, "×", measured, at_least, want, reason)

    rows = []
    for name, outcome in _OUTCOMES.items():
        sent = f"one Runtime.callFunctionOn that answers {outcome}"
        rows += [
            row(name, "command", sent, 0.8, 1),
            row(name, "wire", f"{sent}, over a WebSocket to the browser, without the driver"),
        ]
    peer = "page.evaluate of the same window.abp.call"
    rows += [row("bench.small", "evaluate", peer, 1.5, 1.5), row("bench.file", "evaluate", peer, 1, 1.5)]
    return rows, []


async def large_answers(bench: Bench) -> tuple[list[Row], list[Table]]:
    """A table of 20,000 rows, all of it looked at; against the cheapest command for text."""
    rows, repeated = (4_000, 3) if bench.quick else (20_000, 6)
    async with AsyncExitStack() as stack:
        app, transport, page = await stack.enter_async_context(bench.session())
        plain = await stack.enter_async_context(plain_page(bench.browser, bench.url))
        for one in (page, plain):
            await one.evaluate(KEEP, rows)
        size = len(await plain.evaluate(_TEXT, ["bench.table", PARAMS, OPTIONS]))

        async def kit() -> None:
            answer = (await app.call("bench.table", PARAMS)).data
            assert isinstance(answer, dict)
            assert len(answer["rows"]) == rows  # type: ignore[arg-type]

        cdp = await plain.context.new_cdp_session(plain)
        sent = parsed(await command(cdp.send, "bench.table", PARAMS, OPTIONS))

        async def text() -> None:
            assert len((await sent())["data"]["rows"]) == rows

        times = await in_turns({"text": _timed(text, 2), "kit": _timed(kit, 2)}, rounds=repeated)
        used = dict(transport.rungs)
    ours, theirs = median(times["kit"]), median(times["text"])
    moved = ", ".join(f"{name} {number}" for name, number in used.items() if number) or "none (in the reply)"
    return [
        Row(
            work=f"{size / 1e6:.1f} MB of JSON, {rows:,} rows",
            baseline="one Runtime.callFunctionOn that answers one JSON text, then parsed",
            figure=theirs / ours,
            unit="×",
            at_least=0.75,
            want=1,
            measured=f"median {1000 * ours:.0f} ms against {1000 * theirs:.0f} ms; rungs used: {moved}",
            reason="the kit also looks at every value, in the page and in Python, and makes the JSON of the result",
        )
    ], []
