"""Side effects of an app: dialogs, prints, downloads, windows, file choosers, the clipboard, permissions.

Each effect is answered at once, so that no call waits for a person, and recorded as an :class:`~transports.Effect`.
Its content, if it has any, becomes an output of the call that was running. An effect outside any call is announced as
an event, and its content comes with the next call. See ``docs/side-effects.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .._internal.tasks import in_thread
from ..errors import BrowserCrashed, ContextLost, PageCrashed, TransportError
from ..protocol._plain_text import redact_url
from ..protocol.binary import BinaryData, Handle, decode_data_url
from ..protocol.messages import Message
from ._agent import INLINE_BYTES, DevTools, PageAgent
from ._downloads import AppDownloads, ByteLimits, CdpDownloads, PlaywrightDownloads
from ._effect_tracker import (
    LOAD_TIMEOUT,
    MAX_TEXT,
    UNFINISHED,
    CallEffects,
    Detail,
    EffectTracker,
    ExpectedEffect,
    Windows,
    loads_in_browser,
)
from ._process import listen, listener
from ._received import HELD, Clipboard, Download, Effect, FileChooser, Notice, Print, Unsent, convert_received
from ._scripts import load_script
from ._source import Tab

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog, Page

logger = logging.getLogger("transports.playwright")

#: Answer to ``confirm`` and ``prompt``.
Dialogs: TypeAlias = Literal["dismiss", "accept"]

#: Events for a print() that makes no PDF, and what was printed.
_NOT_PRINTED = {"frameprint": "a frame", "windowprint": "a window"}


class PageEffects:
    """Handlers of a page's side effects; a caller's page keeps its dialogs, windows and file choosers."""

    def __init__(
        self,
        agent: PageAgent,
        tab: Tab,
        *,
        dialogs: Dialogs,
        print_page: Callable[[], Awaitable[BinaryData]],
        emit: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
        limits: ByteLimits,
    ) -> None:
        self._agent = agent
        self._limits = limits
        self._tab = tab
        self._app_downloads: AppDownloads | None = None
        self._cdp_downloads: CdpDownloads | None = None
        self._is_own_download: Callable[[str], bool] = lambda _: False
        self._accept_dialogs = dialogs == "accept"
        self._print_page = print_page
        self._release = release
        self.tracker = EffectTracker(agent.lost, emit, release)
        self._windows = Windows(agent, self.tracker)
        # Loop time of the latest download that began without an announcement.
        self._unannounced_at = 0.0
        # Number of events received from the app's frame.
        self._events_received = 0
        self._printing = asyncio.Lock()
        agent.lost.add_done_callback(self._on_lost)

    async def prepare(self, downloads: object) -> None:
        """Listen to the browser, before the app's first script runs.

        Files that the app downloads are received only over :class:`CdpDownloads`, which can set their folder. Otherwise
        each file causes a warning."""
        page = self._agent.page
        has_cdp = self._agent.channel.cdp is not None
        if isinstance(downloads, PlaywrightDownloads):
            self._is_own_download = downloads.is_saving
        leaves_files_to_browser = self._tab.borrowed or downloads is None
        if has_cdp and leaves_files_to_browser:
            self._watch_unreceived(self._agent.cdp)
        if self._tab.borrowed:
            return

        self._windows.watch(page, partial(self._listen_to_window, downloads=downloads))
        if not has_cdp:
            listen(page, "filechooser", lambda chooser: self._on_file_chooser({"multiple": chooser.is_multiple()}))
            return
        self._watch(self._agent.cdp)
        steps = [_cancel_file_choosers(self._agent.cdp)]
        if isinstance(downloads, CdpDownloads):
            self._cdp_downloads = downloads
            self._app_downloads = AppDownloads(self._agent, downloads, self._limits)
            self._app_downloads.on_started = self._on_download
            self._app_downloads.on_window = self._windows.on_target
            self._windows.take_pdf = self._wait_for_pdf
            steps.append(self._app_downloads.prepare())
        await asyncio.gather(*steps)

    def _listen_to_window(self, page: Page, downloads: object) -> None:
        page.on("dialog", self._on_dialog)
        if isinstance(downloads, PlaywrightDownloads):
            listen(page, "download", lambda event: self._on_unreceived(event.url, event.suggested_filename))

    def _watch_unreceived(self, cdp: DevTools) -> None:
        listen(
            cdp,
            "Page.downloadWillBegin",
            lambda event: self._on_unreceived(event["url"], event["suggestedFilename"], event["frameId"]),
        )

    def _watch(self, cdp: DevTools) -> None:
        listen(cdp, "Page.windowOpen", self._windows.on_window_open)
        listen(
            cdp,
            "Page.fileChooserOpened",
            lambda event: self._on_file_chooser({"multiple": event["mode"] == "selectMultiple"}),
        )
        listen(cdp, "Page.frameRequestedNavigation", self._on_navigation)
        listen(cdp, "Page.frameStoppedLoading", lambda event: self._on_loaded(event["frameId"]))
        listen(cdp, "Page.frameNavigated", self._on_frame_navigated)
        # A page of another site, which loads in another process, gives no other event here.
        listen(cdp, "Page.frameDetached", lambda event: self._on_loaded(event["frameId"]))

    async def watch_frame(self, cdp: CDPSession, context: Mapping[str, object], *, shared: bool) -> str | None:
        """Watch an app's frame, whose first script has run already. Return the id of an object of its document.

        With ``shared``, the frame is in the page's process: then ``cdp`` is a session with the page, which is watched
        already, and ``context`` selects the frame's context (parameters of CDP ``Runtime.evaluate``)."""
        if not shared:
            self._watch(cdp)
            await cdp.send("Page.enable")
            await _cancel_file_choosers(cdp)

        self._events_received = 0
        configuration = json.dumps({"inline": INLINE_BYTES})
        scripts = map(load_script, ("natives.js", "codec.js", "effects.js"))
        arguments = ", ".join((configuration, *scripts))
        expression = f"({load_script('embedded.js')})({arguments})"
        reply = await cdp.send("Runtime.evaluate", {"expression": expression, **context})
        watched: str | None = reply["result"].get("objectId")
        if watched is not None:
            self.tracker.spawn(self._receive_events(cdp, watched))
        return watched

    async def _receive_events(self, cdp: CDPSession, object_id: str) -> None:
        """Handle a frame's events until it is gone or returns anything but a list of events."""
        function = 'function () { "use strict"; return this.next(); }'
        command = {"objectId": object_id, "functionDeclaration": function, "awaitPromise": True, "returnByValue": True}
        while True:
            reply = await cdp.send("Runtime.callFunctionOn", command)
            texts = convert_received(reply["result"].get("value"), list[str], "the events of a frame")
            batch_size, max_per_second = 50, 1000
            for start in range(0, len(texts), batch_size):
                batch = texts[start : start + batch_size]
                for text in batch:
                    self._agent.deliver(text, to=self.on_event)
                self._events_received += len(batch)
                self.tracker.mark_received(self._events_received)
                await asyncio.sleep(len(batch) / max_per_second)

    def on_emitted(self, number: int) -> None:
        """Let the call under way wait for the event ``number`` of the app's frame, unless the event has arrived."""
        call = self.tracker.current_call()
        if number > self._events_received and call.id is not None:
            self.tracker.expect(call, "event", {}, number)

    async def aclose(self) -> None:
        if self._app_downloads is not None:
            # Refuse downloads that begin now: no call could get their files.
            self._app_downloads.on_started = lambda *_: False
        await self._windows.aclose()
        await self.tracker.aclose()
        if self._app_downloads is not None:
            await self._app_downloads.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    @property
    def current_call(self) -> str | None:
        return self.tracker.current_call().id

    def add_file(self, content: BinaryData, what: str) -> None:
        self.tracker.add_content(self.tracker.current_call(), content, what)

    def end_call(self, call: CallEffects) -> None:
        if call.windows or self.tracker.unattributed.windows:
            self._windows.close_windows_of(call)
        self.tracker.end_call(call)

    async def add_to_reply(self, call: CallEffects, reply: Message, *, timeout: float) -> None:
        """Add the effects and outputs of a call to its reply, and a warning about each window that was not ready."""
        self._windows.expect_content(call)
        watching = None
        if self._cdp_downloads is not None:
            watching = self.tracker.spawn(self._cdp_downloads.ping_driver())
        try:
            await self.tracker.add_to_reply(call, reply, timeout=timeout)
        finally:
            if watching is not None:
                watching.cancel()
        for window in call.windows:
            if window.is_unfinished:
                address = redact_url(window.page.url)[:MAX_TEXT]
                warning = f"a window at {address} was not ready in time; a file that it shows comes with a later call"
                reply.warnings = (*reply.warnings, warning)
            elif window.is_written:
                warning = "what the app wrote into a blank window is not kept; have the app download or return it"
                reply.warnings = (*reply.warnings, warning)

    def _on_lost(self, lost: asyncio.Future[TransportError]) -> None:
        """Announce the loss as an event: the call under way fails, so it has no result that could hold the effect."""
        match lost.result():
            case ContextLost():
                kind = "navigation"
            case PageCrashed() | BrowserCrashed():
                kind = "crash"
            case _:
                return
        self.tracker.announce(kind, self.tracker.current_call().id, {})

    # --- navigations that may turn into downloads ---------------------------------------------------------------------

    def _on_navigation(self, event: dict[str, Any]) -> None:
        """Let the call under way wait for a navigation, which may become a download."""
        call = self.tracker.current_call()
        same_document = event["url"].partition("#")[0] == self._agent.page.url.partition("#")[0]
        may_download = event["disposition"] == "currentTab" and loads_in_browser(event["url"])
        if may_download and not same_document and call.id is not None:
            self.tracker.expect_navigation(call, event["frameId"], event["url"])

    def _on_frame_navigated(self, event: dict[str, Any]) -> None:
        frame = event["frame"]
        effect = self.tracker.find_expected(frame["id"])
        if effect is not None and frame["mimeType"] == "application/pdf":
            self._on_frame_pdf(self.tracker.call_of(effect.call.id), frame["url"])
        self._on_loaded(frame["id"])

    def _on_frame_pdf(self, call: CallEffects, url: str) -> None:
        """Keep a PDF that a frame shows in the viewer of a whole Chromium. In other browsers the PDF is a download."""
        address = redact_url(url)[:MAX_TEXT]
        if not self.tracker.record(call, "download", {"url": address, "filename": ""}):
            self.tracker.count_dropped(call)
        elif url.startswith("blob:"):
            self.tracker.add_output(call, self._windows.take_blob(url), "the PDF of a frame")
        elif url.startswith("data:"):
            self.tracker.add_output(call, _decode_pdf(url), "the PDF of a frame")
        else:
            self.tracker.warn(call, f"the PDF of a frame ({address}) is not kept; have the app download or return it")

    def _on_loaded(self, frame: str) -> None:
        effect = self.tracker.find_expected(frame)
        if effect is not None:
            # A navigation that turns into a download ends up to this many seconds before the download begins.
            download_delay = 0.1
            asyncio.get_running_loop().call_later(download_delay, self.tracker.mark_begun, effect)

    # --- the kinds of effects -----------------------------------------------------------------------------------------

    def on_event(self, kind: str, payload: Any, *, handle_prefix: str = HELD) -> None:
        """Handle an effect of the page or of a frame. Its ``kind`` is ``print``, ``frameprint``, ``windowprint``,
        ``download``, ``filechooser``, ``clipboard``, ``share``, ``notice``, ``unfinished`` or ``unsent``. Effects of a
        frame, which has another ``handle_prefix``, are assigned only to calls of that frame."""
        if not isinstance(payload, Effect):
            return

        if handle_prefix == HELD:
            call = self.tracker.current_call(payload.call)
        else:
            call = self.tracker.call_of(payload.call)
        is_late = payload.call not in (None, call.id)

        match payload:
            case Print():
                self._on_print(call, kind, payload, is_late=is_late)
            case FileChooser():
                self._on_picker(call, payload)
            case Clipboard():
                self._on_clipboard(call, kind, payload, handle_prefix, is_late=is_late)
            case Notice(title=title, body=body):
                self.tracker.record(call, "notification", {"title": title[:MAX_TEXT], "body": body[:MAX_TEXT]})
            case Unsent():
                self.tracker.warn(call, f"an event of the app could not be sent: {payload.reason[:MAX_TEXT]}")
            case Download(dropped=True):
                self.tracker.count_dropped(call)
            case Download(prevented=True):
                self._on_prevented_click(call)
            case Download():
                self._on_download_click(call, payload, is_late=is_late)
            case Effect() if kind == "unfinished":
                self.tracker.warn(call, UNFINISHED)
            case Effect() if kind in _NOT_PRINTED:
                self.tracker.warn(call, f"the app printed {_NOT_PRINTED[kind]}, which makes no PDF")

    def _on_picker(self, call: CallEffects, chooser: FileChooser) -> None:
        if chooser.picker is not None:
            picker = chooser.picker[:MAX_TEXT]
            self.tracker.warn(call, f"{picker}() of the app was cancelled: there is no user to choose a file")
        detail = {"multiple": chooser.multiple, "directory": chooser.directory, "picker": chooser.picker}
        self._on_file_chooser({name: value for name, value in detail.items() if value is not None}, call)

    def _on_download_click(self, call: CallEffects, click: Download, *, is_late: bool) -> None:
        """Expect a download, unless it has begun already."""
        # The browser's event may come this many seconds before the page's announcement of the same download.
        max_lead = 0.05
        is_new = asyncio.get_running_loop().time() - self._unannounced_at > max_lead
        if call.id is not None and (click.wait or is_new):
            self.tracker.expect(
                call,
                "",
                {"url": click.url},
                timeout=LOAD_TIMEOUT,
                wait=click.wait / 1000,
                is_late=is_late,
                is_counted=click.sure,
            )

    def _on_prevented_click(self, call: CallEffects) -> None:
        """Stop to expect a download whose click was cancelled by the app."""
        expected_download = next((effect for effect in call.expected if effect.place == "" and not effect.wait), None)
        if expected_download is not None:
            self.tracker.mark_begun(expected_download)

    def _on_print(self, call: CallEffects, kind: str, printed: Print, *, is_late: bool) -> None:
        if not printed.kept:
            self.tracker.warn(call, "the page could not be copied at its print(): its PDF may show a later state")
        if self.tracker.record(call, kind, {"title": printed.title[:MAX_TEXT]}):
            work = self._print_snapshot(printed.id)
            self.tracker.add_output(call, work, "the printed page", required=not is_late, is_late=is_late)

    def _on_clipboard(self, call: CallEffects, kind: str, written: Clipboard, prefix: str, *, is_late: bool) -> None:
        content: Handle | bytes | None = written.base64
        if written.id is not None:
            content = Handle(f"{prefix}{written.id}", written.size)

        detail: Detail = {"type": written.type[:MAX_TEXT], "bytes": written.size}
        is_recorded = self.tracker.record(call, kind, detail)
        what = "the clipboard content of the app" if kind == "clipboard" else "what the app shared"
        if is_recorded and content is not None:
            data = BinaryData(content, written.type or None, None, written.name or None)
            self.tracker.add_content(call, data, what, is_late=is_late)
        elif is_recorded:
            self.tracker.warn(call, f"{what} ({written.size:,} bytes) is too long to be kept; have the app return it")
        elif isinstance(content, Handle):
            # An effect that is not recorded has no output, so the page need not hold the content.
            self.tracker.spawn(self._release(content))

    @listener
    def _on_dialog(self, dialog: Dialog) -> None:
        detail: Detail = {"type": dialog.type, "message": dialog.message[:MAX_TEXT]}
        if self._accept_dialogs or dialog.type in ("alert", "beforeunload"):
            detail["answer"] = "accepted"
            self.tracker.spawn(dialog.accept(dialog.default_value))
        else:
            detail["answer"] = "dismissed"
            self.tracker.spawn(dialog.dismiss())
        self.tracker.record(self.tracker.current_call(), "dialog", detail)

    async def _print_snapshot(self, snapshot: int | None) -> BinaryData:
        """Print the copy that the page made of itself at its ``print()``: ``snapshot`` is its id. ``None`` prints the
        current page.

        Prints run one after another: the page can show only one snapshot at a time."""
        async with self._printing:
            if snapshot is None:
                return await self._print_page()

            await self._agent.invoke("showSnapshot", snapshot, timeout=10.0)
            try:
                return await self._print_page()
            except BaseException:
                # The page restores itself only after a print.
                with contextlib.suppress(TransportError):
                    await self._agent.invoke("restorePage", timeout=2.0)
                raise

    def _on_file_chooser(self, detail: Detail, call: CallEffects | None = None) -> None:
        self.tracker.record(call or self.tracker.current_call(), "filechooser", {**detail, "answer": "no files"})

    def _on_download(self, guid: str, url: str, name: str, frame: str) -> bool:
        """Assign a download to its call. Return false if there are too many downloads."""
        if self._windows.on_download(frame, guid, name):
            return True

        # The owner is the call that opened the window, or else the call that announced the download by a navigation or
        # a click.
        owner = self._windows.owners.get(frame)
        effect: ExpectedEffect | None = None
        if owner is None:
            effect = self.tracker.take_expected(frame, "", url=url)
            if effect is not None:
                owner = effect.call

        # The owner may have ended: then the download comes late, with the call that is under way now.
        call = self.tracker.current_call(None if owner is None else owner.id)
        is_late = (owner is not None and owner is not call) or (effect is not None and effect.is_late)
        is_recorded = self._add_download(call, guid, url, name, is_late=is_late)

        if effect is not None:
            self.tracker.mark_begun(effect)
        else:
            self._unannounced_at = asyncio.get_running_loop().time()
            # An expected download that was given up may be this one, whose server was slow.
            call.given_up = max(call.given_up - 1, 0)
        return is_recorded

    def _add_download(self, call: CallEffects, guid: str, url: str, name: str, *, is_late: bool) -> bool:
        """Add a download to the outputs of a call. Return false if the call has too many effects."""
        detail: Detail = {"url": redact_url(url)[:MAX_TEXT], "filename": name[:MAX_TEXT]}
        is_recorded = self.tracker.record(call, "download", detail)
        what = f"the app's download {name[:80]!r}"
        if self._app_downloads is None:
            self.tracker.warn(call, f"{what} went where the browser saves its files, not here; have the app return it")
        elif is_recorded:
            work = self._wait_for_download(guid, name, detail)
            cancel = partial(self._app_downloads.cancel, guid)
            self.tracker.add_output(call, work, what, is_late=is_late, on_discard=cancel)
        else:
            self.tracker.count_dropped(call)
        return is_recorded

    def _on_unreceived(self, url: str, name: str, frame: str = "") -> None:
        """Note a download of the app whose file is not received, unless the download was started here."""
        if not self._is_own_download(url):
            self._on_download("", url, name, frame)

    async def _wait_for_download(self, guid: str, name: str, detail: Detail | None = None) -> BinaryData:
        assert self._app_downloads is not None
        size = await self._app_downloads.wait(guid)
        if detail is not None:
            detail["bytes"] = size
        return BinaryData(Handle(f"file:{guid}", size), None, None, name)

    async def _wait_for_pdf(self, guid: str, name: str) -> BinaryData:
        """Wait for the PDF of a viewer. Refuse anything but a PDF: the viewer may request the file a second time, and
        its server may answer that with anything."""
        content = await self._wait_for_download(guid, name)
        assert self._app_downloads is not None
        if not await in_thread(_is_pdf, self._app_downloads.folder / guid):
            self._app_downloads.remove(guid)
            raise TransportError("its server answered something else to a second request; have the app download it")
        return replace(content, mime_type="application/pdf")

    async def save(self, handle: Handle, path: Path) -> None:
        if self._app_downloads is None:
            raise TransportError("this download belongs to a page that was closed")
        await self._app_downloads.move_to(handle.id.removeprefix("file:"), path)

    def remove_download(self, handle: Handle) -> None:
        if self._app_downloads is not None:
            self._app_downloads.remove(handle.id.removeprefix("file:"))


def _is_pdf(path: Path) -> bool:
    with path.open("rb") as file:
        return b"%PDF-" in file.read(1024)


async def _decode_pdf(url: str) -> BinaryData:
    content = decode_data_url(url)
    if content is None:
        raise TransportError("its data: URL cannot be read; have the app download or return it")
    return BinaryData(content, "application/pdf")


async def _cancel_file_choosers(cdp: DevTools) -> None:
    await cdp.send("Page.setInterceptFileChooserDialog", {"enabled": True, "cancel": True})
