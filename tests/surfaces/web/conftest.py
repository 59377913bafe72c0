"""A store and a server of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.web_client import Web, running
from transports.artifacts import ArtifactStore, LocalStore


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return LocalStore(tmp_path / "out")


@pytest.fixture
async def web(store: ArtifactStore) -> AsyncIterator[Web]:
    async with running(store) as web:
        yield web
