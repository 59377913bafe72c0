"""Small answers of a page's app, against the least that a client of the page can do for them.

The app has made each answer beforehand: its work is in no figure.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from statistics import median
from typing import Any, TypeAlias

import msgspec

from tests.benchmarks.measure import Way, at_once, in_turns, timed
from tests.benchmarks.pages import Bench, plain_page
from tests.benchmarks.report import Row
from transports import MemoryTransport, connect
from transports.memory import Call

__all__ = ["kept_answers", "small_calls"]

_AS_TEXT = "async function (text) { return JSON.stringify(await this.call(...JSON.parse(text))); }"
_AS_BASE64 = (
    "async function (text) {"
    " return new Uint8Array((await this.call(...JSON.parse(text))).data.file.content).toBase64(); }"
)
_DECODE = msgspec.json.Decoder().decode

#: Sends one command of CDP, by any library.
_Send: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
#: Makes a call, and returns the text that the page answers.
_Command: TypeAlias = Callable[..., Awaitable[str]]
#: Answers that are made once: 1 KB of content, and 1 KB of JSON.
_KEEP = """() => {
  const abp = window.abp, call = abp.call.bind(abp);
  const table = (length, row) => ({ success: true, data: { rows: Array.from({ length }, (_, i) => row(i)) } });
  const kept = {
    "bench.file": { success: true, data: { file: { content: new Uint8Array(1024).buffer, mimeType: "a/b" } } },
    "bench.empty": { success: true, data: null },
    "bench.small": table(14, (i) => ({ name: `person ${i}`, city: `town ${i}`, note: "a few more words" })),
  };
  abp.call = async (name, ...rest) => kept[name] ?? call(name, ...rest);
}"""
_PARAMS = {"query": "the same for all"}
_OPTIONS = {"timeout": 60_000, "callId": "bench", "progressToken": "bench"}  # as the kit gives them
_CALL = "([name, params, options]) => window.abp.call(name, params, options)"
#: What each capability answers, and what the cheapest command makes of it.
_SMALL = {
    "bench.small": ("1 KB of JSON", "one JSON text, then parsed"),
    "bench.empty": ("nothing", "one JSON text, then parsed"),
    "bench.file": ("a file of 1 KB", "base64, then decoded and hashed"),
}
_AT_ONCE = 64
_TEXT = "x" * 900


async def _command(send: _Send, name: str, params: object, options: object, function: str = _AS_TEXT) -> _Command:
    """The call as one ``Runtime.callFunctionOn``. Other parameters may be given to the command itself."""
    app = (await send("Runtime.evaluate", {"expression": "window.abp"}))["result"]["objectId"]
    call = {"objectId": app, "functionDeclaration": function, "awaitPromise": True, "returnByValue": True}

    async def sent(params: object = params) -> str:
        given = [{"value": json.dumps([name, params, options])}]
        answer: str = (await send("Runtime.callFunctionOn", {**call, "arguments": given}))["result"]["value"]
        return answer

    return sent


def _hashed(text: str) -> tuple[bytes, str]:
    data = base64.b64decode(text, validate=True)
    return data, hashlib.sha256(data).hexdigest()


async def _outcome(sent: _Command, of_text: Callable[[str], object]) -> object:
    return of_text(await sent())


async def small_calls(bench: Bench) -> list[Row]:
    """Small answers one after the other, against the cheapest command for the same outcome."""
    calls, rounds = (30, 4) if bench.quick else (40, 8)
    medians: dict[str, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        app, _, page = await stack.enter_async_context(bench.session())
        plain = await stack.enter_async_context(plain_page(bench.browser, bench.url))
        for app_page in (page, plain):
            await app_page.evaluate(_KEEP)
        cdp = await plain.context.new_cdp_session(plain)
        for name in _SMALL:
            of_text, form = (_hashed, _AS_BASE64) if name == "bench.file" else (_DECODE, _AS_TEXT)
            sent = await _command(cdp.send, name, _PARAMS, _OPTIONS, form)
            ways = {
                "evaluate": timed(partial(plain.evaluate, _CALL, [name, _PARAMS, _OPTIONS]), times=calls),
                "command": timed(partial(_outcome, sent, of_text), times=calls),
                "kit": timed(partial(app.call, name, _PARAMS), times=calls),
            }
            times = await in_turns(ways, rounds=rounds)
            medians[name] = {way: median(taken) for way, taken in times.items()}

    def row(name: str, way: str, baseline: str, at_least: float, want: float) -> Row:
        ours, theirs = medians[name]["kit"], medians[name][way]
        return Row(
            work=f"call answered with {_SMALL[name][0]}, one after the other",
            baseline=baseline,
            figure=theirs / ours,
            measured=f"median {1000 * ours:.2f} ms against {1000 * theirs:.2f} ms",
            at_least=at_least,
            want=want,
            reason=f"{1000 * (ours - theirs):.2f} ms go into what that does not do: an id, a deadline, side effects, a "
            "look for content in the page and in the answer, a result",
        )

    peer = "page.evaluate of the same window.abp.call"
    return [
        *(
            row(name, "command", f"one Runtime.callFunctionOn that answers {outcome}", 0.8, 1)
            for name, (_, outcome) in _SMALL.items()
        ),
        row("bench.small", "evaluate", peer, 1.5, 1.5),
        row("bench.file", "evaluate", peer, 1, 1.5),
    ]


async def kept_answers(bench: Bench) -> list[Row]:
    """Small JSON answers, each another content."""
    return [*await _on_a_page(bench), await _at_once(bench)]


async def _on_a_page(bench: Bench) -> list[Row]:
    calls = 20 if bench.quick else 25
    by_hand = bench.folder / "by-hand"
    by_hand.mkdir()
    async with (
        bench.session() as (none, _, _),
        bench.session(bench.folder / "kept") as (kept, _, _),
        plain_page(bench.browser, bench.url) as page,
    ):
        numbers = count()
        cdp = await page.context.new_cdp_session(page)
        sent = await _command(cdp.send, "data.json", {}, {"timeout": 60_000})

        async def written(params: object) -> None:
            text = await sent(params)
            assert msgspec.json.decode(text)["success"]
            name = hashlib.sha256(text.encode()).hexdigest()
            (by_hand / f"{name}.part").write_text(text)
            (by_hand / f"{name}.part").rename(by_hand / f"{name}.json")

        def way(call: Callable[[dict[str, object]], Awaitable[object]]) -> Way:
            return timed(lambda: call({"csv": f"number,text\n{next(numbers)},{_TEXT}\n"}), times=calls)

        ways = {
            "none": way(partial(none.call, "data.json")),
            "kept": way(partial(kept.call, "data.json")),
            "written": way(written),
        }
        times = await in_turns(ways, rounds=4 if bench.quick else 6)
    without, stored, bare = (median(times[name]) for name in ("none", "kept", "written"))
    work = "call answered with 1 KB of JSON, default store"
    return [
        Row(
            work=work,
            baseline="the same with `none:`",
            figure=without / stored,
            at_least=0.7,
            measured=f"median {1000 * stored:.2f} ms against {1000 * without:.2f} ms",
            reason="it also makes two files, which takes longer where many were removed just now (ext4 without a "
            "journal), gives the content a name, and goes to a thread and back",
        ),
        Row(
            work=work,
            baseline="one Runtime.callFunctionOn, its text parsed, hashed, written to one file and renamed",
            figure=bare / stored,
            measured=f"median {1000 * stored:.2f} ms against {1000 * bare:.2f} ms; the kit also writes who made the "
            "file, by which it is found again",
        ),
    ]


async def _at_once(bench: Bench) -> Row:
    used: dict[str, list[float]] = {"serial": [], "at_once": []}
    numbers = count()

    async def small(params: Mapping[str, object], call: Call) -> object:
        return {"number": next(numbers), "text": _TEXT}

    async with connect("memory:", transport=MemoryTransport({"small": small}), store=bench.folder / "at-once") as app:

        async def serial() -> None:
            for _ in range(_AT_ONCE):
                await app.call("small")

        async def together() -> None:
            await asyncio.gather(*(app.call("small") for _ in range(_AT_ONCE)))

        ways = {
            "serial": at_once(serial, _AT_ONCE, processor=used["serial"]),
            "at_once": at_once(together, _AT_ONCE, processor=used["at_once"]),
        }
        times = await in_turns(ways, rounds=5 if bench.quick else 10)
    middle = {name: median(values) * 1e6 for name, values in times.items()}
    processor = {name: median(values) * 1e6 for name, values in used.items()}
    return Row(
        work=f"{_AT_ONCE} small calls at once, default store, in-process",
        baseline="one after the other",
        figure=middle["serial"] / middle["at_once"],
        at_least=1.2,
        want=5,
        measured=f"{middle['at_once']:.0f} µs a call against {middle['serial']:.0f}; processor "
        f"{processor['at_once']:.0f} µs against {processor['serial']:.0f}",
        reason=f"the processor is the bound: a call that waits for nobody takes {processor['serial']:.0f} µs of it, "
        f"most of them under the interpreter's lock, and {processor['at_once']:.0f} at once; five times as fast would "
        f"be {middle['serial'] / 5:.0f}, and the system calls of one artifact alone take about 50",
    )
