"""Timeouts and their range, durations as text (``90s``, ``30m``, ``1h``, ``7d``), timestamps."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from ..errors import UsageError

#: Longest timeout in seconds, 11 days. A page counts milliseconds in 32 bits, where much longer timers end at once.
MAX_TIMEOUT = 1_000_000
#: Seconds by which an app's timer may be ahead of ours: an answer ``TIMEOUT`` that comes then is a timeout of the call.
TIMER_TOLERANCE = 0.05

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_UNIT_NAMES = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def is_timeout(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= MAX_TIMEOUT


def checked_timeout(seconds: float) -> float:
    if is_timeout(seconds) or seconds == math.inf:
        return seconds
    if isinstance(seconds, int) and seconds > MAX_TIMEOUT:
        value = "a larger number"  # Python refuses to write thousands of digits
    else:
        value = repr(seconds)[:60]
    bounds = f"a positive number of seconds, at most {MAX_TIMEOUT:,}, or math.inf to wait for ever"
    raise UsageError(f"timeout must be {bounds}, not {value}")


def parse_duration(text: str) -> int | None:
    """Return the seconds of a text such as ``90s``, ``30m``, ``1h``, ``7d`` or ``3600``; ``None`` for other texts."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.strip())
    if match is None:
        return None
    return int(match[1]) * _UNITS[match[2] or "s"]


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that divides it, such as ``1 hour`` or ``90 minutes``."""
    divisors = [unit for unit in _UNIT_NAMES if seconds and seconds % unit[0] == 0]
    size, name = divisors[0] if divisors else (1, "second")
    plural = "" if seconds == size else "s"
    return f"{seconds / size:g} {name}{plural}"


def iso_utc(seconds: float, *, timespec: str = "milliseconds") -> str:
    """Return RFC 3339 text in UTC, such as ``2026-07-28T12:00:00.250Z``. Digits beyond ``timespec`` are cut."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
