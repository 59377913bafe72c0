"""What an engine tells of its browsers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..pool import PoolStats

__all__ = ["WorkReport"]


@dataclass(frozen=True, slots=True)
class WorkReport:
    """``calls`` are all that were made; ``recycled`` says how many browsers were replaced, by reason."""

    calls: int = 0
    recycled: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_stats(cls, stats: PoolStats) -> WorkReport:
        """Return what a pool tells."""
        return cls(stats.calls, dict(stats.recycled))
