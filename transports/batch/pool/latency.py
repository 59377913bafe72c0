"""Whether calls get slower the longer a browser runs."""

from __future__ import annotations

from statistics import median

__all__ = ["Latency"]

#: Calls of one kind that a median is taken over.
_CALLS = 100
#: Milliseconds that a median must grow by to count: below them it is noise.
_NOTABLE = 20.0
#: Kinds of calls that are followed; those that come later are not.
_MAX_KINDS = 64


class Latency:
    """The durations of calls in one browser, by kind: the median of the last hundred against that of the first."""

    def __init__(self) -> None:
        #: By how much the slowest kind has slowed down: 1 for not at all.
        self.slowdown = 1.0
        #: The median of the latest hundred calls of any kind, in milliseconds.
        self.recent = 0.0
        self._first: dict[object, float] = {}
        self._latest: dict[object, list[float]] = {}

    def add(self, kind: object, milliseconds: float) -> None:
        """Count a call of ``kind``, such as its target and capability."""
        if kind not in self._latest and len(self._latest) >= _MAX_KINDS:
            return
        latest = self._latest.setdefault(kind, [])
        latest.append(milliseconds)
        if len(latest) < _CALLS:
            return
        self.recent = median(latest)
        latest.clear()
        first = self._first.setdefault(kind, self.recent)
        if self.recent - first > _NOTABLE:
            self.slowdown = max(self.slowdown, self.recent / max(first, 0.1))
