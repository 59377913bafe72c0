"""How processor time grows with the work: its exponent over three decades. 1 is linear, 0 constant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from math import log
from pathlib import Path
from statistics import linear_regression

from tests.benchmarks.filled import filled_store
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from transports import LocalStore, MemoryTransport, connect
from transports.artifacts import open_store
from transports.batch import Job, Outcome, State, open_ledger
from transports.batch.ledger._schema import Settlement
from transports.memory import Call

__all__ = ["growth"]

#: Does the work of one size, and returns the seconds of the processor that it took.
Work = Callable[[int], Awaitable[float]]


async def growth(bench: Bench) -> list[Row]:
    """The exponents of what users have many of."""
    folders = (bench.folder / f"growth-{number}" for number in count())
    tens = (10, 100, 1000, 10_000)
    return [
        await _row("artifacts listed, the index made", tens, lambda size: _list_artifacts(bench, size, indexed=False)),
        await _row("artifacts listed again", tens, lambda size: _list_artifacts(bench, size, indexed=True)),
        await _row("one artifact stored beside others", tens, lambda size: _store_beside(bench, size)),
        await _row("ten artifacts deleted beside others", tens, lambda size: _delete_beside(bench, size)),
        await _row("jobs added to a ledger", tens, lambda size: _add_jobs(next(folders), size)),
        await _row("jobs leased and settled", tens, lambda size: _finish_jobs(next(folders), size)),
        await _row("sessions opened at once, one call each", (1, 10, 100, 1000), _open_sessions),
        await _row("bytes of JSON in an answer", (10_000, 100_000, 1_000_000, 10_000_000), _answer),
        await _row("tools of an app, opened and one called", tens, _open_app),
    ]


async def _row(work: str, sizes: Sequence[int], measure: Work) -> Row:
    await measure(sizes[0])
    best = []
    for size in sizes:
        rounds = 1 if size in sizes[-2:] else 3
        best.append(min([await measure(size) for _ in range(rounds)]))
    shown = ", ".join(f"{1000 * seconds:,.1f} ms for {size:,}" for size, seconds in zip(sizes, best, strict=True))
    # Least squares of the logarithms.
    exponent = linear_regression([log(size) for size in sizes], [log(seconds) for seconds in best]).slope
    return Row(f"growth: {work}", "their number", exponent, shown, unit="n^")


async def _list_artifacts(bench: Bench, size: int, *, indexed: bool) -> float:
    root = await filled_store(bench, size)
    store = LocalStore(root)
    if indexed:
        await store.list()
    else:
        for file in (root / ".abp").glob("index.sqlite*"):
            file.unlink()
    started = time.process_time()
    assert len(await store.list()) == size
    return time.process_time() - started


async def _store_beside(bench: Bench, size: int) -> float:
    store = LocalStore(await filled_store(bench, size))
    started = time.process_time()
    ref = await store.put_bytes(b"one more", durability="process")
    seconds = time.process_time() - started
    await store.delete(ref.id)
    return seconds


async def _delete_beside(bench: Bench, size: int) -> float:
    store = LocalStore(await filled_store(bench, size))
    refs = [await store.put_bytes(b"%d more" % number, durability="process") for number in range(10)]
    started = time.process_time()
    for ref in refs:
        await store.delete(ref.id)
    return time.process_time() - started


async def _nothing(params: Mapping[str, object], call: Call) -> object:
    return {}


def _batches(size: int) -> Iterator[list[Job]]:
    for first in range(0, size, 500):
        yield [Job("do", {"n": n}, f"http://app-{n % 4}.example/") for n in range(first, min(first + 500, size))]


async def _add_jobs(folder: Path, size: int) -> float:
    async with open_ledger(folder) as ledger:
        started = time.process_time()
        await ledger.add(lambda: _batches(size), "growth")
        return time.process_time() - started


async def _finish_jobs(folder: Path, size: int) -> float:
    async with open_ledger(folder) as ledger:
        await ledger.add(lambda: _batches(size), "growth")
        started = time.process_time()
        while leased := await ledger.lease(100, 60.0):
            await ledger.settle([Settlement(job.key, Outcome(job.job, State.SUCCEEDED)) for job in leased])
        return time.process_time() - started


async def _open_sessions(size: int) -> float:
    async def session() -> None:
        async with connect("memory:", transport=MemoryTransport({"do": _nothing}), store="none:") as app:
            await app.call("do")

    started = time.process_time()
    await asyncio.gather(*(session() for _ in range(size)))
    return time.process_time() - started


async def _answer(size: int) -> float:
    rows = [{"name": "Ada", "n": n, "text": "x" * 60} for n in range(size // 100)]

    async def answer(params: Mapping[str, object], call: Call) -> object:
        return rows

    transport = MemoryTransport({"rows": answer})
    async with connect("memory:", transport=transport, store=open_store("memory:")) as app:
        started = time.process_time()
        await app.call("rows")
        return time.process_time() - started


async def _open_app(size: int) -> float:
    transport = MemoryTransport({f"tool.{number}": _nothing for number in range(size)})
    started = time.process_time()
    async with connect("memory:", transport=transport, store="none:") as app:
        await app.call("tool.7")
    return time.process_time() - started
