"""Much content: memory of a huge file, many results in a row, many sessions at once."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.benchmarks.measure import MB, Growth
from tests.benchmarks.pages import Bench, collect, only_artifact
from tests.benchmarks.report import Row, Table
from tests.benchmarks.speed import rungs
from transports import ABPError, Session
from webapp_fixture import digest

__all__ = ["huge_file", "many_results", "many_sessions"]

_KEEPS = "the app's own buffer and the blobs made of it count as the browser's"


def _mb(size: float) -> float:
    return max(size, 0) / MB


def _streams_hold(streams: int, left: int) -> str:
    if streams * MB > left / 2:
        return f"about the size of the {streams} results that the stream rung moved: the page still holds them"
    return "memory that the browser keeps for later use; pages that its processes share count in each"


def _streams_pass(streams: int) -> str:
    if streams:
        return (
            f"{streams} of the files went by the stream rung, in pieces of 4 MB through Python, because with so much "
            "at once the browser had not begun their download in time"
        )
    return "each session has a thread and a buffer of 1 MB to hash with"


async def huge_file(bench: Bench) -> tuple[list[Row], list[Table]]:
    """A file far larger than anybody wants in memory."""
    size = (128 if bench.quick else 448) * MB
    expected = digest(size)
    async with bench.session(bench.folder / "store") as (app, transport, _):
        warm = await app.call("file.generate", {"bytes": 2 * MB})
        await app.store.delete(only_artifact(warm).id)
        with Growth() as growth:
            started = time.perf_counter()
            result = await app.call("file.generate", {"bytes": size})
            seconds = time.perf_counter() - started
        ref = only_artifact(result)
        wrong = "" if ref.sha256 == expected else "the file is not whole"
        await app.store.delete(ref.id)
        used = dict(transport.rungs)
    measured = f"{size / MB / seconds:.0f} MB/s, the app's making of it included; rungs used: {rungs(used)}"
    rows = [
        Row(
            work=f"page → verified file, {size // MB} MB: growth of {who}",
            baseline="before the call",
            figure=_mb(growth.peak[process]),
            unit="MB",
            at_least=64,
            want=16,
            measured=measured if process == "python" else f"{_mb(growth.left[process]):.1f} MB stay",
            reason="content this large is put together from slices, and each slice is copied through Python",
            wrong=wrong,
        )
        for process, who in (("python", "Python"), ("driver", "the driver (node)"))
    ]
    return rows, []


async def many_results(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Results of 1 MB from one page, one after the other."""
    count = 20 if bench.quick else 30
    sizes = [MB + extra for extra in range(count)]
    expected = {size: digest(size) for size in sizes}
    whole = 0
    async with bench.session(bench.folder / "store") as (app, transport, page):
        for _ in range(10):
            await app.call("file.generate", {"bytes": MB, "seed": 1})
        await collect(page)
        await asyncio.sleep(1)
        warm = dict(transport.rungs)
        with Growth() as growth:
            started = time.perf_counter()
            for size in sizes:
                ref = only_artifact(await app.call("file.generate", {"bytes": size}))
                whole += ref.sha256 == expected[size] and ref.size_bytes == size
            seconds = time.perf_counter() - started
            await collect(page)
            await asyncio.sleep(1)
        left = await growth.settled()
        used = {name: times - warm[name] for name, times in transport.rungs.items()}
        for stored in await app.store.list():
            await app.store.delete(stored.id)
    row = Row(
        work=f"{count} results of 1 MB in a row: growth of the browser",
        baseline="before them, garbage collected",
        figure=_mb(left["browser"]),
        unit="MB",
        at_least=16,
        want=8,
        measured=f"{whole} of {count} whole in {seconds:.1f} s ({count / seconds:.0f} a second); at the most "
        f"{_mb(growth.peak['browser']):.0f} MB; Python {_mb(left['python']):.1f} MB; rungs used: {rungs(used)}",
        reason=_streams_hold(used["stream"], left["browser"]),
        wrong="" if whole == count else f"only {whole} of {count} whole",
    )
    return [row], []


async def many_sessions(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Sessions that share one browser, each taking a large file at the same moment."""
    count, each = (4, 16 * MB) if bench.quick else (8, 32 * MB)
    sizes = [each + extra for extra in range(count)]
    expected = {size: digest(size) for size in sizes}
    dropped: list[str] = []
    used: dict[str, int] = {}
    whole = 0

    async def one(app: Session, size: int) -> float:
        nonlocal whole
        started = time.perf_counter()
        try:
            ref = only_artifact(await app.call("file.generate", {"bytes": size}, timeout=120))
        except ABPError as error:
            dropped.append(f"{error.code}: {error.message}")
            return 0.0
        whole += ref.sha256 == expected[size] and ref.size_bytes == size
        return time.perf_counter() - started

    async with contextlib.AsyncExitStack() as stack:
        sessions = []
        for number in range(count):
            app, transport, _ = await stack.enter_async_context(bench.session(bench.folder / f"store-{number}"))
            await app.call("file.generate", {"bytes": MB})
            sessions.append((app, transport))
        warm = {name: sum(transport.rungs[name] for _, transport in sessions) for name in transport.rungs}
        with Growth() as growth:
            seconds = max(
                await asyncio.gather(*(one(app, size) for (app, _), size in zip(sessions, sizes, strict=True)))
            )
        for name, before in warm.items():
            used[name] = sum(transport.rungs[name] for _, transport in sessions) - before
    left = await growth.settled()
    wrong = "" if whole == count else f"only {whole} of {count} whole" + f" ({dropped[0][:200]})" * bool(dropped)
    measured = f"{whole} of {count} whole, {count * each / MB / seconds:.0f} MB/s in all; rungs used: {rungs(used)}"
    rows = [
        Row(
            work=f"{count} sessions of {each // MB} MB at once: growth of Python",
            baseline="the sessions idle",
            figure=_mb(growth.peak["python"]),
            unit="MB",
            at_least=64,
            want=16,
            measured=measured,
            reason=_streams_pass(used["stream"]),
            wrong=wrong,
        ),
        Row(
            work=f"{count} sessions of {each // MB} MB at once: growth of the browser",
            baseline="the sessions idle",
            figure=_mb(growth.peak["browser"]),
            unit="MB",
            measured=f"the content itself is {count * each / MB:.0f} MB; {_KEEPS}; "
            f"{_mb(left['browser']):.0f} MB more than before stay once the sessions have closed",
            wrong=wrong,
        ),
    ]
    return rows, []
