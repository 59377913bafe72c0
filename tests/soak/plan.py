"""How long a run takes, and what breaks when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: Seconds from the beginning of a phase, and the name of a fault.
Schedule: TypeAlias = list[tuple[float, str]]

#: Seconds at the beginning and at the end of a phase without a new fault.
_LEAD = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: ``warm_up`` seconds in which every fault happens at least once, then ``seconds`` whose beginning and end
    are compared. ``gap`` is the mean time between two faults, ``pause`` between two calls of one caller, in seconds."""

    warm_up: float = 34.0
    seconds: float = 20.0
    gap: float = 1.9
    pause: float = 0.6
    seed: int = 2481  # what takes longest to be repaired, a browser that is stopped for good, comes first

    @classmethod
    def of_minutes(cls, minutes: float, seed: int) -> Plan:
        """Three minutes to warm up; half of the time where there are fewer than six."""
        whole = minutes * 60
        warm_up = min(180.0, whole / 2)
        return cls(warm_up=warm_up, seconds=whole - warm_up, gap=min(8.0, (warm_up - 2 * _LEAD) / 16), seed=seed)

    def schedules(self, faults: Sequence[str]) -> tuple[Schedule, Schedule]:
        """Return what breaks in the warm-up and after it: all faults in random order, again and again."""
        chance = random.Random(self.seed)
        order: list[str] = []

        def phase(seconds: float) -> Schedule:
            found: Schedule = []
            at = _LEAD
            while at < seconds - _LEAD:
                if not order:
                    order.extend(chance.sample(faults, len(faults)))
                found.append((at, order.pop()))
                at += self.gap * chance.uniform(0.6, 1.4)
            return found

        warm_up = phase(self.warm_up)
        missing = [(self.warm_up - _LEAD, name) for name in faults if name not in {name for _, name in warm_up}]
        return warm_up + missing, phase(self.seconds)
