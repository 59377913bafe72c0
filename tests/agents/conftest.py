"""The reference app over its socket: real schemas and files, without a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from transports import Session, connect
from webapp_fixture import serve


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[Session]:
    async with serve() as workbench, connect(workbench.ws_url, store=tmp_path / "out") as session:
        yield session
