"""The fastest rung: the browser itself writes a blob URL of the page to the disk, and no byte passes through Python.

Raw CDP instead of Playwright's ``expect_download``: the file is written where it is wanted, under a name we know.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CallTimeout, TransportError
from ...tasks import spawn
from ..page.agent import PageAgent

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

__all__ = ["Downloads", "Unusable", "left", "move"]

#: More than ten downloads a second from one frame are dropped without a word by Chromium.
_PER_SECOND = 9
#: From this size on it is better to wait for one's turn than to take a slower way.
_WORTH_WAITING = 8 << 20
#: A download that the browser refuses (sandboxed frame, say) gives no event at all.
_SILENCE = 2.0
#: Where one download has worked, a later one that does not begin is only slow.
_PATIENCE = 30.0

_CLICK = """function (url) {
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
}"""


class Unusable(Exception):
    """A way that cannot be taken here; the next one may."""


def left(deadline: float) -> float:
    """Seconds until ``deadline`` (monotonic). Raises :class:`~transports.errors.CallTimeout` if there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise CallTimeout("the content could not be taken out of the page in time; raise ABP_DOWNLOAD_TIMEOUT")
    return seconds


class Downloads:
    """Downloads of one page, one at a time. ``slots`` are shared by all pages of the browser; ``folder`` is where the
    browser writes for all pages of the context, if it is not this page's alone. ``on_other(event, folder)`` is told of
    the browser's other downloads, and where those of our page go."""

    def __init__(
        self,
        agent: PageAgent,
        browser: CDPSession,
        context_id: str,
        slots: asyncio.Semaphore,
        *,
        folder: Path | None = None,
    ) -> None:
        self._agent = agent
        self._browser = browser
        self._context_id = context_id
        self._slots = slots
        self._turn = asyncio.Lock()
        self._shared = folder
        self._folder = Path()
        self.on_other: Callable[[dict[str, Any], Path], None] = lambda *_: None
        self._world: int | None = None
        self._recent: deque[float] = deque(maxlen=_PER_SECOND)
        self._silence = _SILENCE
        self._beginning: dict[str, asyncio.Future[str]] = {}
        self._running: dict[str, asyncio.Future[str]] = {}
        self._given_up: dict[str, Path] = {}
        self._ending: set[asyncio.Task[None]] = set()
        browser.on("Browser.downloadWillBegin", self._began)
        browser.on("Browser.downloadProgress", self._progressed)
        agent.page.on("framenavigated", lambda _: setattr(self, "_world", None))

    def close(self) -> None:
        """Stop listening."""
        self._browser.remove_listener("Browser.downloadWillBegin", self._began)
        self._browser.remove_listener("Browser.downloadProgress", self._progressed)

    async def save(self, url: str, path: Path, *, size: int, deadline: float) -> None:
        """Write what ``url`` refers to, about ``size`` bytes, to ``path``. Raises :class:`Unusable`, and
        :class:`~transports.errors.TransportError` if the page is lost."""
        async with self._turn, self._slots:
            await self._pace(size)
            folder = self._shared or path.parent
            await self.into(folder)
            began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._beginning[url] = began
            guid = ""
            try:
                await self._click(url, deadline)
                guid = await self._begun(began, url, folder, deadline)
                running = asyncio.shield(self._running[guid])
                state = await self._agent.bounded(running, "a download", timeout=left(deadline))
                if state != "completed":
                    raise Unusable(f"the browser {state} the download")
                await asyncio.to_thread(move, folder / guid, path)
            except BaseException:
                if guid:
                    await self.abandon(guid, folder)
                raise
            finally:
                self._beginning.pop(url, None)
                if running_now := self._running.pop(guid, None):
                    running_now.cancel()

    async def _pace(self, size: int) -> None:
        if len(self._recent) == _PER_SECOND and (wait := self._recent[0] + 1.0 - time.monotonic()) > 0:
            if size < _WORTH_WAITING:
                raise Unusable("more downloads a second than the browser allows")
            await asyncio.sleep(wait)
        self._recent.append(time.monotonic())

    @property
    def shared(self) -> bool:
        """Whether the context has pages of other sessions, too."""
        return self._shared is not None

    async def into(self, folder: Path) -> None:
        """Have the browser write downloads of this browser context to ``folder``, under their ids."""
        folder = self._shared or folder
        if self._folder == folder:
            return
        behavior = {
            "behavior": "allowAndName",
            "browserContextId": self._context_id,
            "downloadPath": str(folder),
            "eventsEnabled": True,
        }
        await self._send("Browser.setDownloadBehavior", behavior, timeout=10)
        self._folder = folder

    async def _click(self, url: str, deadline: float) -> None:
        """In a world of our own, where the app cannot have replaced ``click``; the detached link changes no DOM."""
        if self._world is None:
            frames = await self._agent.send("Page.getFrameTree", timeout=left(deadline))
            frame = {"frameId": frames["frameTree"]["frame"]["id"]}
            world = await self._agent.send("Page.createIsolatedWorld", frame, timeout=left(deadline))
            self._world = world["executionContextId"]
        await self._agent.send(
            "Runtime.callFunctionOn",
            {"executionContextId": self._world, "functionDeclaration": _CLICK, "arguments": [{"value": url}]},
            timeout=left(deadline),
        )

    async def _begun(self, began: asyncio.Future[str], url: str, folder: Path, deadline: float) -> str:
        try:
            guid = await asyncio.wait_for(began, min(self._silence, left(deadline)))
        except TimeoutError as error:
            self._given_up[url] = folder
            raise Unusable("the browser did not begin the download") from error
        self._silence = _PATIENCE
        return guid

    def _began(self, event: dict[str, Any]) -> None:
        """The app's own downloads are told here too: those have other URLs and are not ours."""
        url, guid = event["url"], event["guid"]
        began = self._beginning.get(url)
        if began is not None and not began.done():
            self._running[guid] = asyncio.get_running_loop().create_future()
            began.set_result(guid)
        elif (folder := self._given_up.pop(url, None)) is not None:  # only slow, and nobody waits any more
            self.abandon_later(guid, folder)
        else:
            self.on_other(event, self._folder)

    def abandon_later(self, guid: str, folder: Path) -> None:
        """:meth:`abandon`, in the background."""
        spawn(self.abandon(guid, folder), self._ending)

    def _progressed(self, event: dict[str, Any]) -> None:
        running = self._running.get(event["guid"])
        if running is not None and not running.done() and event["state"] != "inProgress":
            running.set_result(event["state"])

    async def abandon(self, guid: str, folder: Path) -> None:
        """Stop a download and remove what it wrote."""
        with contextlib.suppress(TransportError):
            download: dict[str, object] = {"guid": guid, "browserContextId": self._context_id}
            await self._send("Browser.cancelDownload", download, timeout=2)
        if running := self._running.get(guid):  # the browser still holds the file until it says so
            await asyncio.wait((running,), timeout=2)
        for written in folder.glob(f"{guid}*"):
            written.unlink(missing_ok=True)

    async def _send(self, method: str, params: dict[str, object], *, timeout: float) -> None:
        await self._agent.bounded(self._browser.send(method, params), method, timeout=timeout)


def move(source: Path, target: Path) -> None:
    """Rename a file, or copy it where that cannot be."""
    try:
        source.rename(target)
    except OSError:  # another file system
        shutil.move(source, target)
