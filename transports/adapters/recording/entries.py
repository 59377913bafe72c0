"""The lines of a recording, as models. No I/O.

The first line is the :class:`Header`. After it each line is one thing that happened, in order: something was asked of
the transport (:class:`Ask`, numbered), it answered (:class:`Answer`), failed (:class:`Failed`), or nobody waited any
more (:class:`Abandoned`); an event came (:class:`Happened`). ``at`` is seconds since the recording began.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ... import errors
from ...errors import ABPError, CapabilityError, TransportError
from ...protocol.redaction import Redactor

__all__ = [
    "FORMAT",
    "STATE",
    "Abandoned",
    "Answer",
    "Ask",
    "Effected",
    "Entry",
    "Failed",
    "Happened",
    "Header",
    "Kind",
    "Leaf",
    "Problem",
    "entry",
    "error_of",
    "problem_of",
]

#: The version of the format that is written, and the newest that is read.
FORMAT = 1
#: An event of the recorder's own: the transport's address and features are others from here on.
STATE = "recorder/state"

Kind: TypeAlias = Literal[
    "open", "close", "discover", "request", "notify", "save", "download", "render_to_pdf", "screenshot"
]


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class Leaf(_Line):
    """Content that stands in a payload at ``path``. ``kind``: ``bytes`` (a BinaryData with its content in hand),
    ``raw`` (plain bytes), ``encoded`` (text in ``encoding``), ``run`` (a long run of base64 that was never copied),
    ``text`` (plain text that is long), ``handle`` (stayed on the far side, fetched by an :class:`Ask` of the kind
    ``save``), ``broken`` (could not be read, ``reason``). ``sha256`` names the file that holds it."""

    path: list[str | int]
    kind: Literal["bytes", "raw", "encoded", "run", "text", "handle", "broken"]
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    encoding: Literal["base64", "utf-8"] = "base64"
    handle: str = ""
    length: int | None = None
    reason: str = ""
    mime_type: str | None = None
    size: int | None = None
    filename: str | None = None
    extra: dict[str, object] = {}


class Header(_Line):
    """``abp_recording`` is the version of the format; ``transport`` the name of the one that was recorded, with a
    page's ``tools`` or not; ``discovers`` if the page's manifest was read too. ``fields`` and ``patterns`` are the
    rules for secrets beside the usual ones."""

    abp_recording: int
    transport: str
    tools: bool = False
    discovers: bool = False
    fields: list[str] = []
    patterns: list[str] = []


class Ask(_Line):
    """``type`` and ``payload`` are those of a message (``request``, ``notify``); else ``payload`` names what was asked
    for. ``leaves`` is the content in the parameters."""

    does: Literal["ask"] = "ask"
    n: int
    at: float = 0.0
    kind: Kind
    type: str = ""
    id: str | None = None
    payload: object = None
    leaves: list[Leaf] = []


class Effected(_Line):
    """An :class:`~transports.Effect`."""

    kind: str
    call: str | None = None
    detail: dict[str, object] = {}


class Answer(_Line):
    """What came of the ask ``n``."""

    does: Literal["answer"] = "answer"
    n: int
    at: float = 0.0
    type: str = ""
    payload: object = None
    leaves: list[Leaf] = []
    outputs: list[Leaf] = []
    effects: list[Effected] = []
    warnings: list[str] = []


class Problem(_Line):
    """An :class:`~transports.errors.ABPError`; ``name`` is its class."""

    name: str
    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None
    alternatives: list[str] = []
    details: dict[str, object] = {}
    cancelled: bool = False


class Failed(_Line):
    """The ask ``n`` raised."""

    does: Literal["failed"] = "failed"
    n: int
    at: float = 0.0
    error: Problem


class Abandoned(_Line):
    """Whoever asked ``n`` was cancelled before there was an answer."""

    does: Literal["abandoned"] = "abandoned"
    n: int
    at: float = 0.0


class Happened(_Line):
    """An event; ``effect`` where the app did something beside (its payload is that)."""

    does: Literal["event"] = "event"
    at: float = 0.0
    type: str
    id: str | None = None
    payload: object = None
    effect: Effected | None = None


Entry: TypeAlias = Ask | Answer | Failed | Abandoned | Happened

entry: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="does")])


def problem_of(error: ABPError, scrubber: Redactor) -> Problem:
    """What is recorded of an error, without secrets."""
    details: Any = scrubber.tree(error.details)
    return Problem(
        name=type(error).__name__,
        code=error.code,
        message=scrubber.text(error.message),
        retryable=error.retryable,
        retry_after=error.retry_after,
        alternatives=[*error.alternatives],
        details=details,
        cancelled=getattr(error, "cancelled", False),
    )


def error_of(problem: Problem) -> ABPError:
    """The error that was recorded, of the class that it had."""
    found = getattr(errors, problem.name, None)
    kind = found if isinstance(found, type) and issubclass(found, ABPError) else TransportError
    error = kind(
        problem.message,
        code=problem.code,
        retryable=problem.retryable,
        retry_after=problem.retry_after,
        alternatives=problem.alternatives,
        details=problem.details,
    )
    if isinstance(error, CapabilityError):
        error.cancelled = problem.cancelled
    return error
