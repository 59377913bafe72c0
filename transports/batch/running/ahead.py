"""Jobs that are leased ahead of time: one transaction of the ledger is for several short ones."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable

from ..ledger import Leased
from ..ledger.columns import host_of
from .options import RunOptions

__all__ = ["Ahead", "Elapsed"]

#: Jobs that take less than so many seconds are short.
_SHORT = 0.1
#: Seconds that a job may wait here: another worker may be free.
_MAX_WAIT = 1.0
#: The part of a lease within which a job is begun. Later, it might be another worker's by then.
_SAFE = 0.5


class Elapsed:
    """The time since it was made, by two clocks: the first goes on evenly, the second also while the machine sleeps."""

    def __init__(self) -> None:
        self._began = time.monotonic(), time.time()

    @property
    def seconds(self) -> float:
        """The seconds, by the clock that counts more of them."""
        return max(time.monotonic() - self._began[0], time.time() - self._began[1])


class Ahead:
    """The jobs that one worker has leased and not begun, and how many there should be.

    None while jobs are long, and none under a limit that counts what is leased: other workers would get less than they
    could run."""

    def __init__(self, options: RunOptions) -> None:
        limited = options.rate is not None or options.per_host is not None
        self._most = 0 if limited else options.concurrency
        self._safe = options.lease_seconds * _SAFE
        #: Each with the time since it was asked for, and since it came: a slow ledger's answer is no wait here.
        self._jobs: deque[tuple[Leased, Elapsed, Elapsed]] = deque()
        self._average = math.inf

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def size(self) -> int:
        """How many jobs to lease beyond those that run."""
        return self._most if self._average < _SHORT else 0

    @property
    def is_low(self) -> bool:
        """Whether it is time to lease more."""
        return len(self._jobs) <= self.size // 8

    @property
    def seconds(self) -> float:
        """How long the first may still wait; infinity if there is none."""
        return self._left(*self._jobs[0][1:]) if self._jobs else math.inf

    def _left(self, asked: Elapsed, came: Elapsed) -> float:
        """How long a job that was ``asked`` for and ``came`` then may still wait."""
        return max(min(_MAX_WAIT - came.seconds, self._safe - asked.seconds), 0.0)

    def add(self, jobs: Iterable[Leased], asked: Elapsed, others: Collection[str]) -> None:
        """Add jobs that were ``asked`` for then, but for those that are here and the ``others`` that the worker has:
        our own lease of them had ended meanwhile."""
        known, came = {*others, *(one.key for one, *_ in self._jobs)}, Elapsed()
        self._jobs += ((one, asked, came) for one in jobs if one.key not in known)

    def take(self) -> Leased:
        """Return the job that is begun next."""
        return self._jobs.popleft()[0]

    def drop(self, closed: Collection[str], *, stopped: bool) -> list[Leased]:
        """Take out what will not be begun soon: what has waited too long, what is of a ``closed`` host, and all if the
        worker has ``stopped``. Another worker may have it, or this one later."""
        dropped: list[Leased] = []
        if not self._jobs or not (stopped or closed or not self.seconds):
            return dropped
        jobs, self._jobs = self._jobs, deque()
        for one, asked, came in jobs:
            late = not self._left(asked, came)
            if late or stopped or host_of(one.job) in closed:
                dropped.append(one)
            else:
                self._jobs.append((one, asked, came))
            if late:
                self.count(None)
        return dropped

    def count(self, seconds: float | None) -> None:
        """Count a job that took so long. ``None`` is one that ends later, or is sent again: older than what is leased
        ahead, it would wait behind it."""
        if seconds is None:
            self._average = max(self._average if self._average < math.inf else 0.0, _SHORT * 10)
        else:
            self._average = self._average * 7 / 8 + seconds / 8 if self._average < math.inf else seconds
