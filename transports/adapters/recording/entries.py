"""The lines of a recording, as models. No I/O.

The first line is the :class:`Header`. Every later line is one event of the conversation, in order. An
:class:`Operation`, with a number, is something that the session asked of the transport; an :class:`Answer`,
:class:`Failed` or :class:`Abandoned` of the same number is its outcome. An :class:`EventEntry` is an event of the app.
``at`` is seconds since the recording began.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ... import errors
from ...errors import ABPError, CapabilityError, TransportError
from ...protocol.redaction import Redactor

__all__ = [
    "ENTRY",
    "FORMAT",
    "STATE",
    "Abandoned",
    "Answer",
    "ContentEntry",
    "Entry",
    "EventEntry",
    "Failed",
    "Header",
    "Kind",
    "Operation",
    "RecordedEffect",
    "RecordedError",
    "record_error",
    "restore_error",
]

#: The version of the format that is written, and the newest that is read.
FORMAT = 1
#: An event that the recorder adds: from here on the transport has another address or other features.
STATE = "recorder/state"

Kind: TypeAlias = Literal[
    "open", "close", "discover", "request", "notify", "save", "download", "render_to_pdf", "screenshot"
]


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class ContentEntry(_Line):
    """Content that stands in a payload at ``path``.

    ``kind`` is ``bytes`` (a BinaryData with its content in hand), ``raw`` (plain bytes), ``encoded`` (text in
    ``encoding``), ``run`` (a long run of base64 that was never copied), ``text`` (a long plain text), ``handle``
    (stayed on the far side, fetched by an :class:`Operation` of the kind ``save``) or ``broken`` (could not be read,
    for ``reason``). ``sha256`` names the file that holds it.
    """

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
    """The first line.

    ``abp_recording`` is the version of the format. ``transport`` is the name of the recorded transport, ``tools``
    whether it has a page's tools, ``discovers`` whether the page's manifest was read too. ``fields`` are
    names of secrets in addition to the usual ones.
    """

    abp_recording: int
    transport: str
    tools: bool = False
    discovers: bool = False
    fields: list[str] = []


class Operation(_Line):
    """Something that the session asked of the transport.

    For ``request`` and ``notify``, ``type`` and ``payload`` are those of the message; else ``payload`` holds the
    arguments. ``leaves`` is the content in the parameters.
    """

    does: Literal["ask"] = "ask"
    n: int
    at: float = 0.0
    kind: Kind
    type: str = ""
    id: str | None = None
    payload: object = None
    leaves: list[ContentEntry] = []


class RecordedEffect(_Line):
    """An :class:`~transports.Effect`."""

    kind: str
    call: str | None = None
    detail: dict[str, object] = {}


class Answer(_Line):
    """The result of the operation ``n``."""

    does: Literal["answer"] = "answer"
    n: int
    at: float = 0.0
    type: str = ""
    payload: object = None
    leaves: list[ContentEntry] = []
    outputs: list[ContentEntry] = []
    effects: list[RecordedEffect] = []
    warnings: list[str] = []


class RecordedError(_Line):
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
    """The operation ``n`` raised an error."""

    does: Literal["failed"] = "failed"
    n: int
    at: float = 0.0
    error: RecordedError


class Abandoned(_Line):
    """The caller of the operation ``n`` was cancelled before there was an answer."""

    does: Literal["abandoned"] = "abandoned"
    n: int
    at: float = 0.0


class EventEntry(_Line):
    """An event of the app. ``effect`` is set instead of ``payload`` if it is a side effect."""

    does: Literal["event"] = "event"
    at: float = 0.0
    type: str
    id: str | None = None
    payload: object = None
    effect: RecordedEffect | None = None


Entry: TypeAlias = Operation | Answer | Failed | Abandoned | EventEntry

ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="does")])


def record_error(error: ABPError, scrubber: Redactor) -> RecordedError:
    """Return an error as it is recorded, without secrets."""
    details: Any = scrubber.tree(error.details)
    return RecordedError(
        name=type(error).__name__,
        code=error.code,
        message=scrubber.text(error.message),
        retryable=error.retryable,
        retry_after=error.retry_after,
        alternatives=[*error.alternatives],
        details=details,
        cancelled=getattr(error, "cancelled", False),
    )


def restore_error(problem: RecordedError) -> ABPError:
    """Return the recorded error, of the class that it had; of an unknown class, a ``TransportError``."""
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
