"""Timeouts as callers give them, and the time that is left of one."""

from __future__ import annotations

import math
import time

from ..errors import UsageError
from ..protocol.durations import MAX_TIMEOUT, is_timeout

__all__ = ["seconds_left", "timeout_seconds"]


def timeout_seconds(timeout: float | None, default: float) -> float:
    """Return ``timeout`` in seconds, or ``default``, which is in **milliseconds**, if it is ``None``.

    ``math.inf`` waits for ever. Raises :class:`~transports.errors.UsageError` for zero, negative numbers, NaN, what is
    no number, and more than a million seconds (:data:`~transports.protocol.durations.MAX_TIMEOUT`).
    """
    if timeout is None:
        return default / 1000
    if is_timeout(timeout) or timeout == math.inf:
        return timeout
    raise UsageError(
        f"timeout must be a number of seconds above 0, at most {MAX_TIMEOUT:,}, or math.inf to wait for ever"
    )


def seconds_left(deadline: float) -> float:
    """Return the seconds until ``deadline`` (of :func:`time.monotonic`), at least a millisecond."""
    return max(deadline - time.monotonic(), 0.001)
