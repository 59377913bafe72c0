"""The contract suite: behaviours that every transport must show, run by pytest (``docs/write-a-transport.md``)::

    import pytest
    from transports.testing.contract import BEHAVIOURS, Behaviour, Subject, verify
    from webapp_fixture import serve

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
    async def test_contract(behaviour: Behaviour, tmp_path: Path) -> None:
        async with serve() as app:
            subject = Subject(lambda: MyTransport(app.ws_url), tmp_path)
            await verify(behaviour, subject, {"download URLs are followed": "my app has no address"})

The far side is the reference app (:mod:`webapp_fixture`). A :class:`Subject` makes as many new transports to it as a
behaviour needs. Known deviations of a transport are data: the name of a behaviour and the reason. A deviation that is
declared and does not show is a failure, so the list cannot go stale.

* :mod:`.suite` — all behaviours, and :func:`verify`, which runs one as a test.
* :mod:`.behaviour` — the types, and helpers for writing behaviours.
* :mod:`.lifecycle`, :mod:`.messages` — the transport alone.
* :mod:`.capabilities`, :mod:`.calls`, :mod:`.binaries`, :mod:`.parameters`, :mod:`.downloads`, :mod:`.events`,
  :mod:`.cancellation`, :mod:`.faults` — a session over the transport.
"""

from __future__ import annotations

from ._behaviour import Behaviour, Subject
from ._suite import BEHAVIOURS, verify

__all__ = ["BEHAVIOURS", "Behaviour", "Subject", "verify"]
