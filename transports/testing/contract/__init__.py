"""The behaviours that every transport must show (``docs/write-a-transport.md``), to be run by pytest::

    import pytest
    from transports.testing.contract import BEHAVIOURS, Behaviour, Subject, verify
    from webapp_fixture import serve

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
    async def test_contract(behaviour: Behaviour, tmp_path: Path) -> None:
        async with serve() as app:
            subject = Subject(lambda: MyTransport(app.ws_url), tmp_path)
            await verify(behaviour, subject, {"download URLs are followed": "my app has no address"})

A transport is tried on the reference app (:mod:`webapp_fixture`), of which a :class:`Subject` makes new transports, as
many as a behaviour needs. What does not hold for a transport is data: a name and the reason. A deviation that is
declared and does not show is a failure, so that no list goes stale.

* :mod:`.behaviour` — what a behaviour is, what it is tried on, how one is run.
* :mod:`.lifecycle`, :mod:`.messages` — the transport by itself.
* :mod:`.capabilities`, :mod:`.calls`, :mod:`.binaries`, :mod:`.parameters`, :mod:`.downloads`, :mod:`.events`,
  :mod:`.cancellation`, :mod:`.faults` — a session over it.
"""

from __future__ import annotations

from . import (
    binaries,
    calls,
    cancellation,
    capabilities,
    downloads,
    events,
    faults,
    lifecycle,
    messages,
    parameters,
)
from .behaviour import Behaviour, Subject, verify

__all__ = ["BEHAVIOURS", "Behaviour", "Subject", "verify"]

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
