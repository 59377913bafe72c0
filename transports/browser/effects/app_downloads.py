"""Files that the app itself downloads: which are its own, where the browser writes them, and that none is left."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TransportError
from ..page.agent import PageAgent
from ..transfer.cdp_downloads import Downloads, move

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

__all__ = ["AppFiles"]

#: Frames that are remembered, to know their downloads from those of other pages of the browser.
_FRAMES = 1000
_TRIES, _PAUSE = 20, 0.1


class AppFiles:
    """The app's downloads, each known by the browser's id of it (``guid``). ``on_begun(guid, url, name, frame)`` says
    whether a file is wanted; one that is not is stopped."""

    def __init__(
        self, agent: PageAgent, browser: CDPSession, target: dict[str, Any], downloads: Downloads, folder: Path
    ) -> None:
        self.on_begun: Callable[[str, str, str, str], bool] = lambda *_: False
        self._browser = browser
        self._context_id = target["browserContextId"]
        self._downloads = downloads
        self._folder = Path(tempfile.mkdtemp(prefix="downloads-", dir=folder))
        self._frames = deque([target["targetId"]], maxlen=_FRAMES)  # a page's id is its frame's
        self._running: dict[str, tuple[asyncio.Future[Path], Path]] = {}
        downloads.on_other = self._began
        browser.on("Browser.downloadProgress", self._progressed)
        browser.on("Target.targetCreated", self._target)
        agent.cdp.on("Page.frameAttached", lambda event: self._frames.append(event["frameId"]))

    async def prepare(self) -> None:
        """Before the app's first script: have a place for files, and know its windows and frames."""
        await self._downloads.into(self._folder)
        await self._browser.send("Target.setDiscoverTargets", {"discover": True})

    def _target(self, event: dict[str, Any]) -> None:
        target = event["targetInfo"]
        alone = not self._downloads.shared and target.get("browserContextId") == self._context_id
        if alone or target.get("openerId") in self._frames:
            self._frames.append(target["targetId"])

    def _began(self, event: dict[str, Any], folder: Path) -> None:
        guid, frame = event["guid"], event["frameId"]
        if frame not in self._frames:
            return
        ended: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._running[guid] = ended, folder
        if not self.on_begun(guid, event["url"], event["suggestedFilename"], frame):
            self.drop(guid)

    def _progressed(self, event: dict[str, Any]) -> None:
        ended, folder = self._running.get(event["guid"], (None, self._folder))
        if ended is None or ended.done():
            return
        if event["state"] == "completed":
            ended.set_result(Path(event.get("filePath") or folder / event["guid"]))
        elif event["state"] == "canceled":
            ended.set_exception(TransportError("the browser broke it off"))

    async def arrived(self, guid: str) -> int:
        """Wait for the end of a download; returns its size in bytes. Raises
        :class:`~transports.errors.TransportError` if it was broken off."""
        ended, _ = self._running[guid]
        written = await asyncio.shield(ended)
        if written.parent != self._folder:  # into a store's folder, where our own downloads went at that time
            await asyncio.to_thread(move, written, self._folder / guid)
        del self._running[guid]
        return (self._folder / guid).stat().st_size

    async def take(self, guid: str, path: Path) -> None:
        """Move a file that has arrived to ``path``. Raises :class:`~transports.errors.TransportError`."""
        try:
            await asyncio.to_thread(move, self._folder / guid, path)
        except FileNotFoundError as error:
            raise TransportError("this download is not there any more") from error

    def remove(self, guid: str) -> None:
        """Delete a file that has arrived."""
        (self._folder / guid).unlink(missing_ok=True)

    def drop(self, guid: str) -> None:
        """Stop a download that is not wanted, and remove what it wrote."""
        ended, folder = self._running.pop(guid)
        ended.cancel()
        self._downloads.abandon_later(guid, folder)

    async def aclose(self) -> None:
        self._browser.remove_listener("Browser.downloadProgress", self._progressed)
        self._browser.remove_listener("Target.targetCreated", self._target)
        for guid, (ended, folder) in self._running.items():
            if ended.done():
                if not ended.cancelled():
                    ended.exception()
            else:
                ended.cancel()
                with contextlib.suppress(TransportError):
                    await self._downloads.abandon(guid, folder)
        for _ in range(_TRIES):  # a download that ends just now may still write a file, or rename one
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            if not self._folder.exists():
                break
            await asyncio.sleep(_PAUSE)
