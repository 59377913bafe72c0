"""Page → file: the ladder of ways that content too large for an answer takes (PERFORMANCE "Page → file").

Rungs, fastest first; each is tried if the one before it cannot be used here:

1. ``download``: the browser itself writes the file. No byte passes through Python or the driver.
2. ``stream``: ``IO.resolveBlob`` and ``IO.read``.
3. ``slices``: base64 text, 8 MB at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pybase64

from ..binary import Handle
from ..errors import CallTimeout, ProtocolError, SizeMismatch, TransportError
from .agent import PageAgent

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

__all__ = ["Ladder", "Unusable"]

MB = 1 << 20
#: Below this a stream is as fast as a download, and downloads are rationed (measured).
_DOWNLOAD_FROM = 1 * MB
#: More than ten downloads a second from one frame are dropped without a word by Chromium.
_PER_SECOND = 9
#: Live blobs are capped near 500 MiB just after launch: larger content goes in slices, one alive at a time.
_WHOLE_UP_TO = 400 * MB
_SLICE = 64 * MB
_STREAM_CHUNK = 4 * MB
_TEXT_SLICE = 6 * MB  # 8 MB of base64
#: A download that the browser refuses (sandboxed frame, say) gives no event at all.
_SILENCE = 2.0
_COLLECT_EVERY = 128 * MB

_CLICK = """function (url) {
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
}"""


class Unusable(Exception):
    """A rung that cannot be used here; the next one may."""


class Ladder:
    """Moves the content of one page. ``used`` counts what each rung moved, for reports."""

    def __init__(self, agent: PageAgent, browser_cdp: CDPSession | None, context_id: str | None) -> None:
        self._agent = agent
        self._browser_cdp = browser_cdp
        self._context_id = context_id
        self._folder: Path | None = None
        self._world: int | None = None
        self._recent: deque[float] = deque(maxlen=_PER_SECOND)
        self._moved = 0
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._guids: dict[str, asyncio.Future[str]] = {}
        self._one_at_a_time = asyncio.Lock()
        self.used: dict[str, int] = {"download": 0, "stream": 0, "slices": 0}
        if browser_cdp is not None:
            browser_cdp.on("Browser.downloadWillBegin", self._began)
            browser_cdp.on("Browser.downloadProgress", self._progressed)
        agent.page.on("framenavigated", lambda frame: setattr(self, "_world", None))

    def close(self) -> None:
        """Stop listening."""
        if self._browser_cdp is not None:
            self._browser_cdp.remove_listener("Browser.downloadWillBegin", self._began)
            self._browser_cdp.remove_listener("Browser.downloadProgress", self._progressed)

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Write content held by the page's agent to ``path``. Raises :class:`~transports.errors.TransportError`, and
        :class:`~transports.errors.SizeMismatch` if no rung brought every byte."""
        assert handle.size is not None
        deadline = time.monotonic() + timeout
        failed: list[str] = []
        for rung in self._rungs(handle.size):
            try:
                await getattr(self, f"_{rung}")(handle, path, deadline)
            except Unusable as error:
                failed.append(f"{rung}: {error}")
            else:
                arrived = path.stat().st_size
                if arrived == handle.size:
                    self.used[rung] += 1
                    await self._collect(handle.size)
                    return
                failed.append(f"{rung}: {arrived} of {handle.size} bytes")
            path.unlink(missing_ok=True)
        raise SizeMismatch(f"content of {handle.size} bytes could not be taken out of the page ({'; '.join(failed)})")

    def _rungs(self, size: int) -> list[str]:
        rungs = ["stream", "slices"]
        if self._browser_cdp is not None and self._context_id is not None and size >= _DOWNLOAD_FROM:
            rungs.insert(0, "download")
        return rungs

    async def save_url(self, url: str, path: Path, *, timeout: float) -> None:
        """Write what a ``blob:`` URL of the page refers to. Only the page can read such a URL."""
        try:
            await self._download_url(url, path, time.monotonic() + timeout)
        except Unusable as error:
            raise TransportError(f"the page's blob: URL could not be saved: {error}") from error

    async def _collect(self, size: int) -> None:
        """Blobs live until the page collects its garbage; without it the browser's share runs out."""
        self._moved += size
        if self._moved >= _COLLECT_EVERY:
            self._moved = 0
            await self._agent.send("HeapProfiler.collectGarbage", timeout=10)

    # --- rung 1: the browser writes the file --------------------------------------------------------------------------

    async def _download(self, handle: Handle, path: Path, deadline: float) -> None:
        size = handle.size or 0
        step = size if size <= _WHOLE_UP_TO else _SLICE
        for start in range(0, max(size, 1), step):
            target = path if step == size else path.with_name(f"{path.name}.slice")
            end = min(start + step, size)
            url = await self._agent.invoke("url", handle.id, start, end, timeout=_left(deadline))
            try:
                await self._download_url(url, target, deadline)
            finally:
                await self._agent.invoke("revoke", url, timeout=_left(deadline))
            if target is not path:
                await asyncio.to_thread(_append, target, path)
                await self._collect(_COLLECT_EVERY)

    async def _download_url(self, url: str, path: Path, deadline: float) -> None:
        if self._browser_cdp is None or self._context_id is None:
            raise Unusable("this browser is not ours to download with")
        now = time.monotonic()
        if len(self._recent) == _PER_SECOND and now - self._recent[0] < 1.0:
            raise Unusable("more downloads a second than the browser allows")
        async with self._one_at_a_time:
            self._recent.append(time.monotonic())
            await self._download_into(path.parent)
            loop = asyncio.get_running_loop()
            began: asyncio.Future[str] = loop.create_future()
            self._waiting[url] = began
            finished: asyncio.Future[str] | None = None
            guid = ""
            try:
                await self._click(url, deadline)
                try:
                    guid = await asyncio.wait_for(began, min(_SILENCE, _left(deadline)))
                except TimeoutError as error:
                    raise Unusable("the browser did not begin the download") from error
                finished = self._guids[guid]
                state = await self._agent.bounded(asyncio.shield(finished), "a download", timeout=_left(deadline))
                if state != "completed":
                    raise Unusable(f"the browser {state} the download")
                await asyncio.to_thread(_move, path.parent / guid, path)
            except BaseException:
                if guid:
                    await self._abandon(guid, path.parent)
                raise
            finally:
                self._waiting.pop(url, None)
                self._guids.pop(guid, None)
                began.cancel()
                if finished is not None:
                    finished.cancel()

    async def _abandon(self, guid: str, folder: Path) -> None:
        """Stop a download and remove what it wrote."""
        with contextlib.suppress(TransportError):
            parameters = {"guid": guid, "browserContextId": self._context_id}
            assert self._browser_cdp is not None
            await self._agent.bounded(
                self._browser_cdp.send("Browser.cancelDownload", parameters), "Browser.cancelDownload", timeout=2
            )
        for left in folder.glob(f"{guid}*"):
            left.unlink(missing_ok=True)

    async def _download_into(self, folder: Path) -> None:
        if self._folder != folder and self._browser_cdp is not None:
            await self._agent.bounded(
                self._browser_cdp.send(
                    "Browser.setDownloadBehavior",
                    {
                        "behavior": "allowAndName",
                        "browserContextId": self._context_id,
                        "downloadPath": str(folder),
                        "eventsEnabled": True,
                    },
                ),
                "Browser.setDownloadBehavior",
                timeout=10,
            )
            self._folder = folder

    async def _click(self, url: str, deadline: float) -> None:
        """In a world of our own, where the app cannot have replaced ``click``; the detached link changes no DOM."""
        if self._world is None:
            frames = await self._agent.send("Page.getFrameTree", timeout=_left(deadline))
            world = await self._agent.send(
                "Page.createIsolatedWorld", {"frameId": frames["frameTree"]["frame"]["id"]}, timeout=_left(deadline)
            )
            self._world = world["executionContextId"]
        await self._agent.send(
            "Runtime.callFunctionOn",
            {"executionContextId": self._world, "functionDeclaration": _CLICK, "arguments": [{"value": url}]},
            timeout=_left(deadline),
        )

    def _began(self, event: dict[str, Any]) -> None:
        began = self._waiting.get(event["url"])  # the app's own downloads arrive here too: they are not ours
        if began is not None and not began.done():
            self._guids[event["guid"]] = asyncio.get_running_loop().create_future()
            began.set_result(event["guid"])

    def _progressed(self, event: dict[str, Any]) -> None:
        finished = self._guids.get(event["guid"])
        if finished is not None and not finished.done() and event["state"] != "inProgress":
            finished.set_result(event["state"])

    # --- rung 2: a stream over CDP ------------------------------------------------------------------------------------

    async def _stream(self, handle: Handle, path: Path, deadline: float) -> None:
        try:
            blob = await self._agent.invoke("blob", handle.id, 0, handle.size, timeout=_left(deadline), by_value=False)
            resolved = await self._agent.send("IO.resolveBlob", {"objectId": str(blob)}, timeout=_left(deadline))
            await self.save_stream(f"blob:{resolved['uuid']}", path, timeout=_left(deadline))
        except (CallTimeout, ProtocolError):
            raise
        except TransportError as error:
            if error.session_survives:
                raise Unusable(error.message) from error
            raise

    async def save_stream(self, stream: str, path: Path, *, timeout: float) -> None:
        """Write a stream of the CDP domain IO (a printed page, say) and close it."""
        deadline = time.monotonic() + timeout
        try:
            with path.open("xb") as file:
                while True:
                    part = await self._agent.send(
                        "IO.read", {"handle": stream, "size": _STREAM_CHUNK}, timeout=_left(deadline)
                    )
                    data = (
                        pybase64.b64decode(part["data"], validate=True)
                        if part.get("base64Encoded")
                        else part["data"].encode()
                    )
                    await asyncio.to_thread(file.write, data)
                    if part["eof"]:
                        return
        finally:
            await self._agent.send("IO.close", {"handle": stream}, timeout=5)

    # --- rung 3: text -------------------------------------------------------------------------------------------------

    async def _slices(self, handle: Handle, path: Path, deadline: float) -> None:
        size = handle.size or 0
        with path.open("xb") as file:
            for start in range(0, size, _TEXT_SLICE):
                end = min(start + _TEXT_SLICE, size)
                text = await self._agent.invoke("base64", handle.id, start, end, timeout=_left(deadline))
                await asyncio.to_thread(_write_base64, file, text)


def _write_base64(file: BinaryIO, text: str) -> None:
    file.write(pybase64.b64decode(text, validate=True))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise CallTimeout("the content could not be taken out of the page in time; give the call a longer timeout")
    return left


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:
        shutil.move(source, target)


def _append(part: Path, whole: Path) -> None:
    with part.open("rb") as source, whole.open("ab") as target:
        shutil.copyfileobj(source, target, 4 * MB)
    part.unlink()
