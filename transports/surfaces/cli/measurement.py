"""What ``abp bench`` measures: how long calls take, how much they answer, and how they fail."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import ABPError, UsageError
from .option_names import naming_options

if TYPE_CHECKING:
    from ...session.session import Session

__all__ = ["Failure", "Measurement", "percentile"]

#: The percentiles of a report, by their names. The 0th is the fastest call, the 100th the slowest.
_PERCENTILES = {"min": 0, "median": 50, "p95": 95, "p99": 99, "max": 100}


@dataclass(slots=True)
class Failure:
    """Calls that failed with one code: how many, and the message of the first."""

    message: str
    count: int = 0


@dataclass(slots=True)
class Measurement:
    """The figures of a number of calls of one capability, ``concurrency`` of them under way at once.

    It is filled while :meth:`run` runs, so that a run that is interrupted leaves what it measured until then. Times are
    in seconds. What the calls store is removed at once, or the next answer with the same content would be found and not
    stored; that time is in no figure.
    """

    capability: str
    planned: int
    concurrency: int
    transport: str = ""
    #: The latencies of the calls that succeeded, in the order in which they ended.
    latencies: list[float] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    #: Bytes of the artifacts of the calls that succeeded.
    size: int = 0
    #: Contents that each rung of the transport moved (:attr:`transports.Transport.rungs`).
    rungs: Mapping[str, int] = field(default_factory=dict)
    #: Whether the session ended before all calls were made.
    session_ended: bool = False
    _begun: int = 0
    _busy: dict[int, float] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Number of calls that failed."""
        return sum(failure.count for failure in self.failures.values())

    @property
    def calls(self) -> int:
        """Number of calls that have ended."""
        return len(self.latencies) + self.failed

    @property
    def seconds(self) -> float:
        """How long the calls took: the time of the busiest of those who call, without what they did between calls."""
        return max(self._busy.values(), default=0.0)

    def per_second(self, amount: float) -> float:
        """Return ``amount`` per second of the calls; 0 if there were none."""
        return amount / self.seconds if self.seconds else 0.0

    def latency_ms(self) -> dict[str, float]:
        """Return the percentiles of the latencies in milliseconds: ``min``, ``median``, ``p95``, ``p99`` and ``max``.
        Empty if no call succeeded."""
        ordered = sorted(self.latencies)
        return {name: 1000 * percentile(ordered, at) for name, at in _PERCENTILES.items()} if ordered else {}

    def as_dict(self) -> dict[str, object]:
        """Return the figures as JSON, as docs/command-line.md describes them."""
        return {
            "success": not self.failed and self.calls == self.planned,
            "capability": self.capability,
            "transport": self.transport,
            "planned": self.planned,
            "calls": self.calls,
            "failed": self.failed,
            "concurrency": self.concurrency,
            "seconds": round(self.seconds, 6),
            "calls_per_second": round(self.per_second(len(self.latencies)), 3),
            "bytes": self.size,
            "bytes_per_second": round(self.per_second(self.size), 1),
            "latency_ms": {name: round(value, 3) for name, value in self.latency_ms().items()} or None,
            "rungs": dict(self.rungs),
            "errors": [
                {"code": code, "count": failure.count, "message": failure.message}
                for code, failure in self.failures.items()
            ],
        }

    async def run(
        self,
        app: Session,
        params: Mapping[str, object],
        *,
        timeout: float | None = None,
        on_call: Callable[[int], object] = lambda count: None,
    ) -> None:
        """Call once to warm up, which counts for nothing, then make the calls; ``on_call`` gets the number of those
        that have ended.

        A call that fails is counted and does not end the others, unless the session did not survive it. Raises
        :class:`~transports.errors.UsageError` for parameters that the capability does not take, and the error of the
        first call if it ended the session."""
        self.transport = app.transport.name
        try:
            warm = await app.call(self.capability, params, timeout=timeout)
            await _remove(app, warm)
        except ABPError as error:
            if isinstance(error, UsageError) or not error.session_survives:
                raise
            await _remove(app, error)
        before = app.transport.rungs
        try:
            async with asyncio.TaskGroup() as group:
                for caller in range(min(self.concurrency, self.planned)):
                    group.create_task(self._call_in_turn(caller, app, params, timeout, on_call))
        finally:
            moved = {name: count - before.get(name, 0) for name, count in app.transport.rungs.items()}
            self.rungs = {name: count for name, count in moved.items() if count}

    async def _call_in_turn(
        self,
        caller: int,
        app: Session,
        params: Mapping[str, object],
        timeout: float | None,
        on_call: Callable[[int], object],
    ) -> None:
        while self._begun < self.planned and not self.session_ended:
            self._begun += 1
            stored: object = None
            started = time.perf_counter()
            try:
                stored = result = await app.call(self.capability, params, timeout=timeout)
                taken = time.perf_counter() - started
            except ABPError as error:
                taken = time.perf_counter() - started
                stored = error
                self.failures.setdefault(error.code, Failure(naming_options(error).message)).count += 1
                self.session_ended = self.session_ended or not error.session_survives
            else:
                self.latencies.append(taken)
                self.size += sum(ref.size_bytes for ref in result.artifacts.values())
            self._busy[caller] = self._busy.get(caller, 0.0) + taken
            on_call(self.calls)
            await _remove(app, stored)


async def _remove(app: Session, outcome: object) -> None:
    """Remove what a result holds, or an error with the part of an answer that could be stored."""
    result = getattr(outcome, "result", outcome)
    for ref in dict(getattr(result, "artifacts", {})).values():
        with suppress(ABPError):  # another call with the same answer has removed it
            await app.store.delete(ref.id)


def percentile(ordered: Sequence[float], at: float) -> float:
    """Return the smallest of ``ordered`` values that at least ``at`` percent of them do not exceed (the nearest rank):
    always one that was measured."""
    return ordered[max(math.ceil(len(ordered) * at / 100) - 1, 0)]
