"""A cancelled download leaves no file, however late the browser takes notice."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transports.playwright._downloads import LIMITS, CdpDownloads


class _Emitter:
    def __init__(self) -> None:
        self.listeners: dict[str, list[Callable[[Any], object]]] = {}

    def on(self, event: str, listener: Callable[[Any], object]) -> None:
        self.listeners.setdefault(event, []).append(listener)

    once = on

    def remove_listener(self, event: str, listener: Callable[[Any], object]) -> None:
        self.listeners[event].remove(listener)

    def emit(self, event: str, value: object = None) -> None:
        for listener in tuple(self.listeners.get(event, ())):
            listener(value)


class _Busy(_Emitter):
    """The page and the CDP session of a browser that begins a download and then does nothing it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.process = _Emitter()
        self.process.is_connected = lambda: True  # type: ignore[attr-defined]
        self.page = self
        self.context = SimpleNamespace(browser=self.process)
        self.begun = asyncio.Event()

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        async with asyncio.timeout(timeout):
            return await work

    async def send(self, method: str, params: Any = None, **_: object) -> dict[str, Any]:
        return {}

    async def invoke(self, _: str, url: str, name: str, **__: object) -> None:
        self.emit("Browser.downloadWillBegin", {"url": url, "guid": "guid", "suggestedFilename": name, "frameId": "1"})
        self.begun.set()

    def end(self) -> None:
        self.emit("Browser.downloadProgress", {"guid": "guid", "state": "canceled"})


@pytest.mark.parametrize("end", ["reported", "reported after the session", "with the browser"])
async def test_a_download_that_is_cancelled_late_leaves_no_file(tmp_path: Path, end: str) -> None:
    browser: Any = _Busy()
    limits = replace(LIMITS, cancel=0.01)
    downloads = CdpDownloads(browser, browser, "context", asyncio.Semaphore(1), temporary=tmp_path, limits=limits)
    deadline = time.monotonic() + 3600
    saving = asyncio.ensure_future(
        downloads.save(browser, "blob:1", tmp_path / "staged", size=9, limit=99, deadline=deadline)
    )
    await browser.begun.wait()
    saving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await saving
    written = tmp_path / "guid.crdownload"
    written.write_bytes(b"late")
    if end == "reported after the session":
        downloads.close()
        assert not written.exists()
        written.write_bytes(b"later")
    if end == "with the browser":
        browser.process.emit("disconnected")
    else:
        browser.end()
    assert list(tmp_path.iterdir()) == []
    if end != "reported after the session":
        downloads.close()
    assert not browser.listeners["Browser.downloadWillBegin"] and not browser.listeners["Browser.downloadProgress"]
