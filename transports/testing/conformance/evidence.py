"""What was seen of an app: the facts that the checks judge. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...binary import BinaryData
from ...errors import ABPError
from ...http import Discovery
from ...protocol.declarations import Capability
from ...protocol.messages import Effect

__all__ = ["Cancelling", "Evidence", "Exchange", "Kind", "Piece", "Step", "Trial"]

#: How the app is reached; some rules hold for some only.
Kind: TypeAlias = Literal["page", "extension", "embedded", "websocket"]


@dataclass(slots=True)
class Exchange:
    """One request and what came of it: an ``answer`` (raw; content stands in it as it does in a reply), or the
    ``error`` on the way. ``progress`` are the raw payloads that came meanwhile."""

    answer: object = None
    error: ABPError | None = None
    seconds: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    progress: list[object] = field(default_factory=list)
    outputs: int = 0

    @property
    def fields(self) -> Mapping[str, object]:
        """The answer, if it is an object."""
        return self.answer if isinstance(self.answer, Mapping) else {}

    @property
    def succeeded(self) -> bool:
        return self.fields.get("success") is True

    @property
    def code(self) -> object:
        """The code of the app's error, if it has one."""
        error = self.fields.get("error")
        return error.get("code") if isinstance(error, Mapping) else None


@dataclass(slots=True)
class Piece:
    """One binary of an answer: where it stands, its raw descriptor (empty where it has none), and what came of taking
    it: how large it really is, what its first bytes look like, or the ``error``. For downloads, how many requests that
    took and whether credentials were asked for by an address that leads to another origin."""

    place: str
    node: Mapping[str, object]
    binary: BinaryData | None
    error: ABPError | None = None
    size: int = 0
    head: bytes = b""
    attempts: int = 1
    strayed: bool = False


@dataclass(slots=True)
class Trial:
    """A capability that was tried: with ``params`` made from its schema, without one that is required, with one of a
    wrong type. ``skipped`` says why it was not called."""

    capability: Capability
    entry: Mapping[str, object]
    skipped: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    call: Exchange | None = None
    pieces: list[Piece] = field(default_factory=list)
    missing: tuple[str, Exchange] | None = None
    wrong: tuple[str, Exchange] | None = None

    @property
    def name(self) -> str:
        return self.capability.name


@dataclass(slots=True)
class Cancelling:
    """A running call that was cancelled: the answer to that, to doing it again, and of the call itself, which
    ``ran_on`` for so many seconds afterwards."""

    name: str
    first: Exchange
    again: Exchange
    call: Exchange
    ran_on: float


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at the page object gave: a JSON ``value``, or what it threw."""

    value: object = None
    threw: str | None = None


@dataclass(slots=True)
class Evidence:
    """Everything that was seen of the app at ``target``, in the order in which it was looked for."""

    target: str
    kind: Kind
    timeout: float
    discovery: Discovery | None = None
    refused: ABPError | None = None
    early: Exchange = field(default_factory=Exchange)
    greeting: object = None
    twice: Exchange = field(default_factory=Exchange)
    listed: Exchange | None = None
    unknown: Exchange = field(default_factory=Exchange)
    trials: list[Trial] = field(default_factory=list)
    stray_cancel: Exchange = field(default_factory=Exchange)
    cancellings: list[Cancelling] = field(default_factory=list)
    farewells: list[Exchange] = field(default_factory=list)
    late: Exchange = field(default_factory=Exchange)
    again: Exchange = field(default_factory=Exchange)
    reopened: Exchange = field(default_factory=Exchange)
    page: Mapping[str, Step] | None = None
    outside: list[Effect] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)

    @property
    def greeted(self) -> Mapping[str, object]:
        """The answer to ``initialize``, if it is an object; some apps wrap it as a call's."""
        said = self.greeting if isinstance(self.greeting, Mapping) else {}
        data = said.get("data")
        return data if isinstance(data, Mapping) and "sessionId" not in said else said

    @property
    def called(self) -> list[tuple[Trial, Exchange]]:
        """What was called, with what came of it."""
        return [(trial, trial.call) for trial in self.trials if trial.call is not None]

    @property
    def pieces(self) -> list[tuple[str, Piece]]:
        """Every binary of every answer, each with its name for people."""
        return [
            (f"{trial.name}: {piece.place or 'the answer'}", piece) for trial in self.trials for piece in trial.pieces
        ]
