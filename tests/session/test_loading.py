"""The import of modules while a transport opens."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AsyncExitStack

import pytest

from transports.session import _session as loading


async def test_modules_are_imported_when_a_transport_has_begun_to_open_or_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    monkeypatch.setattr(loading, "_MODELS", "transports.is_not_there")
    monkeypatch.setattr(loading, "_CHECKS", ())
    monkeypatch.setattr(loading, "_LEAD", 60)
    async with AsyncExitStack() as stack:
        begun, _ = loading.begin_loading(None, stack)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not imported
        await begun.wait()
        assert imported == ["transports.is_not_there"]
    monkeypatch.setattr(loading, "_LEAD", 0)
    async with AsyncExitStack() as stack:
        begun, _ = loading.begin_loading(None, stack)
        await asyncio.wait_for(begun.task, 15)
    assert len(imported) == 2
