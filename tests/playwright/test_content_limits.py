"""Content between a page and files: limits hold while bytes arrive, and nothing is left of what is given up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pybase64
import pytest

from tests.support.eventually import eventually
from transports.errors import ABPError, BrowserCrashed, ProtocolError, SizeMismatch, StoreFull, TooLarge, TransportError
from transports.playwright._agent import PageAgent, PageObject
from transports.playwright._content import Ladder, Uploads
from transports.playwright._downloads import (
    LIMITS,
    AppDownloads,
    ByteLimits,
    CdpDownloads,
    GrowingFile,
    PlaywrightDownloads,
    RungUnusable,
)
from transports.protocol._params import prepare_params
from transports.protocol.binary import Handle

_LIMIT = 1000
_URL = "blob:http://127.0.0.1/1"


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


class _Browser(_Emitter):
    """The CDP session of a browser that writes 400 bytes per event to the file of a download, until it is cancelled."""

    def __init__(self, folder: Path, *, total: int = 0, size: int = 100_000) -> None:
        super().__init__()
        self.file = folder / "guid"
        self._total = total
        self._size = size
        self.page = self
        self.cdp = self
        target = {"browserContextId": "context", "targetId": "frame"}
        self.channel = SimpleNamespace(cdp=self, target=target, collect_garbage=self.collect_garbage)
        self.cancelled = asyncio.Event()
        self.collected = asyncio.Event()
        self.collecting = 0
        self.url = _URL
        self.invoked: list[str] = []

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
        begin = {"url": url, "guid": "guid", "suggestedFilename": f"{name}.txt", "frameId": "frame"}
        self.emit("Browser.downloadWillBegin", begin)
        with self.file.open("xb") as file:
            while not self.cancelled.is_set() and file.tell() < self._size:
                file.write(b"x" * 400)
                progress = {"receivedBytes": file.tell(), "totalBytes": self._total, "state": "inProgress"}
                self.emit("Browser.downloadProgress", {"guid": "guid", **progress})
                await asyncio.sleep(0)
            state = "canceled" if self.cancelled.is_set() else "completed"
            self.emit("Browser.downloadProgress", {"guid": "guid", "state": state})
            return file.tell()


def _downloads(browser: _Browser) -> CdpDownloads:
    folder = browser.file.parent
    return CdpDownloads(browser, browser, "context", asyncio.Semaphore(1), temporary=folder)  # type: ignore[arg-type]


# What the browser knows of the size, and the bytes that it may write: a few events pass until it is cancelled.
@pytest.mark.parametrize(("total", "written"), [(0, 4_000), (5_000, 3_000)], ids=["unknown", "known"])
async def test_browser_download_is_stopped_at_limit(tmp_path: Path, total: int, written: int) -> None:
    browser = _Browser(tmp_path, total=total)
    agent: Any = browser
    with pytest.raises(TooLarge) as caught:
        deadline = time.monotonic() + 3600
        await _downloads(browser).save(agent, _URL, tmp_path / "saved", size=100, limit=_LIMIT, deadline=deadline)
    assert caught.value.details["limit"] == _LIMIT
    assert await browser.writing <= written
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.parametrize(("limits", "error"), [((_LIMIT,), TooLarge), ((1 << 30, _LIMIT), StoreFull)], ids=str)
async def test_app_download_is_stopped_at_limit(tmp_path: Path, limits: Any, error: type[ABPError]) -> None:
    browser = _Browser(tmp_path, total=0)
    found = AppDownloads(browser, _downloads(browser), ByteLimits(*limits))  # type: ignore[arg-type]
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
async def test_page_sending_more_than_declared_size_is_rejected(tmp_path: Path, cdp: bool) -> None:
    page = _Page(cdp=cdp)
    with pytest.raises(SizeMismatch, match="more than the 100 bytes that it declared"):
        ladder = Ladder(page, None, max_bytes=_LIMIT, used=Counter())  # type: ignore[arg-type]
        await ladder.save(Handle("1", 100), tmp_path / "saved", timeout=3600)
    assert page.given in (120, 100_000)
    assert list(tmp_path.iterdir()) == []


async def test_print_blob_and_answer_over_limit_are_rejected(tmp_path: Path) -> None:
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
async def test_content_is_not_fetched_from_non_blob_url(tmp_path: Path, way: str) -> None:
    browser = _Browser(tmp_path)
    browser.url = "http://127.0.0.1/endless"
    downloads = _downloads(browser) if way == "cdp" else PlaywrightDownloads(asyncio.Semaphore(1))
    ladder = Ladder(browser, downloads, max_bytes=1 << 30, used=Counter())  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="a URL other than blob:"):
        await ladder.save(Handle("1", 8 << 20), tmp_path / "saved", timeout=3600)


async def test_download_needs_one_page_call_and_collects_garbage_after(
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


class _Busy(_Emitter):
    """The page and the CDP session of a browser that begins a download and then does nothing it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.process = _Emitter()
        self.process.is_connected = lambda: True  # type: ignore[attr-defined]
        self.page = self
        self.context = SimpleNamespace(browser=self.process)
        self.begun = asyncio.Event()
        self.sent: list[str] = []

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        async with asyncio.timeout(timeout):
            return await work

    async def send(self, method: str, params: Any = None, **_: object) -> dict[str, Any]:
        self.sent.append(method)
        return {}

    async def invoke(self, _: str, url: str, name: str, **__: object) -> None:
        self.emit("Browser.downloadWillBegin", {"url": url, "guid": "guid", "suggestedFilename": name, "frameId": "1"})
        self.begun.set()

    def end(self) -> None:
        self.emit("Browser.downloadProgress", {"guid": "guid", "state": "canceled"})


