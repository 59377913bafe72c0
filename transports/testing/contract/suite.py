"""All behaviours, and how one is run as a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ...errors import ABPError, UsageError
from . import binaries, calls, cancellation, capabilities, downloads, events, faults, lifecycle, messages, parameters
from .behaviour import Behaviour, Subject

__all__ = ["BEHAVIOURS", "verify"]

_THEMES = (
    lifecycle,
    messages,
    capabilities,
    calls,
    binaries,
    parameters,
    downloads,
    events,
    cancellation,
    faults,
)

#: All of them, by theme, in the order in which it is best to make them hold.
BEHAVIOURS: tuple[Behaviour, ...] = tuple(
    value for theme in _THEMES for value in vars(theme).values() if isinstance(value, Behaviour)
)


async def verify(behaviour: Behaviour, subject: Subject, deviations: Mapping[str, str] | None = None) -> None:
    """Run one behaviour as a part of a test. Of ``deviations`` (name of a behaviour → reason) one that shows is an
    ``xfail`` with its reason. Fails if the behaviour does not hold and nobody said so, and if somebody said so and it
    does hold. Raises :class:`~transports.errors.UsageError` for a deviation from a behaviour that does not exist."""
    if unknown := set(deviations or ()) - {known.name for known in BEHAVIOURS}:
        raise UsageError(f"deviations from behaviours that do not exist: {', '.join(sorted(unknown))}; correct them")
    reason = (deviations or {}).get(behaviour.name)
    try:
        async with asyncio.timeout(subject.timeout):
            await behaviour.check(subject)
    except Exception as error:
        if reason is not None and isinstance(error, AssertionError | ABPError | TimeoutError):
            pytest.xfail(reason)
        raise AssertionError(f"{behaviour.name}: {_said(error, subject)}  [source: {behaviour.source}]") from error
    if reason is not None:
        pytest.fail(f"{behaviour.name}: it holds, so take it out of the deviations (there because: {reason})")


def _said(error: Exception, subject: Subject) -> str:
    match error:
        case AssertionError():
            return str(error)
        case TimeoutError():
            return f"it did not end within {subject.timeout:g} s"
        case _:
            return f"{type(error).__name__}: {error}"
