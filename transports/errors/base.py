"""The root of the error tree, and the two errors that come from neither transport, content nor store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self

__all__ = [
    "ABPError",
    "CapabilityError",
    "PersonRequired",
    "StoredFile",
    "StoredPart",
    "UsageError",
    "first_line",
    "format_seconds",
]


class StoredFile(Protocol):
    """A stored file: a :class:`transports.ArtifactRef`, seen from below."""

    @property
    def id(self) -> str:
        """The artifact's id."""

    @property
    def uri(self) -> str:
        """Its address, ``artifact://ID``."""

    @property
    def path(self) -> Path | None:
        """The readable file on this machine, or ``None`` if the store has none."""

    @property
    def mime_type(self) -> str:
        """Its MIME type."""

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""

    def as_dict(self) -> dict[str, object]:
        """Return the reference as JSON values."""


class StoredPart(Protocol):
    """The part of an answer that was stored before an error: a :class:`transports.Result`, seen from below."""

    @property
    def data(self) -> object:
        """The answer, each stored binary replaced by its reference."""

    @property
    def artifacts(self) -> Mapping[str, object]:
        """The references (:class:`transports.ArtifactRef`) by their path in ``data``."""

    def as_dict(self) -> dict[str, object]:
        """Return the part as JSON values."""

    def summary(self, *, max_chars: int = 1000) -> str:
        """Return the part as text for an agent, at most ``max_chars`` characters."""


class ABPError(Exception):
    """Base of all errors that this library raises.

    ``retryable`` says whether the same call may succeed later; ``retry_after`` is how long to wait before, in seconds,
    or ``None`` if nobody said. ``alternatives`` are names of capabilities that the app offers instead. ``details``
    holds JSON values only. ``result`` is set where part of an answer was stored before the error: what it lists is
    safe in the store. ``evidence`` has what was recorded of the call, by its kind (docs/evidence.md). As text, such as
    in the last line of a traceback, an error is its message and its code:
    ``export.pdf: the paper is out [OPERATION_FAILED]``.
    """

    code: str = "INTERNAL_ERROR"
    retryable: bool = False
    session_survives: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        alternatives: Sequence[str] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable
        self.retry_after = retry_after
        self.alternatives = tuple(alternatives)
        self.details: dict[str, object] = dict(details or {})
        self.result: StoredPart | None = None
        self.evidence: Mapping[str, StoredFile] = {}

    def __str__(self) -> str:
        first, newline, rest = self.message.partition("\n")
        return f"{first} [{self.code}]{newline}{rest}"

    def located(self, where: str) -> Self:
        """Put ``where``, such as the name of a capability, before the message, and return the error."""
        self.message = f"{where}: {self.message}"
        self.args = (self.message,)
        return self

    def followed_by(self, more: str) -> Self:
        """Put ``more`` after the message, and return the error."""
        self.message = f"{self.message}; {more}"
        self.args = (self.message,)
        return self

    def as_dict(self) -> dict[str, object]:
        """Return the error as JSON values: ``code``, ``message``, ``retryable``, and ``retry_after`` (seconds),
        ``alternatives``, ``details`` and ``evidence`` where there are any."""
        out: dict[str, object] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.retry_after is not None:
            out["retry_after"] = self.retry_after
        if self.alternatives:
            out["alternatives"] = list(self.alternatives)
        if self.details:
            out["details"] = dict(self.details)
        if self.evidence:
            out["evidence"] = [{"kind": kind, **file.as_dict()} for kind, file in self.evidence.items()]
        return out


class UsageError(ABPError):
    """Raised before anything is sent, when this library was called wrongly: an unknown target or option, a setting out
    of range, parameters that do not fit the capability's schema. The session survives. Correct the call: the message
    names the argument, and for parameters ``details`` holds ``path`` and ``faults``."""

    code = "INVALID_PARAMS"


class CapabilityError(ABPError):
    """Raised when the app answers ``success: false``. ``code``, ``retryable``, ``retry_after`` and ``alternatives`` are
    the app's own; ``cancelled`` is true if the call was cancelled. The session survives. Call again if ``retryable``
    says so, else do what the app's message asks for, or use one of ``alternatives``."""

    code = "OPERATION_FAILED"
    cancelled: bool = False


class PersonRequired(CapabilityError):
    """Raised when a tool waits for a person: a WebMCP form without ``toolautosubmit`` is filled in and not sent. The
    session survives. Have a person send the form in a visible browser (``headless=False``), or do without the tool."""

    code = "PERSON_REQUIRED"


def format_seconds(seconds: float) -> str:
    """Return a time for a message, in round numbers: ``30 s`` for 29.998, ``1.2 s`` for 1.2304."""
    return f"{seconds:.0f} s" if 10 <= seconds < float("inf") else f"{float(f'{seconds:.2g}'):g} s"


def first_line(error: BaseException | str) -> str:
    """Return the first line of a foreign error's text, for a message of ours. Drivers and SDKs put a call log or
    a whole page below it. An error without a text goes by its class name."""
    line = str(error).strip().partition("\n")[0].rstrip()
    return line or ("" if isinstance(error, str) else type(error).__name__)
