"""Dates and delays in HTTP headers."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_date(text: str) -> datetime | None:
    """Return the date in a header (RFC 9110 §5.6.7) with a time zone, or ``None`` if it is invalid."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return date


def retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds of ``Retry-After``, a number or a date (RFC 9110 §10.2.3). ``now`` is Unix seconds."""
    longest_wait = 1e9
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), longest_wait)

    date = http_date(text)
    if date is None:
        return None
    delay = max(0.0, date.timestamp() - now)
    return min(delay, longest_wait)
