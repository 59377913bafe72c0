"""How long to wait before something is tried again. No I/O."""

from __future__ import annotations

import random

__all__ = ["LONGEST", "delay"]

#: Seconds that nobody waits longer than.
LONGEST = 30.0
_FIRST = 0.1


def delay(attempt: int) -> float:
    """Seconds to wait after ``attempt`` failures in a row, counted from 1. They double, and each is jittered by half:
    clients that lost one server at the same moment must not all come back at the same moment."""
    return min(_FIRST * 2.0 ** min(attempt - 1, 60), LONGEST) * random.uniform(0.5, 1.5)
