"""Transports around a transport: everything that a transport has reaches the one inside."""

import pytest

from transports import Transport
from transports.recording._recorder import Recorder
from transports.session._secrets import Guarded


@pytest.mark.parametrize("kind", [Recorder, Guarded])
def test_transport_wrapper_forwards_every_member(kind: type[Transport]) -> None:
    members = {name for name in vars(Transport) if not name.startswith("_")} - {"features"}
    assert {name for name in members if getattr(kind, name) is getattr(Transport, name)} == set()
