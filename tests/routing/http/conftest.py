"""Fixtures of the tests of downloads and discovery."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.downloads import Get
from tests.support.raw_server import certificate as certificate, serve as serve, tls as tls, trusted as trusted
from transports.routing.http import _addresses as addresses, _downloads as downloads


@pytest.fixture
async def get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Get]:
    monkeypatch.setattr(downloads, "backoff_delay", lambda request: 0.0025 * 2**request)
    before = asyncio.all_tasks()
    yield Get(tmp_path / "store")
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not [task for task in left if "RawServer.serve" not in repr(task)]


@pytest.fixture
def fake_public(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address that counts as public and is ours."""
    real = addresses.is_public
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.2" or real(address))
    return "127.0.0.2"


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is taken and on which nobody listens."""
    with socket.socket() as sock:  # bound and not listening
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
