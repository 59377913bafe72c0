"""The import of modules while a transport opens."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AsyncExitStack

import pytest

from transports.session._session import Loading


async def test_modules_are_preloaded_once_transport_begins_to_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    async with AsyncExitStack() as stack:
        loading = Loading(["transports.is_not_there"], stack, lead=60)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not imported
        await loading.wait()
        assert imported == ["transports.is_not_there"]
        async with asyncio.timeout(15):
            await Loading(["transports.is_not_there"], stack, lead=0).task
    assert len(imported) == 2
