"""Downloads by Playwright's own event, for pages that are not ours to set a download folder for: a caller's, and those
of browsers without CDP."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from pathlib import Path

from ...errors import TransportError
from ..page.agent import PageAgent
from .cdp_downloads import Unusable, left

__all__ = ["ExpectedDownloads"]

#: Chromium drops more than ten downloads a second from one frame without a word.
_APART = 1 / 9
#: Below this a page's text slices are as quick.
_WORTH_IT = 8 << 20
#: A download that begins gives its event at once; some browsers never give one.
_SILENCE = 2.0


class ExpectedDownloads:
    """Downloads of one page, one at a time. ``slots`` are shared by all pages of the browser."""

    def __init__(self, agent: PageAgent, slots: asyncio.Semaphore) -> None:
        self._agent = agent
        self._slots = slots
        self._turn = asyncio.Lock()
        self._next = 0.0
        self._useless = ""

    def close(self) -> None:
        """Nothing is listened to between two downloads."""

    async def save(self, url: str, path: Path, *, size: int, deadline: float) -> None:
        """Write what ``url`` refers to, about ``size`` bytes, to ``path``. Raises
        :class:`~.cdp_downloads.Unusable`, and :class:`~transports.errors.TransportError` if the page is
        lost."""
        if size < _WORTH_IT:
            raise Unusable("not worth a download")
        async with self._turn, self._slots:
            if self._useless:
                raise Unusable(self._useless)
            await asyncio.sleep(self._next - time.monotonic())
            self._next = time.monotonic() + _APART
            try:
                await self._agent.bounded(self._saved(url, path), "a download", timeout=left(deadline))
            except TransportError as error:
                if not error.session_survives:
                    raise
                self._useless = error.message  # a context that refuses one download refuses the next too
                raise Unusable(error.message) from error

    async def _saved(self, url: str, path: Path) -> None:
        from playwright.async_api import Error

        page = self._agent.page
        async with page.expect_download(lambda download: download.url == url, timeout=_SILENCE * 1000) as coming:
            await self._agent.invoke("click", url, timeout=_SILENCE)
        download = await coming.value
        try:
            try:
                written = await download.path()
            except Error:  # on another machine
                await download.save_as(path)
            else:
                await asyncio.to_thread(shutil.move, written, path)
        finally:
            with contextlib.suppress(Error):
                await download.delete()