class _Mortal(_Busy):
    """A browser that is gone before the download begins, or whose driver is gone while it runs: then commands fail."""

    def __init__(self, victim: str) -> None:
        super().__init__()
        self.victim = victim

    async def send(self, method: str, params: Any = None, **_: object) -> dict[str, Any]:
        if self.begun.is_set():
            raise Exception("Connection closed while reading from the driver")
        return {}


class _MortalAgent(PageAgent):
    async def invoke(self, method: str, *args: Any, **_: object) -> Any:
        browser: Any = self.page
        if browser.victim == "driver":
            await browser.invoke(method, "blob:1", args[-1])
        else:
            asyncio.get_running_loop().call_later(0.05, self.on_disconnect, None)


@pytest.mark.fault(1, 3)
@pytest.mark.parametrize("victim", ["browser", "driver"])
async def test_download_ends_at_once_with_its_browser_or_driver(tmp_path: Path, victim: str) -> None:
    browser: Any = _Mortal(victim)
    agent = _MortalAgent(browser, browser, lambda *_: None, lambda lost: lost)
    limits = replace(LIMITS, start=3600.0, cancel=0.01)
    downloads = CdpDownloads(agent, browser, "context", asyncio.Semaphore(1), temporary=tmp_path, limits=limits)
    deadline = time.monotonic() + 3600
    async with asyncio.timeout(20):
        with pytest.raises(BrowserCrashed):
            await downloads.save(agent, "blob:1", tmp_path / "staged", size=9, limit=99, deadline=deadline)


async def _begun(browser: Any, folder: Path) -> tuple[CdpDownloads, asyncio.Future[Any]]:
    """A download of the browser that has begun, and is being saved."""
    limits = replace(LIMITS, cancel=0.01)
    downloads = CdpDownloads(browser, browser, "context", asyncio.Semaphore(1), temporary=folder, limits=limits)
    deadline = time.monotonic() + 3600
    saving = asyncio.ensure_future(
        downloads.save(browser, "blob:1", folder / "staged", size=9, limit=99, deadline=deadline)
    )
    await browser.begun.wait()
    return downloads, saving


async def test_download_that_browser_broke_off_is_not_cancelled_again(tmp_path: Path) -> None:
    browser = _Busy()
    _, saving = await _begun(browser, tmp_path)
    browser.end()
    with pytest.raises(RungUnusable, match="canceled the download"):
        await saving
    assert "Browser.cancelDownload" not in browser.sent


@pytest.mark.parametrize("end", ["reported", "reported after the session", "with the browser"])
async def test_download_cancelled_late_leaves_no_file(tmp_path: Path, end: str) -> None:
    browser = _Busy()
    downloads, saving = await _begun(browser, tmp_path)
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
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []
    if end != "reported after the session":
        downloads.close()
    assert not browser.listeners["Browser.downloadWillBegin"] and not browser.listeners["Browser.downloadProgress"]


class _Places:
    """The folders of a browser and of a store, and what a download is called in them."""

    def __init__(self, root: Path) -> None:
        self.temporary, self.store = root / "temporary", root / "store"
        self.temporary.mkdir()
        self.store.mkdir()
        (self.temporary / ".lock").touch()
        self.hidden = self.temporary / ".org.chromium.Chromium.x"
        self.written, self.path = self.store / "guid", self.store / "staged"
        self.growing = GrowingFile(self.path, self.temporary)

    async def linked(self) -> None:
        await eventually(self.path.exists, pause=0.001)


@pytest.fixture
def places(tmp_path: Path) -> _Places:
    return _Places(tmp_path)


async def test_download_is_linked_into_store_from_its_first_bytes(places: _Places) -> None:
    places.growing.start_looking()
    with places.hidden.open("wb", buffering=0) as file:
        file.write(b"first")
        await places.linked()
        file.write(b", second")
        assert places.path.read_bytes() == b"first, second"
    places.hidden.rename(places.written)
    await places.growing.replace_with(places.written)
    assert [found.name for found in places.store.iterdir()] == ["staged"]
    assert places.path.read_bytes() == b"first, second" and places.path.stat().st_nlink == 1


