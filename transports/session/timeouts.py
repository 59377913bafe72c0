"""Timeouts as callers give them, and the time that is left of one."""

from __future__ import annotations

import time

from ..errors import UsageError

__all__ = ["seconds_left", "timeout_seconds"]


def timeout_seconds(timeout: float | None, default: float) -> float:
    """Return ``timeout`` in seconds, or ``default``, which is in **milliseconds**, if it is ``None``.

    ``math.inf`` waits for ever. Raises :class:`~transports.errors.UsageError` for zero, negative numbers, NaN, and what
    is no number.
    """
    if timeout is None:
        return default / 1000
    if isinstance(timeout, int | float) and timeout > 0:
        return timeout
    raise UsageError(f"timeout must be a positive number of seconds, or math.inf to wait for ever, not {timeout!r}")


def seconds_left(deadline: float) -> float:
    """Return the seconds until ``deadline`` (of :func:`time.monotonic`), at least a millisecond."""
    return max(deadline - time.monotonic(), 0.001)
