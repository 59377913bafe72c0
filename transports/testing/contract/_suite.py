"""List of all behaviours, and :func:`verify`, which runs one as a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module

import pytest

from ...errors import ABPError, CallTimeout, UsageError
from ...protocol.messages import Message
from ._behaviour import Behaviour, Subject

_THEMES = [
    f"{__package__}._{theme}"
    for theme in ("lifecycle", "messages", "calls", "binaries", "events", "cancellation", "faults")
]
pytest.register_assert_rewrite(*_THEMES)  # before they are imported, so that a failed assert shows its values

#: All behaviours, by theme. A good order for implementing them in a new transport.
BEHAVIOURS: tuple[Behaviour, ...] = tuple(
    value for theme in _THEMES for value in vars(import_module(theme)).values() if isinstance(value, Behaviour)
)

#: What :meth:`Behaviour.check` raises if the behaviour does not hold; ``pytest.raises`` raises the last one.
_FAILURES = (AssertionError, ABPError, TimeoutError, pytest.fail.Exception)


async def verify(behaviour: Behaviour, subject: Subject, deviations: Mapping[str, str] | None = None) -> None:
    """Run one behaviour inside a test.

    ``deviations`` maps names of behaviours to the reasons of known deviations of the transport. A behaviour that does
    not hold fails the test, or is an ``xfail`` if it is in ``deviations``. A behaviour in ``deviations`` that does hold
    fails the test too. Raises :class:`~transports.errors.UsageError` for a deviation from a behaviour that does not
    exist.
    """
    unknown = set(deviations or ()) - {existing.name for existing in BEHAVIOURS}
    if unknown:
        raise UsageError(f"unknown behaviours in deviations: {', '.join(sorted(unknown))}")
    reason = (deviations or {}).get(behaviour.name)
    try:
        async with asyncio.timeout(subject.timeout):
            await behaviour.check(subject)
    except (Exception, pytest.fail.Exception) as error:
        if reason is not None and isinstance(error, _FAILURES):
            pytest.xfail(reason)
        raise AssertionError(f"{behaviour.name}: {_describe(error, subject)}  [source: {behaviour.source}]") from error
    if reason is not None:
        pytest.fail(f"{behaviour.name}: it holds; remove it from the deviations (reason: {reason})")


def _describe(error: BaseException, subject: Subject) -> str:
    match error:
        case AssertionError() | pytest.fail.Exception():
            return str(error)
        case TimeoutError():
            return f"it did not end within {subject.timeout:g} s"
        case CallTimeout() if subject.unanswered:
            return f"no answer to {_in_words(subject.unanswered[-1])}: {error}"
        case _:
            return f"{type(error).__name__}: {error}"


def _in_words(request: Message) -> str:
    payload = request.payload if isinstance(request.payload, Mapping) else {}
    capability = f" of {payload['capability']}" if "capability" in payload else ""
    return f"{request.type}{capability} (id {request.id!r})"