@pytest.mark.parametrize("moved", ["renamed", "copied"])
async def test_wrongly_linked_file_is_replaced_by_download(
    places: _Places, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    def another_file_system(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    if moved == "copied":
        monkeypatch.setattr(Path, "rename", another_file_system)
        monkeypatch.setattr(os, "rename", another_file_system)
    places.hidden.write_bytes(b"another one")
    places.growing.start_looking()
    await places.linked()
    places.written.write_bytes(b"the download")
    await places.growing.replace_with(places.written)
    assert places.path.read_bytes() == b"the download" and places.hidden.read_bytes() == b"another one"


async def test_growing_file_is_not_read_if_ambiguous_or_folder_is_missing(
    places: _Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = GrowingFile._hidden_files

    def counted(growing: GrowingFile) -> Set[str]:
        nonlocal looks
        looks += 1
        return look(growing)

    monkeypatch.setattr(GrowingFile, "_hidden_files", counted)
    for growing in (places.growing, GrowingFile(places.path, places.store / "none")):
        for number in range(2):
            (places.temporary / f".{number}").touch()
        before = looks
        growing.start_looking()
        while looks < before + 3:
            await asyncio.sleep(0)
        assert not places.path.exists()
        places.written.write_bytes(b"the download")
        await growing.replace_with(places.written)
        assert [found.name for found in places.store.iterdir()] == ["staged"]
        assert places.path.read_bytes() == b"the download" and not growing._looking
        places.path.unlink()


async def test_abandoned_download_drops_its_link(places: _Places) -> None:
    places.hidden.write_bytes(b"half of")
    places.growing.start_looking()
    await places.linked()
    await places.growing.discard()
    assert not list(places.store.iterdir()) and places.hidden.exists()
    await GrowingFile(places.path, places.temporary).discard()


async def test_download_is_read_at_end_if_open_files_cannot_be_renamed(
    places: _Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transports.playwright._downloads.OPEN_FILES_MOVE", False)
    places.growing.start_looking()
    places.hidden.write_bytes(b"all")
    assert not places.growing._looking and not places.path.exists()
    places.hidden.rename(places.written)
    await places.growing.replace_with(places.written)
    assert places.path.read_bytes() == b"all"


class FarPage:
    """What the uploads see of a page, whose browser reads the disk of another machine, or ours."""

    def __init__(self, disk: dict[str, bytes] | None) -> None:
        self.disk = disk
        self.chosen: list[str] = []
        self.text = b""
        self.released = 0

    async def set_file(self, element: PageObject, path: Path, *, timeout: float) -> None:
        self.chosen.append(str(path))
        if self.disk is not None and str(path) not in self.disk:
            raise TransportError("no such file")

    async def invoke(self, method: str, *args: Any, timeout: float, returns: object = None) -> object:
        if method == "chosenSize":
            return Path(self.chosen[-1]).stat().st_size if self.disk is None else len(self.disk[self.chosen[-1]])
        if method == "appendToBuffer":
            self.text += base64.b64decode(args[1])
        return PageObject(method)

    async def release_object(self, page_object: PageObject) -> None:
        self.released += 1


@pytest.mark.parametrize("shares", [True, False])
async def test_remote_file_of_same_path_and_size_is_not_uploaded(tmp_path: Path, shares: bool) -> None:
    file, data = tmp_path / "in.bin", b"ours" * 50_000
    file.write_bytes(data)
    page = FarPage(None if shares else {str(file): b"else" * 50_000})
    uploads = Uploads(page, tmp_path, shares_disk=False)  # type: ignore[arg-type]
    for _ in range(2):
        params, content = prepare_params({"file": file})
        async with uploads.prepare({"params": params}, content, timeout=5) as (_, elements):
            assert [one.ref for one in elements] == ["createFileInput" if shares else "createFileBuffer"]
    if shares:
        assert page.text == b"" and page.chosen[1:] == [str(file)] * 2
    else:
        assert page.text == data * 2 and str(file) not in page.chosen
    assert len(page.chosen) == (3 if shares else 1)  # the disk is looked for once
    assert list(tmp_path.iterdir()) == [file]


async def test_local_browser_receives_upload_path_directly(tmp_path: Path) -> None:
    file = tmp_path / "in.bin"
    file.write_bytes(bytes(100_000))
    page = FarPage(None)
    params, content = prepare_params({"file": file})
    async with Uploads(page, tmp_path, shares_disk=True).prepare({"params": params}, content, timeout=5):  # type: ignore[arg-type]
        assert page.chosen == [str(file)]
