"""Small answers of a page's app, against the least that a client of the page can do for them.

The app has made each answer beforehand: its work is in no figure.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from statistics import median

from tests.benchmarks.commands import AS_BASE64, AS_TEXT, command, hashed, parsed
from tests.benchmarks.measure import in_turns, timed
from tests.benchmarks.pages import Bench, plain_page
from tests.benchmarks.report import Row

__all__ = ["small_calls"]

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
            of_text, form = (hashed, AS_BASE64) if name == "bench.file" else (parsed, AS_TEXT)
            ways = {
                "evaluate": timed(partial(plain.evaluate, _CALL, [name, _PARAMS, _OPTIONS]), times=calls),
                "command": timed(of_text(await command(cdp.send, name, _PARAMS, _OPTIONS, form)), times=calls),
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
