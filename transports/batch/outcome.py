"""What became of a job: an :class:`Outcome`, and the state that an error means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ..artifacts import ArtifactRef
from ..errors import (
    ABPError,
    BinaryError,
    CapabilityError,
    ConnectFailed,
    ProtocolError,
    StoreError,
)
from ..errors.transport import may_have_run
from ..routing import Result
from ..session.calls import NOT_RUN
from .jobs import Job, State

__all__ = ["NOT_SENT", "Outcome"]

#: The argument of the :class:`asyncio.CancelledError` of a job that was cancelled before anything of it was sent.
NOT_SENT = "nothing of the job was sent"

#: Errors of an answer: the call has run, and what it made is not in the store.
_UNUSABLE = (BinaryError, ProtocolError, StoreError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job. ``state`` is final.

    ``result`` is that of the call, ``None`` if there is none. ``error_code`` and ``error`` (its message) are there
    unless the job succeeded. ``milliseconds`` is the time of all ``attempts``. ``artifacts`` is what is in the store,
    also after an error. ``retryable`` says that the same job may be sent again: the error may pass, and nothing of the
    job has run or it is idempotent; ``retry_after`` in seconds is how long the app asks to wait before.
    """

    job: Job
    state: State
    result: Result | None = None
    error_code: str | None = None
    error: str | None = None
    attempts: int = 1
    milliseconds: float = 0.0
    artifacts: tuple[ArtifactRef, ...] = ()
    retry_after: float | None = None
    retryable: bool = False

    @classmethod
    def of_result(cls, job: Job, result: Result, *, attempts: int = 1, milliseconds: float = 0.0) -> Self:
        """Return the outcome of a job that succeeded."""
        files = tuple(result.artifacts.values())
        return cls(job, State.SUCCEEDED, result, attempts=attempts, milliseconds=milliseconds, artifacts=files)

    @classmethod
    def of_error(
        cls, job: Job, error: Exception, *, sent: bool = True, attempts: int = 1, milliseconds: float = 0.0
    ) -> Self:
        """Return the outcome of a job that ended with ``error``. ``sent`` is false if the call cannot have left: the
        error is one of connecting, say. A job that ran is ``unknown`` if its answer could not be read or stored, unless
        it is idempotent: ``failed`` means that it may be run again by hand."""
        if not isinstance(error, ABPError):
            state = State.UNKNOWN if sent else State.FAILED
            text = f"{type(error).__name__}: {error}"
            return cls(job, state, None, "INTERNAL_ERROR", text, attempts, milliseconds)
        if not isinstance(error, CapabilityError):  # an app writes its own details, and it did get the call
            sent = sent and error.details.get("sent") is not False
        lost = may_have_run(error) or (isinstance(error, _UNUSABLE) and not job.idempotent)
        refused = isinstance(error, CapabilityError) and error.code in NOT_RUN
        may_pass = error.retryable or isinstance(error, ConnectFailed)
        stored = error.result.artifacts.values() if error.result is not None else ()
        return cls(
            job,
            State.UNKNOWN if sent and lost else State.FAILED,
            error_code=error.code,
            error=error.message,
            attempts=attempts,
            milliseconds=milliseconds,
            artifacts=tuple(ref for ref in stored if isinstance(ref, ArtifactRef)),
            retry_after=error.retry_after,
            retryable=may_pass and (not sent or refused or job.idempotent),
        )

    def files(self) -> list[dict[str, object]]:
        """Return ``artifacts`` as JSON objects, each with its place in the answer (``field``) where that is known."""
        fields = [*self.result.artifacts] if self.result is not None else []
        if len(fields) != len(self.artifacts):
            return [ref.as_dict() for ref in self.artifacts]
        return [{"field": field, **ref.as_dict()} for field, ref in zip(fields, self.artifacts, strict=True)]
