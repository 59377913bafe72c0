"""Errors as ABP answers them, for what the server answers over its socket."""

from dataclasses import dataclass
from typing import Any


class AbpError(Exception):
    """An error with a code; ``more`` (``details``, ``retryable``, ``alternatives``) goes into the answer too."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more

    def as_json(self) -> dict[str, Any]:
        """The ``error`` of an answer."""
        return {"code": self.code, "message": str(self), "retryable": False, **self.more}


class Cancelled(Exception):
    """Raised by a handler that the user (or the client) stopped."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Returned by a handler that wants this very value to be the answer. Only faults do."""

    value: Any


class _Missing:
    """No value at all, which JSON has no word for."""


MISSING = _Missing()


def describe_error(thrown: BaseException) -> dict[str, Any]:
    """Any exception as an ABP error."""
    if isinstance(thrown, AbpError):
        return thrown.as_json()
    message = str(thrown) or "the operation failed"
    details = {"name": type(thrown).__name__}
    return {"code": "OPERATION_FAILED", "message": message, "retryable": False, "details": details}


def failure(error: AbpError) -> dict[str, Any]:
    """The whole answer of a call that was refused before it ran."""
    return {"success": False, "error": error.as_json(), "metadata": {"duration": 0}}
