"""What goes into a ledger and comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol import JSONValue
from .._jobs import Job, Outcome, State


@dataclass(frozen=True, slots=True)
class Added:
    """What an input brought: its ``lines``, and the ``jobs`` that were not in the ledger before.

    ``copies`` are lines that ask for the same as an earlier one of this input, ``replaced`` the lines of failed jobs
    whose place others of the same id took. ``known`` says that the whole input was in the ledger already."""

    lines: int
    jobs: int = 0
    copies: int = 0
    replaced: int = 0
    known: bool = False


@dataclass(frozen=True, slots=True)
class Leased:
    """A job that this worker may run until its lease ends. ``attempts`` counts this one."""

    key: str
    job: Job
    attempts: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a leased job: its outcome, or, with ``again_after`` seconds, another attempt then.

    One that was not ``begun`` is queued again as it was, if its lease still holds: nothing of it was sent."""

    key: str
    outcome: Outcome
    again_after: float | None = None
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs are in which state; every state is there."""

    by_state: Mapping[State, int]

    def __getitem__(self, state: State) -> int:
        return self.by_state.get(state, 0)

    @property
    def total(self) -> int:
        """All jobs."""
        return sum(self.by_state.values())

    @property
    def open(self) -> int:
        """Jobs without a final state."""
        return self[State.QUEUED] + self[State.LEASED]

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by the names of the states, and ``total``."""
        return {**{state.value: self[state] for state in State}, "total": self.total}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the input, and its job as the ledger has it.

    ``position`` is its place in the input; times are in seconds since 1970, and ``None`` where there is none yet.
    ``artifacts`` are references as JSON objects. A ``copy`` asks for the same as an earlier line, whose job it shares;
    its ``job`` has its own id and what it carried."""

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
