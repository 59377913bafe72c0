"""Clocks and memory: ways measured in turns (A B A B …), and what the processes of a run grow by."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

import psutil

__all__ = ["MB", "Growth", "Way", "at_once", "in_turns", "python", "resident", "timed"]

MB = 1 << 20
_EVERY = 0.02  # seconds between two looks at the memory

#: One turn of a way: does its work and returns how many seconds each piece of it took.
Way: TypeAlias = Callable[[], Awaitable[Sequence[float]]]


def timed(
    work: Callable[[], Awaitable[Any]],
    *,
    times: int = 1,
    then: Callable[[Any], Awaitable[object]] | None = None,
    processor: list[float] | None = None,
) -> Way:
    """A turn that does some work so often, one after the other. ``then`` gets what the work returned, in time that does
    not count. To ``processor`` the turn adds the seconds of this process's processor for one piece of work."""

    async def turn() -> Sequence[float]:
        taken = []
        before = time.process_time()
        for _ in range(times):
            started = time.perf_counter()
            result = await work()
            taken.append(time.perf_counter() - started)
            if then is not None:
                await then(result)
        if processor is not None:
            processor.append((time.process_time() - before) / times)
        return taken

    return turn


def at_once(work: Callable[[], Awaitable[object]], pieces: int, *, processor: list[float] | None = None) -> Way:
    """A turn that does so many pieces of work in one go, and takes the mean time of one."""

    async def turn() -> Sequence[float]:
        started, before = time.perf_counter(), time.process_time()
        await work()
        if processor is not None:
            processor.append((time.process_time() - before) / pieces)
        return [(time.perf_counter() - started) / pieces]

    return turn


async def python(*arguments: str | os.PathLike[str], **environment: str) -> bytes:
    """What a fresh Python prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment}
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, (arguments, process.returncode)
    return printed


async def in_turns(
    ways: Mapping[str, Way], *, rounds: int, warm: bool = True, pause: float = 0.0
) -> dict[str, list[float]]:
    """The times of each way, one turn of each after the other, so that a noisy neighbour meets all of them.
    With ``warm`` a first round is not counted. ``pause`` in seconds lets what a turn leaves behind in other processes
    (garbage of hundreds of MB) come to rest before the next one."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(-1 if warm else 0, rounds):
        for name, way in ways.items():
            await asyncio.sleep(pause)
            taken = await way()
            if round_ >= 0:
                times[name] += taken
    return times


def _processes(own: psutil.Process) -> dict[str, list[psutil.Process]]:
    """Python is the process itself, the driver its children, the browser what they started."""
    drivers = own.children()
    browser: list[psutil.Process] = []
    for driver in drivers:
        with contextlib.suppress(psutil.Error):
            browser += driver.children(recursive=True)
    return {"python": [own], "driver": drivers, "browser": browser}


def resident(process: psutil.Process | None = None) -> dict[str, int]:
    """Resident bytes of ``python``, ``driver`` and ``browser`` (all its processes; pages they share count in each), of
    this process or of another one."""
    found: dict[str, int] = {}
    for name, processes in _processes(process or psutil.Process()).items():
        found[name] = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                found[name] += process.memory_info().rss
    return found


class Growth:
    """Watches the memory from a thread while the block runs: ``peak`` is the most, ``left`` what remains at the end,
    both in bytes above what there was before."""

    def __enter__(self) -> Self:
        self.before = resident()
        self._most = dict(self.before)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch")
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY):
            for name, size in resident().items():
                self._most[name] = max(self._most[name], size)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        after = resident()
        self.peak = {name: max(self._most[name], after[name]) - size for name, size in self.before.items()}
        self.left = {name: after[name] - size for name, size in self.before.items()}

    async def settled(self, within: float = 3.0) -> dict[str, int]:
        """What remains once the processes had time to give memory back: the least seen, or nothing as soon as seen."""
        least = dict(self.left)
        end = time.monotonic() + within
        while max(least.values()) > 0 and time.monotonic() < end:
            await asyncio.sleep(0.1)
            for name, size in resident().items():
                least[name] = min(least[name], size - self.before[name])
        return least
