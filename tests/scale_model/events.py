"""Discrete events: processes that wait for time and for resources, on a clock that jumps."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from itertools import count
from typing import TypeAlias

#: What a process yields: seconds to wait, a resource to wait for and have, or a bell to wait for.
Process: TypeAlias = Generator["float | Resource | Bell", None, None]


class Resource:
    """Something that ``capacity`` processes have at once; the others wait in turn."""

    def __init__(self, clock: Clock, capacity: int) -> None:
        self._clock = clock
        self._free = capacity
        self._capacity = capacity
        self._waiting: deque[Process] = deque()
        self._since = self._used = 0.0

    def take(self, process: Process) -> bool:
        if not self._free:
            self._waiting.append(process)
            return False
        self._count()
        self._free -= 1
        return True

    def release(self) -> None:
        """Take it back from whoever has it, for the next in turn."""
        if self._waiting:
            self._clock.go_on(self._waiting.popleft())
        else:
            self._count()
            self._free += 1

    def _count(self) -> None:
        self._used += (self._capacity - self._free) * (self._clock.now - self._since)
        self._since = self._clock.now

    @property
    def use(self) -> float:
        self._count()
        return self._used / (self._capacity * self._clock.now) if self._clock.now else 0.0


class Bell:
    """Wakes the one process that waits for it, when it is rung or its time is up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sleeper: Process | None = None
        self._naps = 0

    def take(self, process: Process) -> bool:
        self._sleeper = process
        self._naps += 1
        return False

    def ring(self, nap: int | None = None) -> None:
        """Wake the process, or only from its ``nap`` of that number."""
        if self._sleeper is not None and nap in (None, self._naps):
            sleeper, self._sleeper = self._sleeper, None
            self._clock.go_on(sleeper)

    def ring_in(self, seconds: float) -> None:
        """Ring for the next nap in so many seconds, unless that has ended before."""
        self._clock.go_on(self._alarm(self._naps + 1), seconds)

    def _alarm(self, nap: int) -> Process:
        self.ring(nap)
        yield from ()


class Clock:
    """All processes and their time, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Process]] = []
        self._numbers = count()

    def go_on(self, process: Process, seconds: float = 0.0) -> None:
        """Begin a process, or go on with it, in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), process))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, process = heapq.heappop(self._events)
            for wanted in process:
                if isinstance(wanted, float):
                    self.go_on(process, wanted)
                    break
                if not wanted.take(process):
                    break
        self.now = until
