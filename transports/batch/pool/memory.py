"""How much memory is free for more browsers and sessions."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

import psutil

__all__ = ["FreeMemory", "free_memory"]

#: Seconds that one measurement holds for.
_MEASURED_FOR = 0.25

#: Where a container's limit is told, what it uses, and the name of its page cache that the kernel gives back: of
#: version 2 of control groups, and of version 1.
_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_memory() -> int:
    """Return the bytes that new processes can have without swapping: of this machine, or of the container's limit
    where that leaves less."""
    return int(min(psutil.virtual_memory().available, *(_free_in_group(*group) for group in _GROUPS)))


def _free_in_group(folder: str, limit: str, used: str, cache: str) -> float:
    with contextlib.suppress(OSError, ValueError):  # no container, no limit ("max"), or another operating system
        allowed = int(Path(folder, limit).read_text())
        stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
        return allowed - int(Path(folder, used).read_text()) + int(stat.get(cache, 0))
    return math.inf


class FreeMemory:
    """Whether ``floor`` bytes are free, as of a moment ago."""

    def __init__(self, floor: int) -> None:
        self._floor = floor
        self._free, self._measured = 0, -math.inf

    def suffices(self) -> bool:
        """Whether there is memory for one more session or browser."""
        now = time.monotonic()
        if now - self._measured > _MEASURED_FOR:
            self._free, self._measured = free_memory(), now
        return self._free >= self._floor
