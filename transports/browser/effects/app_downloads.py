"""Receives files that the app itself downloads: tells them from other downloads, and leaves none on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...artifacts.content import too_large
from ...errors import ABPError, StoreFull, TransportError
from ..page.agent import PageAgent
from ..page.listening import listener
from ..transfer.cdp_downloads import CdpDownloads, is_over
from ..transfer.growing import move_file

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

__all__ = ["AppDownloads"]

#: Frames that are remembered, to tell their downloads from those of other pages of the browser.
_MAX_FRAMES = 1000
_REMOVE_ATTEMPTS, _REMOVE_INTERVAL = 20, 0.1


class AppDownloads:
    """The app's downloads, each identified by the browser's ``guid``.

    ``on_started(guid, url, name, frame)`` returns whether the file is wanted; an unwanted download is cancelled, and so
    is one as soon as the browser reports more than ``max_bytes`` of it, or more than ``max_total`` of all that are on
    the disk.
    """

    def __init__(
        self,
        agent: PageAgent,
        browser: CDPSession,
        target: dict[str, Any],
        downloads: CdpDownloads,
        folder: Path,
        max_bytes: int,
        max_total: int | None = None,
    ) -> None:
        self.on_started: Callable[[str, str, str, str], bool] = lambda *_: False
        self._browser = browser
        self._context_id = target["browserContextId"]
        self._downloads = downloads
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._sizes: dict[str, float] = {}  # bytes on the disk
        self._folder = Path(tempfile.mkdtemp(prefix="downloads-", dir=folder))
        self._frame_ids = deque([target["targetId"]], maxlen=_MAX_FRAMES)  # a page's id is its frame's
        self._running: dict[str, tuple[asyncio.Future[Path], Path]] = {}
        downloads.on_app_download = self._on_started
        browser.on("Browser.downloadProgress", self._on_progress)
        browser.on("Target.targetCreated", self._on_target)
        agent.cdp.on("Page.frameAttached", lambda event: self._frame_ids.append(event["frameId"]))

    async def prepare(self) -> None:
        """Set the download folder and follow windows and frames. Called before the app's first script."""
        discover = self._browser.send("Target.setDiscoverTargets", {"discover": True})
        await asyncio.gather(self._downloads.set_folder(self._folder), discover)

    @listener
    def _on_target(self, event: dict[str, Any]) -> None:
        target = event["targetInfo"]
        alone = not self._downloads.shared and target.get("browserContextId") == self._context_id
        if alone or target.get("openerId") in self._frame_ids:
            self._frame_ids.append(target["targetId"])

    def _on_started(self, event: dict[str, Any], folder: Path) -> None:
        guid, frame = event["guid"], event["frameId"]
        if frame not in self._frame_ids:
            return
        ended: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._running[guid] = ended, folder
        if not self.on_started(guid, event["url"], event["suggestedFilename"], frame):
            self.cancel(guid)

    @listener
    def _on_progress(self, event: dict[str, Any]) -> None:
        ended, folder = self._running.get(event["guid"], (None, self._folder))
        if ended is None or ended.done():
            return
        self._sizes[event["guid"]] = max(event.get("receivedBytes", 0), self._sizes.get(event["guid"], 0))
        if event["state"] == "completed":
            ended.set_result(Path(event.get("filePath") or folder / event["guid"]))
        elif event["state"] == "canceled":
            self._sizes.pop(event["guid"])
            ended.set_exception(TransportError("the browser broke it off"))
        elif is_over(event, self._max_bytes):
            self._break_off(event["guid"], too_large(self._max_bytes))
        elif self._max_total is not None and sum(self._sizes.values()) > self._max_total:
            self._break_off(event["guid"], _over_total(self._max_total))

    def _break_off(self, guid: str, error: ABPError) -> None:
        ended, folder = self._running[guid]
        ended.set_exception(error)
        self._sizes.pop(guid)
        self._downloads.cancel_in_background(guid, folder)

    async def wait(self, guid: str) -> int:
        """Wait for the end of a download and return its size in bytes.

        Raises :class:`~transports.errors.TransportError` if the browser broke it off, and
        :class:`~transports.errors.TooLarge` over the limit, after which nothing is left of it.
        """
        ended, _ = self._running[guid]
        written = await asyncio.shield(ended)
        if written.parent != self._folder:  # it began while downloads of ours went to the folder of a store
            await asyncio.to_thread(move_file, written, self._folder / guid)
        del self._running[guid]
        size = (self._folder / guid).stat().st_size
        if size > self._max_bytes:  # it ended before the browser reported any progress
            self.remove(guid)
            raise too_large(self._max_bytes)
        return size

    async def move_to(self, guid: str, path: Path) -> None:
        """Move a finished download to ``path``. Raises :class:`~transports.errors.TransportError` if it is gone."""
        try:
            await asyncio.to_thread(move_file, self._folder / guid, path)
        except FileNotFoundError:
            raise TransportError("this download is not there any more") from None
        self._sizes.pop(guid, None)

    def remove(self, guid: str) -> None:
        """Delete a finished download. One that is gone already is ignored."""
        self._sizes.pop(guid, None)
        (self._folder / guid).unlink(missing_ok=True)

    def cancel(self, guid: str) -> None:
        """Cancel an unwanted download and remove what it wrote, in the background."""
        ended, folder = self._running.pop(guid)
        self._sizes.pop(guid, None)
        ended.cancel()
        self._downloads.cancel_in_background(guid, folder)

    async def aclose(self) -> None:
        """Cancel downloads under way and remove the folder. Takes a few seconds at most."""
        self._browser.remove_listener("Browser.downloadProgress", self._on_progress)
        self._browser.remove_listener("Target.targetCreated", self._on_target)
        for guid, (ended, folder) in self._running.items():
            if ended.done():
                if not ended.cancelled():
                    ended.exception()
            else:
                ended.cancel()
                with contextlib.suppress(TransportError):
                    await self._downloads.cancel(guid, folder)
        for _ in range(_REMOVE_ATTEMPTS):  # a download that ends just now may still write a file, or rename one
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            if not self._folder.exists():
                break
            await asyncio.sleep(_REMOVE_INTERVAL)


def _over_total(limit: int) -> StoreFull:
    return StoreFull(
        f"the app's downloads have more than the {limit:,} bytes that a session may store; ask it for fewer, or raise "
        "ABP_MAX_SESSION_BYTES",
        details={"limit": limit},
    )
