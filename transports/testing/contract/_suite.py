"""List of all behaviours, and :func:`verify`, which runs one as a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ...errors import ABPError, CallTimeout, UsageError
from ...protocol.messages import Message
from . import (
    _binaries as binaries,
    _calls as calls,
    _cancellation as cancellation,
    _events as events,
    _faults as faults,
    _lifecycle as lifecycle,
    _messages as messages,
)
from ._behaviour import Behaviour, Subject

_THEMES = (
    lifecycle,
    messages,
    calls,
    binaries,
    events,
    cancellation,
    faults,
)

#: All behaviours, by theme. A good order for implementing them in a new transport.
BEHAVIOURS: tuple[Behaviour, ...] = tuple(
    value for theme in _THEMES for value in vars(theme).values() if isinstance(value, Behaviour)
)


async def verify(behaviour: Behaviour, subject: Subject, deviations: Mapping[str, str] | None = None) -> None:
    """Run one behaviour inside a test.

    ``deviations`` maps names of behaviours to the reasons of known deviations of the transport. A behaviour that does
    not hold fails the test, or is an ``xfail`` if it is in ``deviations``. A behaviour in ``deviations`` that does hold
    fails the test too. Raises :class:`~transports.errors.UsageError` for a deviation from a behaviour that does not
    exist.
    """
    if unknown := set(deviations or ()) - {known.name for known in BEHAVIOURS}:
        raise UsageError(
            f"deviations from behaviours that do not exist: {', '.join(sorted(unknown))}; correct or remove them"
        )
    reason = (deviations or {}).get(behaviour.name)
    try:
        async with asyncio.timeout(subject.timeout):
            await behaviour.check(subject)
    except Exception as error:
        if reason is not None and isinstance(error, AssertionError | ABPError | TimeoutError):
            pytest.xfail(reason)
        raise AssertionError(f"{behaviour.name}: {_describe(error, subject)}  [source: {behaviour.source}]") from error
    if reason is not None:
        pytest.fail(f"{behaviour.name}: it holds, so take it out of the deviations (there because: {reason})")


def _describe(error: Exception, subject: Subject) -> str:
    match error:
        case AssertionError():
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
