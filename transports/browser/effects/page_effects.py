"""Answers and records the side effects of an app: dialogs, prints, downloads, windows, file choosers, the clipboard.

Each is answered at once, so that no call waits for a person, and recorded as an :class:`~transports.Effect`. Its
content, if it has any, becomes an output of the call that was running. What begins outside any call is announced as an
event, and its content is handed over with the next call. See ``docs/side-effects.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...binary import BinaryData, Handle
from ...errors import BrowserCrashed, ContextLost, PageCrashed, TransportError
from ...protocol.messages import Message
from ...protocol.urls import redact_url
from ..page.agent import INLINE_BYTES, PageAgent
from ..page.channel import DevTools
from ..page.listening import listen, listener
from ..page.received import Clipboard, Effect, FileChooser, Print, checked
from ..page.scripts import load_script
from ..source import Tab
from ..transfer.cdp_downloads import CdpDownloads
from .app_downloads import AppDownloads
from .call_effects import CallEffects, Detail, EffectTracker
from .windows import Windows

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog

__all__ = ["Dialogs", "PageEffects"]

#: What ``confirm`` and ``prompt`` are answered with.
Dialogs: TypeAlias = Literal["dismiss", "accept"]

_MAX_TEXT = 500
#: Seconds by which the browser's event of a download may precede the page's announcement of it.
_BROWSER_LEAD = 0.05
#: Seconds between the end of a navigation and the start of the download that it turned into.
_NAVIGATION_GRACE = 0.1
_STEP_TIMEOUT = 2.0
#: The beginning of the handles of content that the page's own agent holds.
_HELD = "held:"
#: Seconds for the images of a printed page to load.
_SNAPSHOT_TIMEOUT = 10.0
#: Events of an embedded app in a second, and how many are handled in one turn of the event loop.
_EVENTS_A_SECOND, _FEW = 1000, 50


class PageEffects:
    """The side effects of one page and its windows.

    ``emit`` takes events, ``release`` content that nobody wants; ``print_page`` makes a PDF of the page as it is.
    ``limits`` are the bytes of the largest file that the app may download, and of all that nobody has taken yet.
    In a page that belongs to the caller, dialogs, windows and file choosers are left to the caller.
    """

    def __init__(
        self,
        agent: PageAgent,
        tab: Tab,
        *,
        dialogs: Dialogs,
        print_page: Callable[[], Awaitable[BinaryData]],
        emit: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
        limits: tuple[int, int | None],
    ) -> None:
        self._agent = agent
        self._limits = limits
        self._tab = tab
        self._app_downloads: AppDownloads | None = None
        self._accept = dialogs == "accept"
        self._print_page = print_page
        self._release = release
        self._tracker = EffectTracker(agent.lost, emit, release)
        self._windows = Windows(agent, self._tracker)
        self._unannounced_at = 0.0  # loop time at which a download began that nothing had announced
        self._printing = asyncio.Lock()
        agent.lost.add_done_callback(self._on_lost)

    async def prepare(self, downloads: object) -> None:
        """Start watching the page. Called before the app's first script.

        The app's own files are received if ``downloads`` are :class:`CdpDownloads`, whose folder we may set.
        """
        if self._tab.borrowed:
            return
        self._agent.page.on("dialog", self._on_dialog)
        self._windows.watch(self._agent.page, self._on_dialog)
        if self._agent.channel.cdp is None:
            page = self._agent.page
            listen(page, "filechooser", lambda chooser: self._on_file_chooser({"multiple": chooser.is_multiple()}))
            return
        self._watch(self._agent.cdp)
        steps = []
        if isinstance(downloads, CdpDownloads):
            assert self._tab.browser is not None
            target = await self._agent.target()
            browser, folder = self._tab.browser.cdp, self._tab.folder
            self._app_downloads = AppDownloads(self._agent, browser, target, downloads, folder, *self._limits)
            self._app_downloads.on_started = self._on_download
            steps.append(self._app_downloads.prepare())
        await asyncio.gather(_cancel_file_choosers(self._agent.cdp), *steps)

    def _watch(self, cdp: DevTools) -> None:
        listen(cdp, "Page.windowOpen", self._windows.on_window_open)
        listen(
            cdp,
            "Page.fileChooserOpened",
            lambda event: self._on_file_chooser({"multiple": event["mode"] == "selectMultiple"}),
        )
        listen(cdp, "Page.frameRequestedNavigation", self._on_navigation)
        listen(cdp, "Page.frameStoppedLoading", lambda event: self._on_loaded(event["frameId"]))
        listen(cdp, "Page.frameNavigated", lambda event: self._on_loaded(event["frame"]["id"]))

    async def watch_frame(self, cdp: CDPSession, context: Mapping[str, object], *, shared: bool) -> None:
        """Watch an app in a frame. Its first script has run already.

        ``shared`` says that the frame has no process of its own: then ``cdp`` is a session with the page, which is
        watched already, and ``context`` names the frame's own among its contexts (CDP ``Runtime.evaluate``).
        """
        if not shared:
            self._watch(cdp)
            await cdp.send("Page.enable")
            await _cancel_file_choosers(cdp)
        arguments = ", ".join((json.dumps({"inline": INLINE_BYTES}), load_script("effects.js")))
        expression = f"({load_script('embedded.js')})({arguments})"
        made = await cdp.send("Runtime.evaluate", {"expression": expression, **context})
        if "objectId" in made["result"]:
            self._tracker.spawn(self._hear(cdp, made["result"]["objectId"]))

    async def _hear(self, cdp: CDPSession, object_id: str) -> None:
        """Handle the events of a frame until it is gone, or says what is no list of them."""
        asking = 'function () { "use strict"; return this.next(); }'
        command = {"objectId": object_id, "functionDeclaration": asking, "awaitPromise": True, "returnByValue": True}
        while True:
            answer = await cdp.send("Runtime.callFunctionOn", command)
            texts = checked(answer["result"].get("value"), list[str], "the events of a frame")
            for start in range(0, len(texts), _FEW):
                few = texts[start : start + _FEW]
                for text in few:
                    self._agent.deliver(text, to=self.on_event)
                await asyncio.sleep(len(few) / _EVENTS_A_SECOND)

    async def aclose(self) -> None:
        """Cancel background work and remove downloaded files."""
        await self._tracker.aclose()
        if self._app_downloads is not None:
            await self._app_downloads.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    def begin_call(self, call_id: str) -> CallEffects:
        """Track a call until :meth:`end_call`."""
        return self._tracker.begin_call(call_id)

    def end_call(self, call: CallEffects) -> None:
        """Track a call no longer, and close the windows that it opened."""
        if call.windows or self._tracker.unattributed.windows:
            self._windows.close_windows_of(call)
        self._tracker.end_call(call)

    async def settle(self, call: CallEffects, reply: Message, *, timeout: float) -> None:
        """Complete a reply with its side effects; see :meth:`EffectTracker.settle
        <transports.browser.effects.call_effects.EffectTracker.settle>`.
        """
        await self._tracker.settle(call, reply, timeout=timeout)

    def _on_lost(self, lost: asyncio.Future[TransportError]) -> None:
        """Announce the loss: the call under way fails, so it has no result that could hold the effect."""
        error = lost.result()
        kind = "navigation" if isinstance(error, ContextLost) else "crash"
        if isinstance(error, ContextLost | PageCrashed | BrowserCrashed):
            self._tracker.announce(kind, self._tracker.current_call().id, {})

    # --- navigations that may turn into downloads ---------------------------------------------------------------------

    def _on_navigation(self, event: dict[str, Any]) -> None:
        call = self._tracker.current_call()
        same = event["url"].partition("#")[0] == self._agent.page.url.partition("#")[0]
        download = event["disposition"] == "currentTab" and event["url"][:4] in ("http", "blob", "data")
        if download and not same and call.id is not None:
            self._tracker.expect(call, event["frameId"], {})

    def _on_loaded(self, frame: str) -> None:
        if announced := self._tracker.find_expected(frame):
            asyncio.get_running_loop().call_later(_NAVIGATION_GRACE, self._tracker.mark_begun, announced)

    # --- the kinds of effects -----------------------------------------------------------------------------------------

    def on_event(self, kind: str, payload: Any, *, holder: str = _HELD) -> None:
        """Handle an event of an agent: ``print``, ``download``, ``filechooser`` or ``clipboard``.

        The handles of its content begin with ``holder``: another than the page's is that of a frame, which has part in
        no call but its own.
        """
        if not isinstance(payload, Effect):
            return
        call = self._tracker.current_call(payload.call) if holder == _HELD else self._tracker.call_of(payload.call)
        match payload:
            case Print():
                if self._tracker.record(call, kind, {"title": payload.title[:_MAX_TEXT]}):
                    self._tracker.add_output(call, self._print(payload.id), "the printed page", required=True)
            case FileChooser():
                kinds = {"multiple": payload.multiple, "directory": payload.directory, "picker": payload.picker}
                self._on_file_chooser({name: value for name, value in kinds.items() if value is not None}, call)
            case Clipboard(size=size, id=held):
                content = payload.base64 if held is None else Handle(f"{holder}{held}", size)
                recorded = self._tracker.record(call, kind, {"type": payload.type[:_MAX_TEXT], "bytes": size})
                if recorded and content is not None:
                    written = BinaryData(content, payload.type or None)
                    self._tracker.add_content(call, written, "what the app wrote to the clipboard")
                elif isinstance(content, Handle):
                    self._tracker.spawn(self._release(content))
            case _ if kind == "download":
                if call.id is not None and asyncio.get_running_loop().time() - self._unannounced_at > _BROWSER_LEAD:
                    self._tracker.expect(call, "", {})

    @listener
    def _on_dialog(self, dialog: Dialog) -> None:
        accept = self._accept or dialog.type in ("alert", "beforeunload")
        answer = "accepted" if accept else "dismissed"
        self._tracker.record(
            self._tracker.current_call(),
            "dialog",
            {"type": dialog.type, "message": dialog.message[:_MAX_TEXT], "answer": answer},
        )
        self._tracker.spawn(dialog.accept(dialog.default_value) if accept else dialog.dismiss())

    async def _print(self, snapshot: int | None) -> BinaryData:
        """Make the PDF of a ``print()``.

        ``snapshot`` is the page's copy of that moment, ``None`` for the page as it is. Prints run one after another:
        the page can show one snapshot of itself at a time.
        """
        async with self._printing:
            if snapshot is None:
                return await self._print_page()
            await self._agent.invoke("showSnapshot", snapshot, timeout=_SNAPSHOT_TIMEOUT)
            try:
                return await self._print_page()
            except BaseException:  # a page that was printed restores itself; this one was not printed
                with contextlib.suppress(TransportError):
                    await self._agent.invoke("restorePage", timeout=_STEP_TIMEOUT)
                raise

    def _on_file_chooser(self, detail: Detail, call: CallEffects | None = None) -> None:
        self._tracker.record(call or self._tracker.current_call(), "filechooser", {**detail, "answer": "no files"})

    def _on_download(self, guid: str, url: str, name: str, frame: str) -> bool:
        """Record a download of the app; returns whether the file is wanted."""
        announced = self._tracker.take_expected(frame, "")
        call = self._tracker.current_call(announced.call.id if announced else None)
        detail: Detail = {"url": redact_url(url)[:_MAX_TEXT], "filename": name[:_MAX_TEXT]}
        if wanted := self._tracker.record(call, "download", detail):
            work, what = self._downloaded(guid, name, detail), f"the app's download {name[:80]!r}"
            self._tracker.add_output(call, work, what, on_discard=partial(self._cancel_download, guid))
        if announced:
            self._tracker.mark_begun(announced)
        else:
            self._unannounced_at = asyncio.get_running_loop().time()
        return wanted

    async def _downloaded(self, guid: str, name: str, detail: Detail) -> BinaryData:
        assert self._app_downloads is not None
        size = await self._app_downloads.wait(guid)
        detail["bytes"] = size
        return BinaryData(Handle(f"file:{guid}", size), None, None, name)

    def _cancel_download(self, guid: str) -> None:
        if self._app_downloads is not None:
            self._app_downloads.cancel(guid)

    async def save(self, handle: Handle, path: Path) -> None:
        """Move a file that the app downloaded to ``path``. Raises :class:`~transports.errors.TransportError`."""
        if self._app_downloads is None:
            raise TransportError("this download belongs to a page that is gone")
        await self._app_downloads.move_to(handle.id.removeprefix("file:"), path)

    def remove_download(self, handle: Handle) -> None:
        """Delete a file that the app downloaded and nobody fetched."""
        if self._app_downloads is not None:
            self._app_downloads.remove(handle.id.removeprefix("file:"))


async def _cancel_file_choosers(cdp: DevTools) -> None:
    """Let the browser close every file chooser at once, as a user who presses Cancel."""
    await cdp.send("Page.setInterceptFileChooserDialog", {"enabled": True, "cancel": True})
