"""One reference app and one browser for all tests that do not break them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio

from transports import Browser, PlaywrightTransport, Session, connect
from webapp_fixture import Fixture, serve


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fixture() -> AsyncIterator[Fixture]:
    async with serve() as served:
        yield served


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as started:
        yield started


Connect = Callable[..., Session]


@pytest_asyncio.fixture(loop_scope="session")
async def connected(fixture: Fixture, browser: Browser, tmp_path: Path) -> Connect:
    """``async with connected("?query", …) as app``: a session in the shared browser, its artifacts in ``tmp_path``."""

    def make(query: str = "", *, base: str | None = None, grace: float = 5.0, **options: Any) -> Session:
        url = (base or fixture.url) + query
        options.setdefault("store", tmp_path / "out")
        return connect(url, transport=PlaywrightTransport(url, browser=browser, grace=grace), **options)

    return make
