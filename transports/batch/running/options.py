"""How the jobs of a run are sent: how many at once, how fast, how often again."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...errors import UsageError
from ...protocol.durations import MAX_TIMEOUT
from ..consent import Consent

__all__ = ["RunOptions", "pool_size"]


#: The largest number of any other limit; a ledger has room for no larger ones.
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The limits of one worker.

    ``concurrency`` jobs run at once; of one host at most ``per_host``, by all workers of the run together. ``rate`` is
    how many are sent in a second. A job whose outcome is ``retryable`` is sent again up to ``retries`` times. After
    ``deadline`` seconds nothing more is begun. A lease lasts ``lease_seconds`` and is renewed while its job runs.
    ``consent`` is what jobs may do that somebody else may have written; :func:`run` sets it. Without one they may do
    all that jobs of the program itself may.

    Raises :class:`~transports.errors.UsageError` for a number out of its range.
    """

    concurrency: int = 8
    per_host: int | None = None
    rate: float | None = None
    retries: int = 3
    deadline: float | None = None
    lease_seconds: float = 60.0
    consent: Consent | None = None

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("concurrency", self.concurrency, 1, _MOST),
            ("per_host", self.per_host, 1, _MOST),
            ("retries", self.retries, 0, _MOST),
            ("rate", self.rate, 1e-6, _MOST),
            ("deadline", self.deadline, 1e-6, MAX_TIMEOUT),
            ("lease_seconds", self.lease_seconds, 1, MAX_TIMEOUT),
        ):
            if value is not None and (isinstance(value, bool) or not least <= value <= most):
                raise UsageError(f"{name} must be a number from {least:g} to {most:,}")


def pool_size(concurrency: int, browsers: int | None = None) -> tuple[int, int]:
    """Return how many browsers a pool needs, by default one for each core, and how many sessions each of them, so that
    there is a session for each of ``concurrency`` jobs."""
    count = browsers or min(concurrency, os.cpu_count() or 1)
    return count, -(-concurrency // count)
