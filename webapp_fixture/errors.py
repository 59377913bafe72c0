"""Errors in the form of ABP, for answers over a socket."""

from dataclasses import dataclass
from typing import Any


class AbpError(Exception):
    """An error with a code. ``more`` has other fields of the answer: ``details``, ``retryable``, ``alternatives``."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "retryable": False, **self.more}


class Cancelled(Exception):
    """Raised by a handler that the user or the client stopped."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A value that a handler returns in place of the whole answer. Only faults do that."""

    value: Any


class _Missing:
    """The type of :data:`MISSING`, the absence of a value, for which JSON has no word."""


MISSING = _Missing()


def describe_error(thrown: BaseException) -> dict[str, Any]:
    if isinstance(thrown, AbpError):
        return thrown.as_json()
    message = str(thrown) or "the operation failed"
    details = {"name": type(thrown).__name__}
    return {"code": "OPERATION_FAILED", "message": message, "retryable": False, "details": details}


def failure(error: AbpError) -> dict[str, Any]:
    """Return the whole answer to a call that was refused before it ran."""
    return {"success": False, "error": error.as_json(), "metadata": {"duration": 0}}
