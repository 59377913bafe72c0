"""What code costs: processor time, which is the same beside other work and on a slow machine as on a fast one; calls of
functions; memory."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from transports import Session

#: Seconds below which nothing that an app sends may hold the event loop in a test. The kit promises 50 ms
#: (``docs/security.md``); the speed of a busy machine is measured too roughly to tell 40 ms from 50.
BOUND = 0.100
#: Seconds of a turn from which on the speed of the machine is measured beside it.
_NOTICED = 0.02
#: Seconds that :func:`_work` takes on the machine that bounds are written for.
_USUAL = 0.010


def _work() -> None:
    """Count, and build lists: what is measured does both, and other programs take the caches of the second."""
    total = 0
    for number in range(100_000):
        total += number & 7
    kept = []
    for number in range(30_000):
        kept.append([number])


@contextmanager
def untraced() -> Iterator[None]:
    """Measure no coverage in this thread, which takes several times as long as what is measured."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


def _best(work: Callable[[], object], tries: int = 3) -> float:
    best = float("inf")
    with untraced():
        for _ in range(tries):
            began = time.thread_time()
            work()
            best = min(best, time.thread_time() - began)
    return best


def slowness(tries: int = 3) -> float:
    """Return how many times slower than usual this machine is now, at least 1. It differs from one second to the next:
    other programs take the caches and the clock of the processor."""
    return max(1.0, _best(_work, tries) / _USUAL)


def _slowest() -> float:
    """Return the slowness of the slowest of three tries: a turn is measured once, so it may be as unlucky."""
    return max(slowness(tries=1) for _ in range(3))


def measuring() -> int:
    """How many times longer anything may take because coverage is measured."""
    return 1 if sys.gettrace() is None else 4


def seconds(work: Callable[[], object], bound: float = BOUND) -> float:
    """Return how long ``work`` computes in this thread, the best of three, as on the usual machine. The first time
    below ``bound`` is enough: no other would change what its caller asks. What takes longer is measured again beside
    the speed of the machine: other programs only ever make it longer."""
    best = float("inf")
    for _ in range(3):
        best = min(best, _best(work, tries=1))
        if best < bound:
            return best
    best = float("inf")
    for _ in range(3):
        before = _slowest()
        best = min(best, _best(work) / max(before, _slowest()))
        if best < bound:
            break
    return best


class LongestTurn:
    """The longest time for which one callback kept the event loop busy, in seconds of the usual machine."""

    seconds = 0.0


@contextmanager
def longest_turn() -> Iterator[LongestTurn]:
    """Measure every turn of the event loop in the block. What other threads compute does not count, nor that a
    collection of garbage, in whatever thread it falls, looks at all that the tests before have left."""
    longest = LongestTurn()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        try:
            with untraced():
                run(handle)
        finally:
            if (took := time.thread_time() - began) > longest.seconds:
                longest.seconds = max(longest.seconds, took / _slowest() if took > _NOTICED else took)

    gc.collect()
    gc.freeze()  # for good: to unfreeze would give back what tests/conftest.py has frozen, too
    asyncio.Handle._run = measured  # type: ignore[method-assign,assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Give a function that returns by how many bytes this process has grown at most since the block began; 0 where the
    system does not tell."""

    def resident(name: str) -> int:
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith(name):
                    return int(line.split()[1]) << 10
        return 0

    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
    before = resident("VmRSS:")
    yield lambda: max(0, resident("VmHWM:") - before)


async def bytes_held_after(app: Session, capability: str, params: Mapping[str, object]) -> int:
    """Return the bytes that a call leaves in memory once nobody has its answer, after a first one that fills caches."""
    await app.call(capability, params)
    gc.collect()
    tracemalloc.start()
    try:
        await app.call(capability, params)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


class Calls:
    """How many there were."""

    count = 0


@contextmanager
def counted_calls(below: str = "") -> Iterator[Calls]:
    """Count the calls of Python functions in this thread within the block: of all, or of files ``below`` a path."""
    calls, before = Calls(), sys.getprofile()

    def count(frame: FrameType, event: str, argument: object) -> None:
        calls.count += event == "call" and frame.f_code.co_filename.startswith(below)

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
