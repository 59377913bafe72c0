"""Page → file: the ladder of ways that content too large for an answer takes (PERFORMANCE "Page → file").

Rungs, fastest first; each is tried if the one before it cannot be used here:

1. ``download``: the browser itself writes the file.
2. ``stream``: ``IO.resolveBlob`` and ``IO.read``.
3. ``slices``: base64 text, 8 MB at a time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import BinaryIO

import pybase64

from ...binary import Handle
from ...errors import CallTimeout, ProtocolError, SizeMismatch, TransportError
from ..page.agent import PageAgent
from .cdp_downloads import Downloads, Unusable, left
from .playwright_downloads import ExpectedDownloads

__all__ = ["Ladder"]

MB = 1 << 20
#: Below this a stream is as fast as a download, and downloads are rationed (measured).
_DOWNLOAD_FROM = 1 * MB
#: Live blobs are capped near 500 MiB just after launch: larger content goes in slices, one alive at a time.
_WHOLE_UP_TO = 400 * MB
_SLICE = 64 * MB
_STREAM_CHUNK = 4 * MB
_TEXT_SLICE = 6 * MB  # 8 MB of base64
_COLLECT_EVERY = 128 * MB


class Ladder:
    """Moves the content of one page. ``downloads`` is ``None`` where the browser is not ours to download with.
    ``used`` counts what each rung moved, for reports."""

    def __init__(self, agent: PageAgent, downloads: Downloads | ExpectedDownloads | None) -> None:
        self._agent = agent
        self._downloads = downloads
        self._moved = 0
        self.used: dict[str, int] = {"download": 0, "stream": 0, "slices": 0}

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Write content held by the page's agent to ``path``. Raises :class:`~transports.errors.TransportError`, and
        :class:`~transports.errors.SizeMismatch` if no rung brought every byte."""
        size = handle.size
        assert size is not None
        deadline = time.monotonic() + timeout
        failed: list[str] = []
        for rung in self._rungs(size):
            try:
                await getattr(self, f"_{rung}")(handle.id, size, path, deadline)
            except Unusable as error:
                failed.append(f"{rung}: {error}")
            else:
                arrived = path.stat().st_size
                if arrived == size:
                    self.used[rung] += 1
                    await self._collect(size)
                    return
                failed.append(f"{rung}: {arrived} of {size} bytes")
            path.unlink(missing_ok=True)
        raise SizeMismatch(f"content of {size} bytes could not be taken out of the page ({'; '.join(failed)})")

    def _rungs(self, size: int) -> list[str]:
        rungs = ["download"] if self._downloads and size >= _DOWNLOAD_FROM else []
        return [*rungs, "stream", "slices"] if self._agent.channel.cdp else [*rungs, "slices"]

    async def save_url(self, url: str, path: Path, *, timeout: float) -> None:
        """Write what a ``blob:`` URL of the page refers to. Only the page can read such a URL."""
        deadline = time.monotonic() + timeout
        if self._downloads is not None:
            try:
                await self._downloads.save(url, path, size=_WHOLE_UP_TO, deadline=deadline)
            except Unusable:
                path.unlink(missing_ok=True)
            else:
                return
        try:
            held, size = await self._agent.invoke("keep", url, timeout=left(deadline))
        except ProtocolError as error:
            raise TransportError(f"the page's blob: URL could not be read: {error.message}") from error
        try:
            await self.save(Handle(held, size), path, timeout=left(deadline))
        finally:
            await self._agent.invoke("release", held, timeout=5)

    async def _collect(self, size: int) -> None:
        """Blobs live until the page collects its garbage; without it the browser's share runs out."""
        self._moved += size
        if self._moved >= _COLLECT_EVERY:
            self._moved = 0
            await self._agent.bounded(self._agent.channel.collect_garbage(), "collecting garbage", timeout=10)

    # --- rung 1: the browser writes the file --------------------------------------------------------------------------

    async def _download(self, held: str, size: int, path: Path, deadline: float) -> None:
        assert self._downloads is not None
        step = size if size <= _WHOLE_UP_TO else _SLICE
        for start in range(0, size, step):
            target = path if step == size else path.with_name(f"{path.name}.slice")
            end = min(start + step, size)
            url = await self._agent.invoke("url", held, start, end, timeout=left(deadline))
            try:
                await self._downloads.save(url, target, size=size, deadline=deadline)
            finally:
                await self._agent.invoke("revoke", url, timeout=left(deadline))
            if target is not path:
                await asyncio.to_thread(_append, target, path)
                await self._collect(_COLLECT_EVERY)

    # --- rung 2: a stream over CDP ------------------------------------------------------------------------------------

    async def _stream(self, held: str, size: int, path: Path, deadline: float) -> None:
        try:
            blob = await self._agent.invoke("blob", held, 0, size, timeout=left(deadline), by_value=False)
            try:
                resolved = await self._agent.send("IO.resolveBlob", {"objectId": blob.ref}, timeout=left(deadline))
            finally:  # what is referred to is never collected
                await self._agent.forget(blob)
            await self.save_stream(f"blob:{resolved['uuid']}", path, timeout=left(deadline))
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
                        "IO.read", {"handle": stream, "size": _STREAM_CHUNK}, timeout=left(deadline)
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

    async def _slices(self, held: str, size: int, path: Path, deadline: float) -> None:
        with path.open("xb") as file:
            for start in range(0, size, _TEXT_SLICE):
                end = min(start + _TEXT_SLICE, size)
                text = await self._agent.invoke("base64", held, start, end, timeout=left(deadline))
                await asyncio.to_thread(_write_base64, file, text)


def _write_base64(file: BinaryIO, text: str) -> None:
    file.write(pybase64.b64decode(text, validate=True))


def _append(part: Path, whole: Path) -> None:
    with part.open("rb", buffering=0) as source, whole.open("r+b" if whole.exists() else "xb", buffering=0) as target:
        target.seek(0, os.SEEK_END)
        try:  # inside the kernel: ten times as fast, and no byte passes through this process
            while os.copy_file_range(source.fileno(), target.fileno(), _SLICE):
                pass
        except (AttributeError, OSError):
            shutil.copyfileobj(source, target, 256 * 1024)
    part.unlink()
