"""What a pool tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BrowserStats", "PoolStats"]


@dataclass(frozen=True, slots=True)
class BrowserStats:
    """One browser of a pool, by its ``number`` in the order of their starts.

    ``age`` is in seconds, ``resident_bytes`` the memory of all its processes and its driver when it was last looked at
    (0 for one that runs elsewhere), ``recent_ms`` the median of its latest hundred calls. ``draining`` says that its
    successor serves already.
    """

    number: int
    sessions: int
    leased: int
    calls: int
    age: float
    resident_bytes: int
    recent_ms: float
    draining: bool


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The state of a pool: its ``browsers``, sessions that are open, those of them that are leased to a call, and calls
    that wait for one. ``recycled`` counts the browsers that were replaced by reason: ``calls``, ``age``, ``memory``,
    ``slow``, ``lease`` (a call outlived it), ``unresponsive``, ``ended`` (it died)."""

    browsers: tuple[BrowserStats, ...]
    sessions: int
    leased: int
    waiting: int
    calls: int
    recycled: Mapping[str, int]
