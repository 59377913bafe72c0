"""Errors as lines of a recording, and back."""

from __future__ import annotations

from typing import Any

from .. import errors
from ..errors import ABPError, CapabilityError, TransportError
from .entries import Problem
from .scrub import Scrubber

__all__ = ["error_of", "problem_of"]


def problem_of(error: ABPError, scrubber: Scrubber) -> Problem:
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
