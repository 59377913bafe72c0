"""Records of the ledger: added inputs, leased jobs, settlements, counts, and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol import JSONValue
from .._jobs import Job, Outcome, State


@dataclass(frozen=True, slots=True)
class Added:
    """Result of adding an input: counts of its ``lines`` and of the new ``jobs`` in the ledger.

    ``copies`` counts lines with the same job as an earlier line of this input. ``replaced`` counts failed lines,
    replaced by lines of the same id. ``known`` is true if the whole input was in the ledger already."""

    lines: int
    jobs: int = 0
    copies: int = 0
    replaced: int = 0
    known: bool = False


@dataclass(frozen=True, slots=True)
class Leased:
    """Job that this worker may run until its lease ends. ``attempts`` includes this attempt."""

    key: str
    job: Job
    attempts: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """Settlement of a leased job: its outcome, or a retry in ``again_after`` seconds.

    A job that was not ``begun`` returns to the queue if its lease is still valid, and does not count as an attempt,
    since no part of it was sent."""

    key: str
    outcome: Outcome
    again_after: float | None = None
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of jobs in each state."""

    by_state: Mapping[State, int]

    def __getitem__(self, state: State) -> int:
        return self.by_state.get(state, 0)

    @property
    def total(self) -> int:
        """Number of all jobs."""
        return sum(self.by_state.values())

    @property
    def open(self) -> int:
        """Number of jobs without a final state."""
        return self[State.QUEUED] + self[State.LEASED]

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by the names of the states, and ``total``."""
        return {**{state.value: self[state] for state in State}, "total": self.total}


@dataclass(frozen=True, slots=True)
class Row:
    """Line of the input, and the state of its job in the ledger.

    ``position`` is its place in the input. Times are in seconds since 1970, ``None`` if not set yet. ``artifacts`` are
    references as JSON objects. A ``copy`` shares the job of an earlier line; its ``job`` has the id and the carried
    fields of its own line."""

    position: int
    key: str
    job: Job
    state: State
    attempts: int
    worker: str | None
    started: float | None
    finished: float | None
    milliseconds: float
    error_code: str | None
    error: str | None
    artifacts: tuple[Mapping[str, JSONValue], ...]
    copy: bool = False
