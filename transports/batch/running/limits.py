"""What keeps a run from overrunning an app: a rate, pauses that hosts ask for, a budget of retries."""

from __future__ import annotations

import math
import time

from aiolimiter import AsyncLimiter

from ...tasks import backoff_delay
from ..outcome import Outcome

__all__ = ["HostPauses", "Rate", "Retries"]

#: Seconds that an app may ask to wait; a job is not sent again where it asks for more.
_MAX_RETRY_AFTER = 3600.0
#: Retries that every run has, and how many more for each job that has ended.
_FREE_RETRIES, _RETRIES_PER_JOB = 20, 0.2
#: Refusals that say when to come back and count as one retry.
_REFUSALS_PER_RETRY = 5
#: Jobs whose refusals are remembered; of others that are lost later, refusals count as other retries.
_MAX_REFUSED = 10_000


class Rate:
    """At most ``per_second`` starts in a second, evenly: no more than a tenth of a second's worth at once. ``None`` is
    no limit."""

    def __init__(self, per_second: float | None) -> None:
        self._limiter: AsyncLimiter | None = None
        self._pause = math.inf
        if per_second is not None:
            burst = max(2.0, per_second / 10)
            self._limiter = AsyncLimiter(burst, burst / per_second)
            self._pause = max(1 / per_second, 0.001)

    def room(self, count: int) -> int:
        """Return how many of ``count`` may start now."""
        if self._limiter is None:
            return count
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._limiter.has_capacity(middle) else (low, middle - 1)
        return low

    def seconds(self) -> float:
        """Return the seconds until there may be room for one, infinity if there is room now."""
        return math.inf if self.room(1) else self._pause

    async def take(self, count: int) -> None:
        """Count ``count`` starts."""
        if self._limiter is not None and count:
            await self._limiter.acquire(count)


class HostPauses:
    """The hosts that asked to be left alone for a while."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def pause(self, host: str, seconds: float) -> None:
        """Leave ``host`` alone for ``seconds``, or for longer if it asked for that before."""
        until = time.monotonic() + min(seconds, _MAX_RETRY_AFTER)
        self._until[host] = max(until, self._until.get(host, 0.0))

    def closed(self) -> frozenset[str]:
        """Return the hosts that are to be left alone now."""
        now = time.monotonic()
        self._until = {host: until for host, until in self._until.items() if until > now}
        return frozenset(self._until)

    def seconds(self) -> float:
        """Return the seconds until the first pause ends, infinity without one."""
        now = time.monotonic()
        return min((until - now for until in self._until.values() if until > now), default=math.inf)


class Retries:
    """Which jobs are sent again, and after how long. A job is sent again ``limit`` times at most. All jobs together
    share a budget, a fifth of what has ended and 20 more, so that an app that is down is not called ``limit`` times for
    each job. A refusal that says when to come back costs nothing of it, and five of them are one of ``limit``: of
    jobs that are sent at once, an app that takes so many in a second refuses the same one again and again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._spent = 0
        self._ended = 0
        #: Refusals of jobs that are sent again, by key, as far as this worker has seen them.
        self._refusals: dict[str, int] = {}

    @property
    def _budget(self) -> float:
        return _FREE_RETRIES + _RETRIES_PER_JOB * self._ended

    def delay(self, outcome: Outcome, attempts: int) -> float | None:
        """Return the seconds until the job is sent again, ``None`` if this outcome is its last."""
        if outcome.retryable:
            key, wait = outcome.job.key, outcome.retry_after
            refused = self._refusals.pop(key, 0)
            if wait is not None:
                if attempts <= self._limit * _REFUSALS_PER_RETRY and wait <= _MAX_RETRY_AFTER:
                    self._remember(key, refused + 1)
                    return max(wait, backoff_delay(1))  # no later than its host is open: older jobs go first
            else:
                spent = attempts - refused + refused // _REFUSALS_PER_RETRY
                if spent <= self._limit and self._spent < self._budget:
                    self._spent += 1
                    self._remember(key, refused)
                    return backoff_delay(spent)
        elif self._refusals:
            self._refusals.pop(outcome.job.key, None)
        self._ended += 1
        return None

    def _remember(self, key: str, refused: int) -> None:
        if refused:
            self._refusals[key] = refused
            if len(self._refusals) > _MAX_REFUSED:  # those that other workers were given, say
                del self._refusals[next(iter(self._refusals))]
