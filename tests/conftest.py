"""What the tests without a browser share."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from transports import MemoryTransport, Session, connect
from transports.adapters.memory import Handler

Connect: TypeAlias = Callable[..., Session]


@pytest.fixture
def app_of(tmp_path: Path) -> Connect:
    """A session with an in-process app made of handlers (or a transport); its files go to ``tmp_path / "out"``."""

    def make(app: Mapping[str, Handler] | MemoryTransport | None = None, **options: Any) -> Session:
        transport = app if isinstance(app, MemoryTransport) else MemoryTransport(app or {})
        return connect("memory:", transport=transport, **{"store": tmp_path / "out", **options})

    return make
