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

* :mod:`._suite` — all behaviours, and :func:`verify`, which runs one as a test.
* :mod:`._behaviour` — the types, and helpers for writing behaviours.
* :mod:`._lifecycle`, :mod:`._messages` — the transport alone.
* :mod:`._calls`, :mod:`._binaries`, :mod:`._events`, :mod:`._cancellation`, :mod:`._faults` — a session over the
  transport.
"""

from __future__ import annotations

from ..._internal.extras import needing

with needing("pytest", "test"):
    from ._behaviour import Behaviour, Subject
    from ._suite import BEHAVIOURS, verify

__all__ = ["BEHAVIOURS", "Behaviour", "Subject", "verify"]
