"""Points in time as JSON text."""

from __future__ import annotations

from transports.protocol._times import iso_utc


def test_a_point_in_time_is_utc_with_milliseconds_unless_asked_otherwise() -> None:
    assert iso_utc(0) == "1970-01-01T00:00:00.000Z"
    assert iso_utc(1_785_240_000.2509) == "2026-07-28T12:00:00.250Z"
    assert iso_utc(1_785_240_000.9, timespec="seconds") == "2026-07-28T12:00:00Z"
