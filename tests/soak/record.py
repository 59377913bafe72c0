"""What happened in a run: every call with its one outcome, every fault, and what may not be."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from transports import ABPError

#: The outcome of a call that brought what was asked for.
RESULT = "result"
#: Codes of errors that a fault may cause. Any other one is a problem: what was broken is never the content.
_EXPECTED = {
    "DISCONNECTED", "TIMEOUT", "TRANSPORT_ERROR", "BROWSER_ERROR", "DOWNLOAD_FAILED", "STORE_FULL",
    "NOT_SUPPORTED",  # a page whose scripts were lost with its server
}  # fmt: skip
#: The same for an agent at the bridge, whose app goes when the bridge is killed.
_AT_BRIDGE = {"NOT_INITIALIZED", "SESSION_INVALID"}
#: Seconds after which a call that has not ended is taken for lost. Each has a deadline of its own far below.
_LOST = 120.0


@dataclass
class Record:
    """``outcomes`` counts by way and outcome, ``faults`` by name; ``problems`` is empty after a good run."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    @asynccontextmanager
    async def call(self, way: str) -> AsyncIterator[None]:
        """One call over a way: what is raised inside becomes its outcome, and is not raised any further."""
        begun = time.monotonic()
        self.begun[way] += 1
        outcome = "cancelled"
        try:
            async with asyncio.timeout(_LOST):
                yield
            outcome = RESULT
        except ABPError as error:
            outcome = error.code
            if outcome not in _EXPECTED | (_AT_BRIDGE if way == "bridge" else set()):
                self.problems.append(f"{way}: {type(error).__name__} ({outcome}): {error.message}")
        except TimeoutError:
            outcome = "no outcome"
            self.problems.append(f"{way}: a call had no outcome after {_LOST:.0f} seconds")
        except Exception as error:
            outcome = type(error).__name__
            self.problems.append(f"{way}: {''.join(traceback.format_exception(error))}")
        finally:
            self.outcomes[way, outcome] += 1
            self.longest[way] = max(self.longest[way], time.monotonic() - begun)

    def count(self, way: str) -> tuple[int, int]:
        """The calls over a way that ended, and those with a result."""
        ended = sum(number for (one, _), number in self.outcomes.items() if one == way)
        return ended, self.outcomes[way, RESULT]

    def check(self) -> None:
        """Each call that began has ended, once; and over each way came results."""
        for way, begun in self.begun.items():
            ended, results = self.count(way)
            if begun != ended:
                self.problems.append(f"{way}: {begun} calls began and {ended} have an outcome")
            if results == 0:
                self.problems.append(f"{way}: not one call had a result")
