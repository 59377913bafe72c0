"""Downloads by the browser itself: content of a page (the fastest rung of the ladder), and the app's own downloads.

* :class:`CdpDownloads` writes a ``blob:`` URL to the disk over raw CDP, past Python. Unlike Playwright's
  ``expect_download`` it chooses the folder and knows the name. :class:`GrowingFile` makes such a file readable early.
* :class:`PlaywrightDownloads` does the same over Playwright's own API, for pages whose download folder is not ours to
  set: the caller's own pages, and pages of browsers without CDP.
* :class:`AppDownloads` receives the files that the app itself downloads. It shares the folder and the events of
  :class:`CdpDownloads`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.async_api import Error

from .._internal.tasks import cancel_and_wait, discard_unawaited, in_thread, spawn
from ..artifacts._content import too_large
from ..artifacts._files import OPEN_FILES_MOVE
from ..errors import ABPError, CallTimeout, ProtocolError, StoreFull, TransportError
from ._agent import Agent, PageAgent
from ._process import listener

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Download

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of downloads. Sizes are in bytes, times in seconds."""

    #: Chromium silently drops more than ten downloads a second from one frame.
    per_second: int = 9
    #: Smaller content is not downloaded: a stream is as fast (measured), and the rate of downloads is limited.
    download_from: int = 1 * MB
    #: From this size on, the file can be read while the browser writes it.
    link_from: int = 4 * MB
    #: From this size on, waiting for the rate limit is faster than the next rung, and a download over Playwright is
    #: faster than text.
    wait_from: int = 8 * MB
    #: Just after launch a browser can hold about 500 MiB of live blobs: larger content goes in slices, one alive at a
    #: time.
    max_whole: int = 400 * MB
    slice_size: int = 64 * MB
    #: Bytes that are moved out of the page between two garbage collections there.
    collect_every: int = 128 * MB
    #: For a download to begin. A download that the browser refuses (in a sandboxed frame, say) gives no event at all.
    start: float = 2.0
    #: Bytes for which a download may begin a second later. Alone, 512 MB begin after half a second; if the download is
    #: given up on a busy machine, they take four times as long by the next rung.
    late_start: int = 128 * MB
    #: For a download to begin after an earlier download has worked: then the browser is only slow.
    slow_start: float = 30.0
    #: For the browser to accept a cancellation, and again to report the end of the download.
    cancel: float = 2.0


LIMITS = Limits()


class ByteLimits(NamedTuple):
    """Limits for the bytes of downloads: of one file, and in ``total`` of all files that are not taken yet."""

    file: int
    total: int | None = None


#: Length of the name of one of our downloads, which identifies its events. The browser may add an extension.
_NAME_LENGTH = 20


class GrowingFile:
    """File of a download that gets its name ``path`` while the browser still writes it, if possible.

    Chromium begins with a hidden file in ``temporary`` and renames it when its writer pauses, which may be at the very
    end. So create this object before the download begins: a single new file there is assumed to be the download's.
    :meth:`replace_with` corrects a wrong guess."""

    def __init__(self, path: Path, temporary: Path) -> None:
        self._path = path
        self._temporary = temporary
        self._files_before = self._hidden_files()
        self._looking: set[asyncio.Task[None]] = set()

    def start_looking(self) -> None:
        # On Windows, a reader of the file would keep replace_with() from renaming it.
        if OPEN_FILES_MOVE:
            spawn(self._look_for_file(), self._looking)

    async def replace_with(self, written: Path) -> None:
        """Move the file that the browser has ``written`` to the path.

        Raises :class:`RungUnusable` if the file is not there: a browser in a snap or container has its own folders."""
        await cancel_and_wait(self._looking)
        try:
            await in_thread(_replace_file, written, self._path)
        except FileNotFoundError:
            raise RungUnusable("the browser wrote the file where this program does not see it") from None

    async def discard(self) -> None:
        await cancel_and_wait(self._looking)
        self._path.unlink(missing_ok=True)

    async def _look_for_file(self) -> None:
        # A link to another file system, or on a file system without hard links, raises an error.
        interval = 0.003
        with suppress(OSError):
            while not self._link_single_new_file():
                await asyncio.sleep(interval)

    def _link_single_new_file(self) -> bool:
        """Give the only new file the path. Return whether that was done. This must run in the event loop: a thread
        could do it after :meth:`discard`."""
        new_files = self._hidden_files() - self._files_before
        if len(new_files) != 1:
            return False
        (name,) = new_files
        try:
            self._path.hardlink_to(self._temporary / name)
        except FileNotFoundError:
            # The browser has renamed the file just now.
            return False
        return True

    def _hidden_files(self) -> Set[str]:
        with suppress(OSError), os.scandir(self._temporary) as entries:
            return {entry.name for entry in entries if entry.name.startswith(".")}
        return frozenset()


