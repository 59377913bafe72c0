"""Timeouts as callers give them, and the time that is left of one."""

from __future__ import annotations

import time

from ..protocol.durations import checked_timeout

__all__ = ["seconds_left", "timeout_seconds"]


def timeout_seconds(timeout: float | None, default: float) -> float:
    """Return ``timeout`` in seconds, or ``default``, which is in **milliseconds**, if it is ``None``.

    ``math.inf`` waits for ever. Raises :class:`~transports.errors.UsageError` for zero, negative numbers, NaN, what is
    no number, and more than a million seconds (:data:`~transports.protocol.durations.MAX_TIMEOUT`).
    """
    return default / 1000 if timeout is None else checked_timeout(timeout)


def seconds_left(deadline: float) -> float:
    """Return the seconds until ``deadline`` (of :func:`time.monotonic`), at least a millisecond."""
    return max(deadline - time.monotonic(), 0.001)
