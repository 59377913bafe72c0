"""Points in time as JSON text. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["iso_utc"]


def iso_utc(seconds: float, *, timespec: str = "milliseconds") -> str:
    """Return Unix time in seconds as RFC 3339 text in UTC, such as ``2026-07-28T12:00:00.250Z``. ``timespec`` is
    that of :meth:`datetime.datetime.isoformat`; digits beyond it are cut."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
