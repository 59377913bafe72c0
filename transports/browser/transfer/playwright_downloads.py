"""Downloads over Playwright's own event, for pages whose download folder is not ours to set.

These are the caller's own pages, and pages of browsers without CDP.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from pathlib import Path

from ...artifacts.content import too_large
from ...errors import TransportError
from ..page.agent import Agent, PageAgent
from .cdp_downloads import RungUnusable, check_blob_url, remaining

__all__ = ["PlaywrightDownloads"]

#: Seconds between two downloads: Chromium silently drops more than ten a second from one frame.
_MIN_INTERVAL = 1 / 9
#: Content of fewer bytes is as quick over text slices.
_MIN_SIZE = 8 << 20
#: Seconds for the event of a download, which comes at once or, in some browsers, never.
_START_TIMEOUT = 2.0


class PlaywrightDownloads:
    """Downloads from one page, one at a time. ``slots`` are shared by all pages of the browser."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._lock = asyncio.Lock()
        self._next = 0.0
        self._unusable_reason = ""

    def close(self) -> None:
        """Do nothing: between two downloads there is no listener."""

    async def save(self, agent: Agent, url: str, path: Path, *, size: int, limit: int, deadline: float) -> None:
        """Write the content of ``url``, about ``size`` bytes, to ``path``, by ``deadline`` (:func:`time.monotonic`).
        ``agent`` is that of the document that has it.

        Raises :class:`~.cdp_downloads.RungUnusable`, at once after the first refusal,
        :class:`~transports.errors.TooLarge` for a file of more than ``limit`` bytes, and
        :class:`~transports.errors.TransportError` if the page is lost. Playwright reports no progress: a file is
        measured at its end. It is no larger than the blob that the browser holds already.
        """
        if size < _MIN_SIZE:
            raise RungUnusable("too small to be worth a download")
        async with self._lock, self._slots:
            if self._unusable_reason:
                raise RungUnusable(self._unusable_reason)
            await asyncio.sleep(self._next - time.monotonic())
            self._next = time.monotonic() + _MIN_INTERVAL
            try:
                await agent.with_deadline(self._download(agent, url, path), "a download", timeout=remaining(deadline))
            except TransportError as error:
                if not error.session_survives:
                    raise
                if isinstance(agent, PageAgent):  # a context that refuses one download of a page refuses them all
                    self._unusable_reason = error.message
                raise RungUnusable(error.message) from None
            if path.stat().st_size > limit:
                path.unlink()
                raise too_large(limit)

    async def save_held(
        self, agent: Agent, held_id: str, start: int, end: int, path: Path, *, size: int, deadline: float
    ) -> None:
        """Write a part of content that ``agent`` holds, of ``size`` bytes in all, as :meth:`save` does."""
        url = await agent.invoke("url", held_id, start, end, timeout=remaining(deadline), returns=str)
        check_blob_url(url)
        try:
            await self.save(agent, url, path, size=size, limit=end - start, deadline=deadline)
        finally:
            await agent.invoke("revoke", url, timeout=remaining(deadline))

    async def _download(self, agent: Agent, url: str, path: Path) -> None:
        from playwright.async_api import Error

        page = agent.page
        async with page.expect_download(lambda download: download.url == url, timeout=_START_TIMEOUT * 1000) as coming:
            await agent.invoke("clickDownload", url, "", timeout=_START_TIMEOUT)
        download = await coming.value
        try:
            try:
                written = await download.path()
                await asyncio.to_thread(shutil.move, written, path)
            except (Error, OSError):  # on another machine
                await download.save_as(path)
        finally:
            with contextlib.suppress(Error):
                await download.delete()
