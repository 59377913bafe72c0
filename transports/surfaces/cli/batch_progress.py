"""What ``abp batch`` shows while it works: a bar on a terminal, or a JSON line for each event."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .output import is_dumb_terminal, print_event
from .verbosity import is_quiet

if TYPE_CHECKING:
    from ...batch.ledger import Counts, Settlement

__all__ = ["BatchProgress"]

#: Seconds that the rate is measured over.
_WINDOW = 10.0
#: Jobs whose ends are remembered for it.
_MOST = 5000
#: What is shown until a job ends: the first browsers may take half a minute.
_OPENING = "browsers and apps are starting"


class BatchProgress:
    """Shows how far a run is, while the context lasts. ``counts`` is where it begins."""

    def __init__(self, counts: Counts, *, as_json: bool) -> None:
        from ...batch import State

        self._as_json = as_json
        self._counts = counts
        self._total = counts.total
        self._ended = counts.total - counts.open
        self._failed = counts[State.FAILED] + counts[State.UNKNOWN]
        self._recent: deque[float] = deque(maxlen=_MOST)
        self._bar = None
        if as_json:
            print_event({"event": "begun", **counts.as_dict()})
        if as_json or is_quiet() or sys.stderr is None or not sys.stderr.isatty() or is_dumb_terminal():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TextColumn("{task.fields[failed]}", markup=False),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=self._total, completed=self._ended, rate=_OPENING, failed="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def settled(self, settlement: Settlement) -> None:
        """Show what became of a job."""
        from ...batch import State

        outcome, again = settlement.outcome, settlement.again_after
        if self._as_json:
            print_event(
                {
                    "event": "retried" if again is not None else "ended",
                    "id": outcome.job.id,
                    "key": settlement.key,
                    "status": outcome.state.value,
                    "error_code": outcome.error_code,
                    "error": outcome.error,
                    "duration_ms": round(outcome.milliseconds, 1),
                    **({} if again is None else {"again_after": round(again, 3)}),
                }
            )
        if again is None:
            self._show(self._ended + 1, self._failed + (outcome.state is not State.SUCCEEDED))

    def counted(self, counts: Counts) -> None:
        """Show how many jobs are in which state, where nobody tells of each job."""
        from ...batch import State

        if counts != self._counts:
            self._counts = counts
            if self._as_json:
                print_event({"event": "progress", **counts.as_dict()})
            self._show(counts.total - counts.open, counts[State.FAILED] + counts[State.UNKNOWN])

    def _show(self, ended: int, failed: int) -> None:
        now = time.monotonic()
        self._recent.extend([now] * min(ended - self._ended, _MOST))
        self._ended, self._failed = ended, failed
        if self._bar is not None:
            while self._recent and now - self._recent[0] > _WINDOW:
                self._recent.popleft()
            seconds = max(now - self._recent[0], 0.001) if self._recent else 1.0
            rate = f"{len(self._recent) / seconds:.1f}/s" if len(self._recent) > 1 else ""
            self._bar.update(self._task, completed=ended, rate=rate, failed=f"{failed} failed" if failed else "")
