"""The import of modules while a transport opens."""

from __future__ import annotations

import asyncio
import importlib

import pytest

from transports.session._session import load_modules


async def test_modules_are_imported_once_transport_has_begun_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    for is_open in (True, False):
        opened = asyncio.Event()
        loading = asyncio.ensure_future(load_modules(["transports.is_not_there"], opened))
        await asyncio.sleep(0)
        assert not imported
        if is_open:
            opened.set()
        await loading
        assert imported == ["transports.is_not_there"]
        imported.clear()
