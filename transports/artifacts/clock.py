"""The time in a store, which no setting of the machine's clock disturbs.

The clock of the machine may be set while a program runs, by a person or by a server of time. Beside it stands one that
nobody sets: the time that has passed since this module was loaded. What is stored is noted by the later of the two, and
its age is by the earlier of the two. So no jump makes it look older than it is, as long as the program runs. A program
that starts later knows only the machine's clock.
"""

from __future__ import annotations

import time

__all__ = ["Ages", "now", "stamp"]

#: Artifacts of the future that are remembered.
_MAX_SEEN = 100_000


def elapsed() -> float:
    """Return the seconds since some moment, sleep of the machine included where the system counts it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


_START = time.time() - elapsed()


def stamp() -> float:
    """Return when something is that happens now, in seconds since 1970, to be kept."""
    return max(time.time(), _START + elapsed())


def now() -> float:
    """Return the time to compare with what was kept, in seconds since 1970."""
    return min(time.time(), _START + elapsed())


class Ages:
    """The ages of artifacts and files by when they were stored. What was stored in the future, by a clock that has been
    set back since, counts from when it was first asked for."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def of(self, key: str, stored: float) -> float:
        """Return the age of ``key`` in seconds, at least 0. ``stored`` is in seconds since 1970."""
        age = now() - stored
        if age >= 0 and key not in self._seen:
            return age
        known, since = self._seen.get(key, (stored, elapsed()))
        if known != stored:  # it was stored again
            since = elapsed()
        self._seen[key] = stored, since
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return max(age, elapsed() - since)
