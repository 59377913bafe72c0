"""Contract suite: required behaviours of every transport, run by pytest (``docs/write-a-transport.md``)::

    import pytest
    from transports.testing.contract import BEHAVIOURS, Behaviour, Subject, verify
    from webapp_fixture import serve

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
    async def test_contract(behaviour: Behaviour, tmp_path: Path) -> None:
        async with serve() as app:
            subject = Subject(lambda: MyTransport(app.ws_url), tmp_path)
            await verify(behaviour, subject, {"download URLs are followed": "my app has no address"})

The app is the reference app (:mod:`webapp_fixture`). A :class:`Subject` creates new transports to it, as many as a
behaviour needs. Known deviations of a transport are data: the name of a behaviour and the reason. A declared deviation
that does not occur is a failure, so the list cannot become stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module

from ..._internal.lazy import requiring_extra

with requiring_extra("pytest", "test"):
    import pytest

from ...errors import ABPError, UsageError
from ._behaviour import REGISTERED, Behaviour, Subject

__all__ = ["BEHAVIOURS", "Behaviour", "Subject", "verify"]

for _module in ("_session", "_content"):
    # Before it is imported, so that a failed assert shows its values.
    pytest.register_assert_rewrite(f"{__name__}.{_module}")
    import_module(f"{__name__}.{_module}")

#: All behaviours, by theme. A good order for implementing them in a new transport.
BEHAVIOURS: tuple[Behaviour, ...] = tuple(REGISTERED)


async def verify(behaviour: Behaviour, subject: Subject, deviations: Mapping[str, str] | None = None) -> None:
    """Run one behaviour inside a test.

    ``deviations`` maps names of behaviours to the reasons of known deviations of the transport. A behaviour that does
    not hold fails the test, or is an ``xfail`` if it is in ``deviations``. A behaviour in ``deviations`` that does hold
    fails the test too. Raises :class:`~transports.errors.UsageError` for a deviation from a behaviour that does not
    exist.
    """
    deviations = deviations or {}
    unknown = set(deviations) - {existing.name for existing in BEHAVIOURS}
    if unknown:
        raise UsageError(f"unknown behaviours in deviations: {', '.join(sorted(unknown))}")
    reason = deviations.get(behaviour.name)
    try:
        async with asyncio.timeout(subject.timeout):
            await behaviour.check(subject)
    except (Exception, pytest.fail.Exception) as error:
        does_not_hold = isinstance(error, AssertionError | ABPError | TimeoutError | pytest.fail.Exception)
        if reason is not None and does_not_hold:
            pytest.xfail(reason)
        raise AssertionError(
            f"{behaviour.name}: {_describe_failure(error, subject)}  [source: {behaviour.source}]"
        ) from error
    if reason is not None:
        pytest.fail(f"{behaviour.name}: it holds; remove it from the deviations (reason: {reason})")


def _describe_failure(error: BaseException, subject: Subject) -> str:
    match error:
        case AssertionError() | pytest.fail.Exception():
            return str(error)
        case TimeoutError():
            return f"it did not end within {subject.timeout:g} s"
        case _:
            return f"{type(error).__name__}: {error}"
