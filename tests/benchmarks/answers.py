"""Answers of a page's app, small and large, against the least that a client of the page can do for them.

The app has made each answer beforehand: its work is in no figure.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import Any, TypeAlias

import msgspec

from tests.benchmarks.measure import Way, in_turns
from tests.benchmarks.pages import Bench, plain_page
from tests.benchmarks.report import Row, Table
from tests.benchmarks.wire import page_without_driver

__all__ = ["large_answers", "small_calls"]

#: Answers that are made once: 1 KB of content, 1 KB of JSON, and a table.
_KEEP = """(rows) => {
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
_PARAMS = {"query": "the same for all"}
_OPTIONS = {"timeout": 60_000, "callId": "bench", "progressToken": "bench"}  # as the kit gives them
_CALL = "([name, params, options]) => window.abp.call(name, params, options)"
_TEXT = "async ([name, params, options]) => JSON.stringify(await window.abp.call(name, params, options))"
# The cheapest command for an answer: one text in, one text out. Values by value cost the browser and the driver more.
_AS_TEXT = "async function (text) { return JSON.stringify(await this.call(...JSON.parse(text))); }"
_AS_BASE64 = (
    "async function (text) {"
    " return new Uint8Array((await this.call(...JSON.parse(text))).data.file.content).toBase64(); }"
)
_JSON = msgspec.json.Decoder()


def _timed(work: Callable[[], Awaitable[object]], calls: int) -> Way:
    async def way() -> Sequence[float]:
        taken = []
        for _ in range(calls):
            started = time.perf_counter()
            await work()
            taken.append(time.perf_counter() - started)
        return taken

    return way


#: Sends one command of CDP.
_Send: TypeAlias = Callable[[str, dict[str, object]], Awaitable[dict[str, Any]]]


async def _command(send: _Send, name: str, function: str = _AS_TEXT) -> Callable[[], Awaitable[str]]:
    """The call as one ``Runtime.callFunctionOn``, which answers a text."""
    app = (await send("Runtime.evaluate", {"expression": "window.abp"}))["result"]["objectId"]
    call: dict[str, object] = {
        "objectId": app,
        "functionDeclaration": function,
        "arguments": [{"value": json.dumps([name, _PARAMS, _OPTIONS])}],
        "awaitPromise": True,
        "returnByValue": True,
    }

    async def command() -> str:
        answer: str = (await send("Runtime.callFunctionOn", call))["result"]["value"]
        return answer

    return command


def _parsed(command: Callable[[], Awaitable[str]]) -> Callable[[], Awaitable[object]]:
    """The command and its answer as values."""

    async def parsed() -> object:
        return _JSON.decode(await command())

    return parsed


def _hashed(command: Callable[[], Awaitable[str]]) -> Callable[[], Awaitable[object]]:
    """The command and the bytes that it answers, with their hash."""

    async def hashed() -> object:
        content = base64.b64decode(await command(), validate=True)
        return content, hashlib.sha256(content).hexdigest()

    return hashed


_SMALL = {
    "bench.small": "call answered with 1 KB of JSON, one after the other",
    "bench.empty": "call answered with nothing, one after the other",
    "bench.file": "call answered with a file of 1 KB, one after the other",
}


async def small_calls(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Small answers one after the other, against the cheapest command for the same outcome: through Playwright's
    driver, as the kit's, and, for information, without it."""
    calls, rounds = (30, 4) if bench.quick else (100, 10)
    medians: dict[str, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        app, _, page = await stack.enter_async_context(bench.session())
        plain = await stack.enter_async_context(plain_page(bench.browser, bench.url))
        wired = await stack.enter_async_context(page_without_driver(bench.url, bench.folder / "wired"))
        for one in (page, plain):
            await one.evaluate(_KEEP, 0)
        await wired.send("Runtime.evaluate", {"expression": f"({_KEEP})(0)"})
        cdp = await plain.context.new_cdp_session(plain)
        for name in _SMALL:
            form, outcome = (_AS_BASE64, _hashed) if name == "bench.file" else (_AS_TEXT, _parsed)
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "evaluate": partial(plain.evaluate, _CALL, [name, _PARAMS, _OPTIONS]),
                "command": outcome(await _command(cdp.send, name, form)),
                "wire": outcome(await _command(wired.send, name, form)),
                "kit": partial(app.call, name, _PARAMS),
            }
            times = await in_turns({way: _timed(work, calls) for way, work in ways.items()}, rounds=rounds)
            medians[name] = {way: median(taken) for way, taken in times.items()}

    def row(name: str, way: str, baseline: str, at_least: float | None, want: float | None, more: str) -> Row:
        ours, theirs = medians[name]["kit"], medians[name][way]
        measured = f"median {1000 * ours:.2f} ms against {1000 * theirs:.2f} ms"
        reason = f"the kit's {1000 * (ours - theirs):.2f} ms on top of one bare command go into what that does not do: "
        return Row(_SMALL[name], baseline, theirs / ours, "×", measured, at_least, want, reason + more)

    json_more = "an id and a deadline, side effects, a look for content in the page and in the answer, a result"
    file_more = f"{json_more} with the file's name and type"
    command, text = "one Runtime.callFunctionOn", "that answers one JSON text, then parsed"
    rows = []
    for name, form, more in (
        ("bench.small", text, json_more),
        ("bench.empty", text, json_more),
        ("bench.file", "that answers base64, then decoded and hashed", file_more),
    ):
        rows += [
            row(name, "command", f"{command} {form}", 0.8, 1, more),
            row(
                name,
                "wire",
                f"the same over a WebSocket to the browser, without the driver ({command})",
                None,
                None,
                "",
            ),
            row(
                name,
                "evaluate",
                "page.evaluate of the same window.abp.call",
                1 if name == "bench.file" else 1.2,
                1.5,
                more,
            ),
        ]
    return rows, []


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
