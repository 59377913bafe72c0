"""Small answers that are kept: the default store beside none, many at once beside one after the other."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from statistics import median

import msgspec

from tests.benchmarks.commands import command
from tests.benchmarks.measure import Way, at_once, in_turns, timed
from tests.benchmarks.pages import Bench, plain_page
from tests.benchmarks.report import Row
from transports import MemoryTransport, connect
from transports.memory import Call

__all__ = ["kept_answers"]

_AT_ONCE = 64
_TEXT = "x" * 900


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
        sent = await command(cdp.send, "data.json", {}, {"timeout": 60_000})

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