def _replace_file(written: Path, path: Path) -> None:
    # A rename between two names of one file does nothing, and a copy would write into the wrong file.
    path.unlink(missing_ok=True)
    move_file(written, path)


def move_file(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:  # another file system
        shutil.move(source, target)


class RungUnusable(Exception):
    """Raised if a rung of the ladder does not work, but the next one may. Never leaves this package."""


def remaining(deadline: float) -> float:
    """Return the seconds until ``deadline``, a time of :func:`time.monotonic`.

    Raises :class:`~transports.errors.CallTimeout` if it has passed."""
    seconds_left = deadline - time.monotonic()
    if seconds_left <= 0:
        raise CallTimeout("the content could not be taken out of the page in time; raise ABP_DOWNLOAD_TIMEOUT")
    return seconds_left


@dataclass(eq=False, slots=True)
class _Saving:
    """A download that was started here. Once it has ``begun``, ``guid`` is the browser's id for it. The result of
    ``state`` is the state in which it ends. ``has_ended`` stays false for a download over its limit, which goes on."""

    name: str
    limit: int
    begun: asyncio.Future[None] = field(default_factory=asyncio.Future)
    state: asyncio.Future[str] = field(default_factory=asyncio.Future)
    guid: str = ""
    has_ended: bool = False


class CdpDownloads:
    """Downloads from one page over CDP, one at a time.

    ``slots`` are shared by all pages of the browser. ``folder`` is set if other sessions share the context.
    ``on_app_download(event, folder)`` is called for every download that was not started here. The caller removes
    ``app_folder`` once the page is closed: until then Chromium creates it again for a cancelled download."""

    def __init__(
        self,
        agent: PageAgent,
        browser: CDPSession,
        context_id: str,
        slots: asyncio.Semaphore,
        *,
        temporary: Path,
        folder: Path | None = None,
        note_download: Callable[[Path | None], object] = lambda _: None,
        limits: Limits = LIMITS,
    ) -> None:
        self.limits = limits
        self._agent = agent
        self.browser = browser
        self.context_id = context_id
        self._slots = slots
        self._lock = asyncio.Lock()
        self._shared_folder = folder
        self._temporary = temporary
        self._folder = Path()
        self.app_folder = Path(tempfile.mkdtemp(prefix="downloads-", dir=temporary))
        self._note_download = note_download
        self.on_app_download: Callable[[dict[str, Any], Path], None] = lambda *_: None
        self._recent_starts: deque[float] = deque(maxlen=limits.per_second)
        self._has_worked = False
        self._saving: _Saving | None = None
        #: Folders of downloads that were given up before they began, by name.
        self._given_up: dict[str, Path] = {}
        # Cancelled downloads that may still write: id → folder, and a future for their end.
        self._cancelled: dict[str, tuple[Path, asyncio.Future[None]]] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self._closed = False
        browser.on("Browser.downloadWillBegin", self._on_started)
        browser.on("Browser.downloadProgress", self._on_progress)

    def close(self) -> None:
        """Stop listening, except for the ends of downloads that the browser has not cancelled yet."""
        self.browser.remove_listener("Browser.downloadWillBegin", self._on_started)
        self._closed = True
        for guid, (folder, _) in self._cancelled.items():
            _remove_written(guid, folder)
        self._stop_when_ended()

    def _stop_when_ended(self) -> None:
        if self._closed and not self._cancelled:
            self.browser.remove_listener("Browser.downloadProgress", self._on_progress)

    async def save(self, agent: Agent, url: str, path: Path, *, size: int, limit: int, deadline: float) -> None:
        """Save a ``blob:`` URL of the document of ``agent``. ``size`` need not be exact.

        Raises :class:`RungUnusable`, :class:`~transports.errors.TooLarge` as soon as the browser reports too many
        bytes, and :class:`~transports.errors.ProtocolError` if the page clicks anything but a ``blob:`` URL."""
        await self._save_click(agent, path, "clickDownload", url, size=size, limit=limit, deadline=deadline)

    async def save_held(
        self, agent: Agent, held_id: str, start: int, end: int, path: Path, *, size: int, deadline: float
    ) -> None:
        """Save a part of held content, whose whole size is ``size``, with one call into the page."""
        limit = end - start
        await self._save_click(agent, path, "download", held_id, start, end, size=size, limit=limit, deadline=deadline)

    async def _save_click(
        self, agent: Agent, path: Path, method: str, *args: object, size: int, limit: int, deadline: float
    ) -> None:
        """Let a ``method`` of the agent click a download link, and move the file to ``path``."""
        async with self._lock, self._slots:
            await self._wait_for_allowed_start(size)
            folder = self._shared_folder or path.parent
            await self.set_folder(folder)

            growing = GrowingFile(path, self._temporary)
            # The files of two downloads that run at the same time could not be distinguished.
            is_only_download = not self._slots.locked()
            if is_only_download and size >= self.limits.link_from:
                growing.start_looking()

            self._saving = saving = _Saving(_new_name(), limit)
            self._note_download(None)
            watching = asyncio.ensure_future(self.ping_driver())
            try:
                await agent.invoke(method, *args, saving.name, timeout=remaining(deadline))
                await self._wait_for_start(agent, saving.begun, size, deadline)
                await self._wait_for_end(agent, saving.state, deadline)
                await growing.replace_with(folder / saving.guid)
            except BaseException:
                await self._cancel_saving(saving, growing, folder)
                raise
            finally:
                self._saving = None
                discard_unawaited(saving.state)
                discard_unawaited(watching)
                # Downloads of the app from frames of windows are recognised only by this folder.
                with contextlib.suppress(TransportError):
                    await self.set_folder(self.app_folder)

    async def ping_driver(self) -> None:
        """Send a command each second, because nothing else shows that the driver has ended."""
        with contextlib.suppress(TransportError):
            while True:
                await asyncio.sleep(1.0)
                await self._send_command("Browser.getVersion", {}, timeout=10)

    async def _cancel_saving(self, saving: _Saving, growing: GrowingFile, folder: Path) -> None:
        """Cancel a download, which may not have begun yet, and remove its file."""
        # Cancelling the future has no effect if the download has begun. Otherwise the download is cancelled later.
        discard_unawaited(saving.begun)
        if saving.begun.cancelled():
            self._given_up[saving.name] = folder

        # Do this first: to cancel the download takes seconds, and may itself be cancelled.
        await growing.discard()
        if saving.has_ended:
            _remove_written(saving.guid, folder)
        elif saving.guid:
            await self.cancel(saving.guid, folder)

    async def _wait_for_allowed_start(self, size: int) -> None:
        """Wait until the browser allows another download.

        Raises :class:`RungUnusable` if content of this ``size`` goes faster by another rung than by waiting."""
        if len(self._recent_starts) == self.limits.per_second:
            oldest = self._recent_starts[0]
            seconds_to_wait = oldest + 1.0 - time.monotonic()
            if seconds_to_wait > 0 and size < self.limits.wait_from:
                raise RungUnusable("more downloads a second than the browser allows")
            await asyncio.sleep(seconds_to_wait)
        self._recent_starts.append(time.monotonic())

    @property
    def shared(self) -> bool:
        return self._shared_folder is not None

    async def set_folder(self, folder: Path) -> None:
        """Set the folder of the whole browser context. The browser names the files by their ids."""
        folder = self._shared_folder or folder
        if self._folder == folder:
            return
        behavior = {
            "behavior": "allowAndName",
            "browserContextId": self.context_id,
            "downloadPath": str(folder),
            "eventsEnabled": True,
        }
        await self._send_command("Browser.setDownloadBehavior", behavior, timeout=10)
        self._folder = folder

    async def _wait_for_start(self, agent: Agent, began: asyncio.Future[None], size: int, deadline: float) -> None:
        """Wait until a download has begun. Raises :class:`RungUnusable` if it does not begin in time.

        In a frame the time is always short, whatever worked before: a frame that may not download gives no event."""
        in_frame = agent is not self._agent
        start_timeout = self.limits.start + size / self.limits.late_start
        if self._has_worked and not in_frame:
            start_timeout = self.limits.slow_start
        timeout = min(start_timeout, remaining(deadline))
        try:
            await agent.with_deadline(asyncio.shield(began), "a download", timeout=timeout)
        except CallTimeout:
            raise RungUnusable("the browser did not begin the download") from None
        if not in_frame:
            self._has_worked = True

    async def _wait_for_end(self, agent: Agent, ended: asyncio.Future[str], deadline: float) -> None:
        state = await agent.with_deadline(asyncio.shield(ended), "a download", timeout=remaining(deadline))
        if state != "completed":
            raise RungUnusable(f"the browser {state} the download")

    @listener
    def _on_started(self, event: dict[str, Any]) -> None:
        """Distinguish downloads that were started here, which have known names, from those of the app."""
        guid = event["guid"]
        # All sessions of the browser get this event. Only the folder of the app's downloads is removed as a whole.
        if self._folder != self.app_folder:
            self._note_download(self._folder / guid)
        # The browser may have added an ending.
        name = event["suggestedFilename"][:_NAME_LENGTH]
        saving = self._saving
        if saving is not None and saving.name == name and not saving.begun.done():
            try:
                check_blob_url(event["url"])
            except ProtocolError as error:
                saving.begun.set_exception(error)
                self.cancel_in_background(guid, self._folder)
            else:
                saving.guid = guid
                saving.begun.set_result(None)
        elif name in self._given_up:
            # The download was too slow to begin, or its call was cancelled.
            self.cancel_in_background(guid, self._given_up.pop(name))
        else:
            self.on_app_download(event, self._folder)

    def cancel_in_background(self, guid: str, folder: Path) -> None:
        spawn(self.cancel(guid, folder), self._cancelling)

    @listener
    def _on_progress(self, event: dict[str, Any]) -> None:
        guid = event["guid"]
        has_ended = event["state"] != "inProgress"
        if has_ended:
            self._forget_cancelled(guid)

        saving = self._saving
        if saving is None or saving.guid != guid or saving.state.done():
            return
        if has_ended:
            saving.has_ended = True
            saving.state.set_result(event["state"])
        elif is_over(event, saving.limit):
            saving.state.set_exception(too_large(saving.limit))

    async def cancel(self, guid: str, folder: Path) -> None:
        """Cancel a download and remove its files. This takes four seconds at most.

        If the browser has not reported the end by then, the files are removed again when it reports the end or
        disconnects, even after the end of the session."""
        # The browser holds the file open until it reports the end, and then renames it.
        new_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        _, end = self._cancelled.setdefault(guid, (folder, new_future))
        with contextlib.suppress(TransportError):
            download: dict[str, object] = {"guid": guid, "browserContextId": self.context_id}
            await self._send_command("Browser.cancelDownload", download, timeout=self.limits.cancel)
        await asyncio.wait((end,), timeout=self.limits.cancel)

        _remove_written(guid, folder)
        if end.done():
            return
        browser = self._agent.page.context.browser
        if browser is None or not browser.is_connected():
            self._forget_cancelled(guid)
        else:
            browser.once("disconnected", listener(lambda _: self._forget_cancelled(guid)))

    def _forget_cancelled(self, guid: str) -> None:
        if guid not in self._cancelled:
            return
        folder, end = self._cancelled.pop(guid)
        _remove_written(guid, folder)
        end.set_result(None)
        self._stop_when_ended()

    async def _send_command(self, method: str, params: dict[str, object], *, timeout: float) -> None:
        await self._agent.with_deadline(self.browser.send(method, params), method, timeout=timeout)


def _new_name() -> str:
    prefix = "abp-"
    # Each byte is two hexadecimal digits.
    return prefix + secrets.token_hex((_NAME_LENGTH - len(prefix)) // 2)


def check_blob_url(url: str) -> None:
    """Refuse any other URL, which could lead to an endless file."""
    if not url.startswith("blob:"):
        raise ProtocolError("the page offered its content at a URL other than blob:")


def _remove_written(guid: str, folder: Path) -> None:
    for path in folder.glob(f"{guid}*"):
        path.unlink(missing_ok=True)


def is_over(progress: Mapping[str, Any], limit: int) -> bool:
    """Return whether a download exceeds ``limit`` bytes. ``progress`` is CDP's event; its total is 0 while unknown."""
    size: float = max(progress.get("receivedBytes", 0), progress.get("totalBytes", 0))
    return size > limit


class PlaywrightDownloads:
    """Downloads from one page over Playwright, one at a time. ``slots`` are shared by all pages of the browser."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self.limits = LIMITS
        self._slots = slots
        self._lock = asyncio.Lock()
        self._next_start = 0.0
        self._unusable_reason = ""
        self._url = ""

    def close(self) -> None: ...

    def is_saving(self, url: str) -> bool:
        return url == self._url

    async def save(self, agent: Agent, url: str, path: Path, *, size: int, limit: int, deadline: float) -> None:
        """Save a ``blob:`` URL as :meth:`CdpDownloads.save`, but fail at once after a first refusal by the browser.

        Playwright reports no progress, so a file is measured only at its end. Its blob takes as much space anyway."""
        if size < self.limits.wait_from:
            raise RungUnusable("too small to be worth a download")
        async with self._lock, self._slots:
            if self._unusable_reason:
                raise RungUnusable(self._unusable_reason)
            await asyncio.sleep(self._next_start - time.monotonic())
            self._next_start = time.monotonic() + 1 / self.limits.per_second
            try:
                await agent.with_deadline(
                    self._download_url(agent, url, path), "a download", timeout=remaining(deadline)
                )
            except TransportError as error:
                if not error.session_survives:
                    raise
                # A context that refuses one download of the page refuses all.
                if isinstance(agent, PageAgent):
                    self._unusable_reason = error.message
                raise RungUnusable(error.message) from None

            if path.stat().st_size > limit:
                path.unlink()
                raise too_large(limit)

    async def save_held(
        self, agent: Agent, held_id: str, start: int, end: int, path: Path, *, size: int, deadline: float
    ) -> None:
        """Save a part of held content as :meth:`CdpDownloads.save_held`, but with several calls into the page."""
        url = await agent.invoke("url", held_id, start, end, timeout=remaining(deadline), returns=str)
        if not url:
            raise RungUnusable("the page replaced URL.createObjectURL")
        check_blob_url(url)
        try:
            await self.save(agent, url, path, size=size, limit=end - start, deadline=deadline)
        finally:
            await agent.invoke("revoke", url, timeout=remaining(deadline))

    async def _download_url(self, agent: Agent, url: str, path: Path) -> None:
        page = agent.page
        timeout = self.limits.start
        self._url = url
        async with page.expect_download(lambda download: download.url == url, timeout=timeout * 1000) as download_info:
            await agent.invoke("clickDownload", url, "", timeout=timeout)
        download = await download_info.value

        try:
            await _move_downloaded_file(download, path)
        finally:
            with contextlib.suppress(Error):
                await download.delete()


async def _move_downloaded_file(download: Download, path: Path) -> None:
    try:
        await asyncio.to_thread(shutil.move, await download.path(), path)
    except (Error, OSError):
        # The browser is on another machine, so Playwright has to transfer the file.
        await download.save_as(path)


class AppDownloads:
    """Downloads that the app itself starts. ``on_started(guid, url, name, frame)`` returns whether a file is wanted."""

    def __init__(self, agent: PageAgent, downloads: CdpDownloads, limits: ByteLimits) -> None:
        self.on_started: Callable[[str, str, str, str], bool] = lambda *_: False
        self.on_window: Callable[[str], None] = lambda _: None
        self._browser = downloads.browser
        self._downloads = downloads
        self._limits = limits
        # id → bytes on the disk
        self._sizes: dict[str, float] = {}
        #: Folder of the app's own downloads.
        self.folder = downloads.app_folder
        # Ids of the frames of the page, to tell their downloads from those of other pages. The main frame has the id of
        # the page.
        self._frame_ids = deque([agent.channel.target["targetId"]], maxlen=1000)
        self._running: dict[str, tuple[asyncio.Future[Path], Path]] = {}
        # Downloads from frames that are not known: id → event
        self._unattributed: dict[str, dict[str, Any]] = {}
        downloads.on_app_download = self._on_started
        self._browser.on("Browser.downloadProgress", self._on_progress)
        self._browser.on("Target.targetCreated", self._on_target)
        agent.cdp.on("Page.frameAttached", lambda event: self._frame_ids.append(event["frameId"]))

    async def prepare(self) -> None:
        """Let the browser download to :attr:`folder`. This must be done before the app's first script runs."""
        await self._downloads.set_folder(self.folder)

    @listener
    def _on_target(self, event: dict[str, Any]) -> None:
        """Remember a new window or frame of the page, so that its downloads belong to this session."""
        target = event["targetInfo"]
        target_id = target["targetId"]
        is_in_own_context = not self._downloads.shared and target.get("browserContextId") == self._downloads.context_id
        is_opened_by_page = target.get("openerId") in self._frame_ids
        is_known = target_id in self._frame_ids
        if not is_known and (is_in_own_context or is_opened_by_page):
            self._frame_ids.append(target_id)
            if target["type"] == "page":
                self.on_window(target_id)

    def _on_started(self, event: dict[str, Any], folder: Path) -> None:
        if event["frameId"] in self._frame_ids:
            self._track_download(event, folder)
        elif folder == self.folder:
            self._unattributed[event["guid"]] = event

    def _track_if_ours(self, progress: Mapping[str, Any]) -> None:
        """Track a download from an unknown frame, such as a frame of a window, if its file is in our folder."""
        guid = progress["guid"]
        started = self._unattributed[guid]
        is_ours = any((self.folder / name).exists() for name in (f"{guid}.crdownload", guid))
        if is_ours or progress["state"] != "inProgress":
            del self._unattributed[guid]
        if is_ours:
            self._track_download(started, self.folder)

    def _track_download(self, event: dict[str, Any], folder: Path) -> None:
        guid, frame = event["guid"], event["frameId"]
        end: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._running[guid] = end, folder
        if not self.on_started(guid, event["url"], event["suggestedFilename"], frame):
            self.cancel(guid)

    @listener
    def _on_progress(self, event: dict[str, Any]) -> None:
        guid = event["guid"]
        if guid in self._unattributed:
            self._track_if_ours(event)
        if guid not in self._running:
            return
        end, folder = self._running[guid]
        if end.done():
            return

        self._sizes[guid] = max(event.get("receivedBytes", 0), self._sizes.get(guid, 0))
        if event["state"] == "completed":
            end.set_result(Path(event.get("filePath") or folder / guid))
        elif event["state"] == "canceled":
            self._sizes.pop(guid)
            end.set_exception(TransportError("the browser interrupted it"))
        else:
            excess = self._excess_error(event)
            if excess is not None:
                self._fail_and_cancel(guid, excess)

    def _excess_error(self, progress: Mapping[str, Any]) -> ABPError | None:
        """Return the error of a download that is too large alone or with others, or ``None``."""
        if is_over(progress, self._limits.file):
            return too_large(self._limits.file)
        total = self._limits.total
        if total is None or sum(self._sizes.values()) <= total:
            return None
        return StoreFull(
            f"the app's downloads exceed the {total:,} bytes that a session may store; request fewer, or raise "
            "ABP_MAX_SESSION_BYTES",
            details={"limit": total},
        )

    def _fail_and_cancel(self, guid: str, error: ABPError) -> None:
        end, folder = self._running[guid]
        end.set_exception(error)
        self._sizes.pop(guid)
        self._downloads.cancel_in_background(guid, folder)

    async def wait(self, guid: str) -> int:
        """Wait for the end of a download, and return its size in bytes. A file over the limit is removed, and
        :class:`~transports.errors.TooLarge` raised."""
        end, _ = self._running[guid]
        downloaded_file = await asyncio.shield(end)
        try:
            # The download may have begun while downloads that were started here went to the folder of a store.
            if downloaded_file.parent != self.folder:
                await asyncio.to_thread(move_file, downloaded_file, self.folder / guid)
            size = (self.folder / guid).stat().st_size
        except FileNotFoundError:
            raise TransportError(
                "the browser saved it where this program does not see it, as a snap does; have the app return it, or "
                "use a browser that is installed another way"
            ) from None
        del self._running[guid]

        # The download may have ended before the browser reported any progress.
        if size > self._limits.file:
            self.remove(guid)
            raise too_large(self._limits.file)
        return size

    async def move_to(self, guid: str, path: Path) -> None:
        try:
            await asyncio.to_thread(move_file, self.folder / guid, path)
        except FileNotFoundError:
            raise TransportError("the download no longer exists") from None
        self._sizes.pop(guid, None)

    def remove(self, guid: str) -> None:
        self._sizes.pop(guid, None)
        (self.folder / guid).unlink(missing_ok=True)

    def cancel(self, guid: str) -> None:
        end, folder = self._running.pop(guid)
        self._sizes.pop(guid, None)
        end.cancel()
        self._downloads.cancel_in_background(guid, folder)

    async def aclose(self) -> None:
        """Cancel downloads and remove files that were not taken. This takes a few seconds at most."""
        self._browser.remove_listener("Browser.downloadProgress", self._on_progress)
        self._browser.remove_listener("Target.targetCreated", self._on_target)

        for guid, (end, folder) in tuple(self._running.items()):
            if not end.done():
                end.cancel()
                with contextlib.suppress(TransportError):
                    await self._downloads.cancel(guid, folder)
            elif not end.cancelled():
                # Read the exception, so that asyncio does not log it as never retrieved.
                end.exception()

        # The folder stays until the end of the session, in which the page may be opened again many times.
        await asyncio.to_thread(_remove_files, self.folder)


def _remove_files(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
