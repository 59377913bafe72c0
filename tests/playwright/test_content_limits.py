"""A page writes no more to the disk than it declared, and than the store takes: limits hold while bytes arrive."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pybase64
import pytest

from transports.errors import ABPError, ProtocolError, SizeMismatch, StoreFull, TooLarge
from transports.playwright._content import Ladder
from transports.playwright._downloads import LIMITS, AppDownloads, CdpDownloads, PlaywrightDownloads
from transports.protocol.binary import Handle

_LIMIT = 1000
_URL = "blob:http://127.0.0.1/1"


class _Browser:
    """The CDP session of a browser that writes 400 bytes per event to the file of a download, until it is cancelled."""

    def __init__(self, folder: Path, *, total: int = 0, size: int = 100_000) -> None:
        self._listeners: dict[str, list[Callable[[dict[str, Any]], object]]] = {}
        self.file = folder / "guid"
        self._total = total
        self._size = size
        self.page = self
        self.cdp = self
        self.channel = SimpleNamespace(cdp=self, collect_garbage=self.collect_garbage)
        self.cancelled = asyncio.Event()
        self.collected = asyncio.Event()
        self.collecting = 0
        self.url = _URL
        self.invoked: list[str] = []

    def on(self, event: str, listener: Callable[[Any], object]) -> None:
        self._listeners.setdefault(event, []).append(listener)

    def remove_listener(self, event: str, listener: Callable[[Any], object]) -> None:
        self._listeners[event].remove(listener)

    def emit(self, event: str, **params: object) -> None:
        for listener in self._listeners[event]:
            listener(params)

    async def with_deadline(self, work: Awaitable[Any], action: str, *, timeout: float) -> Any:
        return await asyncio.wait_for(work, timeout)

    async def send(self, method: str, params: Any = None, **_: object) -> dict[str, Any]:
        if method == "Browser.cancelDownload":
            self.cancelled.set()
        return {}

    async def invoke(self, method: str, *args: Any, **_: object) -> str:
        self.invoked.append(method)
        if method != "url":
            self.writing = asyncio.ensure_future(self.write(self.url, args[-1]))
        return self.url

    async def collect_garbage(self) -> None:
        self.collecting += 1
        await self.collected.wait()

    async def write(self, url: str, name: str = "big.bin") -> int:
        """Write until cancelled; returns how many bytes that were."""
        self.emit("Browser.downloadWillBegin", url=url, guid="guid", suggestedFilename=f"{name}.txt", frameId="frame")
        with self.file.open("xb") as file:
            while not self.cancelled.is_set() and file.tell() < self._size:
                file.write(b"x" * 400)
                progress = {"guid": "guid", "receivedBytes": file.tell(), "totalBytes": self._total}
                self.emit("Browser.downloadProgress", **progress, state="inProgress")
                await asyncio.sleep(0)
            state = "canceled" if self.cancelled.is_set() else "completed"
            self.emit("Browser.downloadProgress", guid="guid", receivedBytes=0, totalBytes=0, state=state)
            return file.tell()


def _downloads(browser: _Browser) -> CdpDownloads:
    folder = browser.file.parent
    return CdpDownloads(browser, browser, "context", asyncio.Semaphore(1), temporary=folder)  # type: ignore[arg-type]


# What the browser knows of the size, and the bytes that it may write: a few events pass until it is cancelled.
@pytest.mark.parametrize(("total", "written"), [(0, 4_000), (5_000, 2_000)], ids=["unknown", "known"])
async def test_the_browser_is_stopped_at_the_limit(tmp_path: Path, total: int, written: int) -> None:
    browser = _Browser(tmp_path, total=total)
    agent: Any = browser
    with pytest.raises(TooLarge) as caught:
        deadline = time.monotonic() + 3600
        await _downloads(browser).save(agent, _URL, tmp_path / "saved", size=100, limit=_LIMIT, deadline=deadline)
    assert caught.value.details["limit"] == _LIMIT
    assert await browser.writing <= written
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("limits", "error"), [((_LIMIT,), TooLarge), ((1 << 30, _LIMIT), StoreFull)], ids=str)
async def test_the_app_is_stopped_at_the_limit(tmp_path: Path, limits: Any, error: type[ABPError]) -> None:
    browser = _Browser(tmp_path, total=0)
    target = {"browserContextId": "context", "targetId": "frame"}
    found = AppDownloads(browser, browser, target, _downloads(browser), tmp_path, *limits)  # type: ignore[arg-type]
    found.on_started = lambda *_: True
    await found.prepare()
    writing = asyncio.ensure_future(browser.write("http://127.0.0.1/endless"))
    await asyncio.sleep(0)
    with pytest.raises(error):
        await found.wait("guid")
    assert await writing <= 4_000
    await found.aclose()


class _Page:
    """The agent of a page that says that it holds 100 bytes, and then never stops. ``given`` counts what it gave."""

    def __init__(self, *, cdp: bool) -> None:
        self.channel = SimpleNamespace(cdp=cdp)
        self.given = 0

    async def invoke(self, method: str, *args: Any, **_: object) -> Any:
        if method == "base64":
            self.given += 100_000
            return pybase64.b64encode(b"x" * 100_000).decode()
        return {
            "blob": SimpleNamespace(ref="1"),
            "holdUrl": '{"id":"1","size":1099511627776}',
        }.get(method)

    async def send(self, method: str, params: dict[str, Any], **_: object) -> dict[str, Any]:
        if method == "IO.read":
            self.given += 60
            data = pybase64.b64encode(b"x" * 60).decode()
            return {"data": data, "base64Encoded": True, "eof": self.given > 1_000_000}
        return {"uuid": "1"}

    async def release_object(self, _: object) -> None: ...


@pytest.mark.fault(30)
@pytest.mark.parametrize("cdp", [True, False], ids=["stream", "slices"])
async def test_a_page_gives_no_more_than_it_declared(tmp_path: Path, cdp: bool) -> None:
    page = _Page(cdp=cdp)
    with pytest.raises(SizeMismatch, match="more than the 100 bytes that it declared"):
        ladder = Ladder(page, None, max_bytes=_LIMIT, used=Counter())  # type: ignore[arg-type]
        await ladder.save(Handle("1", 100), tmp_path / "saved", timeout=3600)
    assert page.given in (120, 100_000)
    assert list(tmp_path.iterdir()) == []


async def test_a_print_a_blob_and_a_long_answer_are_held_to_the_limit(tmp_path: Path) -> None:
    page = _Page(cdp=True)
    ladder = Ladder(page, None, max_bytes=_LIMIT, used=Counter())  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        await ladder.save_stream("print", tmp_path / "print.pdf", timeout=3600)
    assert page.given == 1020 and (tmp_path / "print.pdf").stat().st_size == 960
    with pytest.raises(TooLarge):
        await ladder.save_url(_URL, tmp_path / "blob", timeout=3600)
    with pytest.raises(TooLarge):
        await ladder.read_answer('{"id":"1","size":1000000000}', tmp_path, timeout=3600)
    assert page.given == 1020


@pytest.mark.parametrize("way", ["cdp", "playwright"])
async def test_content_is_not_taken_from_an_address(tmp_path: Path, way: str) -> None:
    browser = _Browser(tmp_path)
    browser.url = "http://127.0.0.1/endless"
    downloads = _downloads(browser) if way == "cdp" else PlaywrightDownloads(asyncio.Semaphore(1))
    ladder = Ladder(browser, downloads, max_bytes=1 << 30, used=Counter())  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="a URL other than blob:"):
        await ladder.save(Handle("1", 8 << 20), tmp_path / "saved", timeout=3600)


async def test_a_download_takes_the_page_one_call_and_garbage_is_collected_beside_the_answer(
    tmp_path: Path,
) -> None:
    limits = replace(LIMITS, download_from=400, collect_every=400)
    browser: Any = _Browser(tmp_path, size=400)
    ladder = Ladder(browser, _downloads(browser), max_bytes=_LIMIT, used=Counter(), limits=limits)
    await ladder.save(Handle("1", 400), tmp_path / "first", timeout=3600)
    second = asyncio.ensure_future(ladder.save(Handle("2", 400), tmp_path / "second", timeout=3600))
    while not browser.collecting:
        await asyncio.sleep(0)
    for _ in range(20):  # a blob is made only when the one before it is gone
        await asyncio.sleep(0)
    assert (tmp_path / "first").stat().st_size == 400 and browser.invoked == ["download"]
    browser.collected.set()
    await second
    assert (tmp_path / "second").stat().st_size == 400 and browser.invoked == ["download"] * 2
    await ladder.aclose()
