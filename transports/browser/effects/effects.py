"""What an app does beside answering: dialogs, prints, downloads, windows, file choosers, the clipboard.

Each is answered at once, so that nothing waits for a person; recorded as an :class:`~transports.Effect`; and
its content, if it has any, becomes an output of the call that was running. What begins outside any call is announced
as an event, and its content handed over with the next call. See ``docs/side-effects.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pybase64

from ...binary import BinaryData, Handle
from ...errors import BrowserCrashed, ContextLost, PageCrashed, TransportError
from ...protocol.messages import Message
from ...protocol.strict_json import decode_json
from ...protocol.urls import redact_url
from ..page.agent import INLINE_BYTES, PageAgent, script
from ..source import Tab
from ..transfer.cdp_downloads import Downloads
from .app_downloads import AppFiles
from .ledger import Caused, Detail, Ledger
from .windows import Windows

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog

__all__ = ["Dialogs", "Effects"]

#: What ``confirm`` and ``prompt`` are answered with.
Dialogs: TypeAlias = Literal["dismiss", "accept"]

_TEXT = 500
#: Seconds that the browser may be quicker than the page.
_QUICKER = 0.05
#: Seconds between the end of a navigation and the download that it has become.
_GRACE = 0.1
_STEP = 2.0
#: Seconds until the images of a printed page are there.
_PICTURE = 10.0


class Effects:
    """The side effects of one page and its windows. ``announce`` takes events, ``release`` content nobody wants;
    ``print_page`` makes a PDF of the page as it is now. In a page that is the caller's, dialogs, windows and file
    choosers are the caller's to answer."""

    def __init__(
        self,
        agent: PageAgent,
        tab: Tab,
        *,
        dialogs: Dialogs,
        print_page: Callable[[], Awaitable[BinaryData]],
        announce: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._tab = tab
        self._files: AppFiles | None = None
        self._accept = dialogs == "accept"
        self._print_page = print_page
        self._release = release
        self._ledger = Ledger(agent.lost, announce, release)
        self._windows = Windows(agent, self._ledger)
        self._surprise = 0.0  # when a download began that nothing had announced
        self._printing = asyncio.Lock()
        agent.lost.add_done_callback(self._lost)

    async def prepare(self, downloads: object) -> None:
        """Before the app's first script. The app's own files are taken where ``downloads`` are ours to direct."""
        if self._tab.given:
            return
        self._agent.page.on("dialog", self._dialog)
        self._windows.watch(self._agent.page, self._dialog)
        if self._agent.channel.cdp is None:
            self._agent.page.on("filechooser", lambda chooser: self._chooser({"multiple": chooser.is_multiple()}))
            return
        self._watch(self._agent.cdp)
        await _no_choosers(self._agent.cdp)
        if isinstance(downloads, Downloads):
            assert self._tab.browser is not None
            target = await self._agent.target()
            self._files = AppFiles(self._agent, self._tab.browser.cdp, target, downloads, self._tab.folder)
            self._files.on_begun = self._download
            await self._files.prepare()

    def _watch(self, cdp: CDPSession) -> None:
        cdp.on("Page.windowOpen", self._windows.announced)
        cdp.on("Page.fileChooserOpened", lambda event: self._chooser({"multiple": event["mode"] == "selectMultiple"}))
        cdp.on("Page.frameRequestedNavigation", self._navigates)
        cdp.on("Page.frameStoppedLoading", lambda event: self._loaded(event["frameId"]))
        cdp.on("Page.frameNavigated", lambda event: self._loaded(event["frame"]["id"]))

    async def embedded(self, cdp: CDPSession) -> None:
        """Watch an app in a frame that has a process of its own and has loaded: its first script has run already."""
        binding = f"_{secrets.token_hex(8)}"

        def called(event: dict[str, Any]) -> None:
            if event["name"] == binding:
                kind_and_payload: Any = decode_json(event["payload"])
                self.on_event(*kind_and_payload)

        cdp.on("Runtime.bindingCalled", called)
        self._watch(cdp)
        await cdp.send("Page.enable")
        await _no_choosers(cdp)
        await cdp.send("Runtime.enable")
        await cdp.send("Runtime.addBinding", {"name": binding})
        arguments = ", ".join((json.dumps({"binding": binding, "inline": INLINE_BYTES}), script("effects.js")))
        await cdp.send("Runtime.evaluate", {"expression": f"({script('embedded.js')})({arguments})"})

    async def aclose(self) -> None:
        await self._ledger.aclose()
        if self._files is not None:
            await self._files.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def during(self, call_id: str) -> Iterator[Caused]:
        """A call is under way; when it ends its windows are closed."""
        with self._ledger.during(call_id) as call:
            try:
                yield call
            finally:
                self._windows.close(call)

    async def settle(self, call: Caused, reply: Message, *, timeout: float) -> None:
        """See :meth:`Ledger.settle <transports.browser.effects.ledger.Ledger.settle>`."""
        await self._ledger.settle(call, reply, timeout=timeout)

    def _lost(self, lost: asyncio.Future[TransportError]) -> None:
        """The call fails and has no result, so this is announced."""
        error = lost.result()
        kind = "navigation" if isinstance(error, ContextLost) else "crash"
        if isinstance(error, ContextLost | PageCrashed | BrowserCrashed):
            self._ledger.tell(kind, self._ledger.running().id, {})

    # --- what will begin soon -----------------------------------------------------------------------------------------

    def _navigates(self, event: dict[str, Any]) -> None:
        call = self._ledger.running()
        same = event["url"].partition("#")[0] == self._agent.page.url.partition("#")[0]
        download = event["disposition"] == "currentTab" and event["url"][:4] in ("http", "blob", "data")
        if download and not same and call.id is not None:
            self._ledger.expect(call, event["frameId"], {})

    def _loaded(self, frame: str) -> None:
        if announced := self._ledger.peek(frame):
            asyncio.get_running_loop().call_later(_GRACE, self._ledger.begun, announced)

    # --- one kind each ------------------------------------------------------------------------------------------------

    def on_event(self, kind: str, payload: Any) -> None:
        """What the page's agent tells: ``print``, ``download``, ``filechooser`` and ``clipboard``."""
        call = self._ledger.running(payload.pop("call"))
        match kind:
            case "print":
                if self._ledger.record(call, kind, {"title": payload["title"][:_TEXT]}):
                    self._ledger.output(call, self._print(payload["id"]), "the printed page", needed=True)
            case "download":
                if call.id is not None and asyncio.get_running_loop().time() - self._surprise > _QUICKER:
                    self._ledger.expect(call, "", {})
            case "filechooser":
                self._chooser(payload, call)
            case "clipboard":
                size, mime_type = payload["size"], payload["type"]
                content: Handle | bytes | None = None
                if "id" in payload:
                    content = Handle(f"held:{payload['id']}", size)
                elif "base64" in payload:
                    content = pybase64.b64decode(payload["base64"], validate=True)
                recorded = self._ledger.record(call, kind, {"type": mime_type, "bytes": size})
                if recorded and content is not None:
                    written = BinaryData(content, mime_type or None)
                    self._ledger.ready(call, written, "what the app wrote to the clipboard")
                elif isinstance(content, Handle):
                    self._ledger.spawn(self._release(content))

    def _dialog(self, dialog: Dialog) -> None:
        accept = self._accept or dialog.type in ("alert", "beforeunload")
        answer = "accepted" if accept else "dismissed"
        self._ledger.record(
            self._ledger.running(), "dialog", {"type": dialog.type, "message": dialog.message[:_TEXT], "answer": answer}
        )
        self._ledger.spawn(dialog.accept(dialog.default_value) if accept else dialog.dismiss())

    async def _print(self, picture: int | None) -> BinaryData:
        """One after another: the page shows one picture of itself at a time; without one it is printed as it is."""
        async with self._printing:
            if picture is None:
                return await self._print_page()
            await self._agent.invoke("picture", picture, timeout=_PICTURE)
            try:
                return await self._print_page()
            except BaseException:  # after a print the page has heard that it is over, and looks as before
                with contextlib.suppress(TransportError):
                    await self._agent.invoke("printed", timeout=_STEP)
                raise

    def _chooser(self, detail: Detail, call: Caused | None = None) -> None:
        self._ledger.record(call or self._ledger.running(), "filechooser", {**detail, "answer": "no files"})

    def _download(self, guid: str, url: str, name: str, frame: str) -> bool:
        """Whether the file is wanted."""
        announced = self._ledger.take(frame, "")
        call = self._ledger.running(announced.call.id if announced else None)
        detail: Detail = {"url": redact_url(url)[:_TEXT], "filename": name[:_TEXT]}
        if wanted := self._ledger.record(call, "download", detail):
            work, what = self._file(guid, name, detail), f"the app's download {name[:80]!r}"
            self._ledger.output(call, work, what, forget=partial(self._drop, guid))
        if announced:
            self._ledger.begun(announced)
        else:
            self._surprise = asyncio.get_running_loop().time()
        return wanted

    async def _file(self, guid: str, name: str, detail: Detail) -> BinaryData:
        assert self._files is not None
        size = await self._files.arrived(guid)
        detail["bytes"] = size
        return BinaryData(Handle(f"file:{guid}", size), None, None, name)

    def _drop(self, guid: str) -> None:
        if self._files is not None:
            self._files.drop(guid)

    async def save(self, handle: Handle, path: Path) -> None:
        """Move a file that the app downloaded to ``path``."""
        if self._files is None:
            raise TransportError("this download belongs to a page that is gone")
        await self._files.take(handle.id.removeprefix("file:"), path)

    def forget(self, handle: Handle) -> None:
        """Remove a file that the app downloaded."""
        if self._files is not None:
            self._files.remove(handle.id.removeprefix("file:"))


async def _no_choosers(cdp: CDPSession) -> None:
    """File choosers are answered as a user does who closes them."""
    await cdp.send("Page.setInterceptFileChooserDialog", {"enabled": True, "cancel": True})
