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

* :mod:`.suite` — all behaviours, and how one is run as a test.
* :mod:`.behaviour` — what a behaviour is, and what it is tried on.
* :mod:`.lifecycle`, :mod:`.messages` — the transport by itself.
* :mod:`.capabilities`, :mod:`.calls`, :mod:`.binaries`, :mod:`.parameters`, :mod:`.downloads`, :mod:`.events`,
  :mod:`.cancellation`, :mod:`.faults` — a session over it.
"""

from __future__ import annotations

from .behaviour import Behaviour, Subject
from .suite import BEHAVIOURS, verify

__all__ = ["BEHAVIOURS", "Behaviour", "Subject", "verify"]
