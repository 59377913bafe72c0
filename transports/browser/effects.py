"""What an app does beside answering: dialogs, prints, downloads, windows, file choosers, the clipboard.

Each is answered at once, so that nothing waits for a person; recorded as an :class:`~transports.messages.Effect`; and
its content, if it has any, becomes an output of the call that was running. What begins outside any call is announced
as an event, and its content handed over with the next call. See ``docs/side-effects.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..binary import BinaryData, Download, Handle
from ..errors import CallTimeout, TransportError, redact_url
from ..messages import Effect, JSONValue, Message
from .agent import PageAgent
from .appfiles import AppFiles

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog, Page

__all__ = ["Dialogs", "Effects"]

#: What ``confirm`` and ``prompt`` are answered with.
Dialogs: TypeAlias = Literal["dismiss", "accept"]

#: Effects of one call that are recorded one by one; the rest is counted.
_MOST = 100
#: Outputs that began outside any call and wait for the next one.
_WAITING = 8
_WINDOWS = 8
_TEXT = 500
#: Seconds for what was announced (a click on a download link, a window) to begin.
_ANNOUNCED = 1.0
#: Seconds between the end of a navigation and the download that it has become.
_GRACE = 0.1
_STEP = 2.0

Detail: TypeAlias = dict[str, JSONValue]


@dataclass(slots=True, eq=False)
class _Call:
    """What one call has caused so far; ``id`` is ``None`` for what no call has caused."""

    id: str | None
    effects: list[tuple[str, Detail]] = field(default_factory=list)
    more: int = 0
    outputs: list[_Output] = field(default_factory=list)
    announced: set[asyncio.Future[None]] = field(default_factory=set)
    windows: list[Page] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Output:
    """Content on its way. A call fails without its ``needed`` ones; others come later if they are late."""

    task: asyncio.Future[BinaryData | None]
    needed: bool
    what: str


@dataclass(slots=True, eq=False)
class _Announced:
    """Something that is about to begin: a navigation of ``frame``, a window (``"window"``), a download link."""

    call: _Call
    frame: str
    detail: Detail
    begun: asyncio.Future[None]


class Effects:
    """The side effects of one page and its windows. ``announce`` takes events, ``release`` content nobody wants.

    Files that the app downloads are kept by ``files``. ``timeout`` in seconds is for printing one page.
    """

    def __init__(
        self,
        agent: PageAgent,
        files: AppFiles,
        *,
        dialogs: Dialogs,
        timeout: float,
        announce: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._files = files
        self._accept = dialogs == "accept"
        self._timeout = timeout
        self._announce = announce
        self._release = release
        self._calls: dict[str, _Call] = {}
        self._outside = _Call(None)
        self._expected: deque[_Announced] = deque(maxlen=_MOST)
        self._windows: list[Page] = []
        self._printing = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()
        context = agent.page.context
        context.on("dialog", self._dialog)
        context.on("page", self._window)
        agent.page.on("crash", lambda _: self._lost("crash", {}))
        files.on_begun = self._download
        self.watch(agent.cdp)

    def watch(self, cdp: CDPSession) -> None:
        """Take the events of a target whose CDP domain Page is enabled: the page, a frame in a process of its own."""
        cdp.on("Page.windowOpen", self._opens)
        cdp.on("Page.fileChooserOpened", lambda event: self._chooser({"multiple": event["mode"] == "selectMultiple"}))
        cdp.on("Page.frameRequestedNavigation", self._navigates)
        cdp.on("Page.frameStoppedLoading", self._loaded)
        cdp.on("Page.frameNavigated", self._loaded)

    async def no_choosers(self, cdp: CDPSession) -> None:
        """File choosers of this target are answered as a user does who closes them."""
        await cdp.send("Page.setInterceptFileChooserDialog", {"enabled": True, "cancel": True})

    async def aclose(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STEP)
        await self._files.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def during(self, call_id: str) -> Iterator[_Call]:
        """A call is under way. When it ends its windows are closed, and outputs it has not taken wait for the next."""
        call = self._calls[call_id] = _Call(call_id)
        try:
            yield call
        finally:
            del self._calls[call_id]
            for output in call.outputs:
                self._wait_for_next(output)
            for window in (*call.windows, *self._outside.windows):
                self._spawn(self._close(window))
            self._outside.windows.clear()
            self._outside.effects.clear()

    async def settle(self, call: _Call, reply: Message, *, timeout: float) -> None:
        """Give ``reply`` the effects and outputs of its call, waiting ``timeout`` seconds at most for those that have
        begun. Raises :class:`~transports.errors.CallTimeout` if a printed page is not ready in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        until = loop.time() + min(_ANNOUNCED, timeout)
        while call.announced and (left := until - loop.time()) > 0 and not self._agent.lost.done():
            waiting: list[asyncio.Future[Any]] = [*call.announced, self._agent.lost]
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        earlier, self._outside.outputs = self._outside.outputs, []
        outputs: list[BinaryData] = []
        warnings: list[str] = []
        while call.outputs:
            output = call.outputs[0]
            if not await self._ended(output, deadline - loop.time()):
                if output.needed:
                    raise CallTimeout(f"{output.what} was not ready within {timeout:g} s")
                warnings.append(f"{output.what} was not finished in time; it comes with a later call")
                self._outside.outputs.append(call.outputs.pop(0))
                continue
            call.outputs.pop(0)
            outputs += self._result(output, warnings)
        for output in earlier:
            if output.task.done():
                found = self._result(output, warnings)
                warnings += [f"{output.what} began before this call" for _ in found]
                outputs += found
            else:
                self._wait_for_next(output)
        reply.outputs = (*reply.outputs, *outputs)
        reply.warnings = (*reply.warnings, *warnings)
        more = [Effect("more", call.id, {"count": call.more})] if call.more else []
        reply.effects = (*(Effect(kind, call.id, detail) for kind, detail in call.effects), *more)

    async def _ended(self, output: _Output, timeout: float) -> bool:
        lost = self._agent.lost
        await asyncio.wait((output.task, lost), timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED)
        return output.task.done()

    def _result(self, output: _Output, warnings: list[str]) -> list[BinaryData]:
        try:
            found = output.task.result()
        except TransportError as error:
            if output.needed:
                raise
            warnings.append(f"{output.what}: {error.message}")
            return []
        return [found] if found is not None else []

    def _wait_for_next(self, output: _Output) -> None:
        self._outside.outputs.append(output)
        while len(self._outside.outputs) > _WAITING:
            self._forget(self._outside.outputs.pop(0))

    def _forget(self, output: _Output) -> None:
        def ended(task: asyncio.Future[BinaryData | None]) -> None:
            if not task.cancelled() and not task.exception() and (found := task.result()):
                self._dropped(found)

        output.task.add_done_callback(ended)
        output.task.cancel()

    def _dropped(self, binary: BinaryData) -> None:
        if isinstance(binary.content, Handle):
            self._spawn(self._release(binary.content))

    # --- records ------------------------------------------------------------------------------------------------------

    def _running(self, call_id: str | None = None) -> _Call:
        """The call that the page named, else the one that began last."""
        if call_id is not None and call_id in self._calls:
            return self._calls[call_id]
        return next(reversed(self._calls.values()), self._outside)

    def _record(self, call: _Call, kind: str, detail: Detail) -> bool:
        """False if there were too many already."""
        if len(call.effects) >= _MOST:
            call.more += 1
            return False
        call.effects.append((kind, detail))
        if call is self._outside:
            self._announce(Message("effect", Effect(kind, None, dict(detail)).as_dict()))
        return True

    def _lost(self, kind: str, detail: Detail) -> None:
        """The call fails and has no result, so this is announced."""
        self._announce(Message("effect", Effect(kind, self._running().id, detail).as_dict()))

    def _output(
        self, call: _Call, work: Coroutine[Any, Any, BinaryData | None], what: str, *, needed: bool = False
    ) -> None:
        output = _Output(self._spawn(work), needed, what)
        if call is self._outside:
            self._wait_for_next(output)
        else:
            call.outputs.append(output)

    def _spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at where it matters, and never reported by asyncio

    # --- what is announced before it begins ---------------------------------------------------------------------------

    def _expect(self, call: _Call, frame: str, detail: Detail) -> None:
        if call is self._outside and frame != "window":
            return
        begun = asyncio.get_running_loop().create_future()
        announced = _Announced(call, frame, detail, begun)
        self._expected.append(announced)
        call.announced.add(begun)
        begun.add_done_callback(call.announced.discard)
        asyncio.get_running_loop().call_later(2 * _ANNOUNCED, self._begun, announced)

    def _begun(self, announced: _Announced) -> None:
        if announced in self._expected:
            self._expected.remove(announced)
        if not announced.begun.done():
            announced.begun.set_result(None)

    def _next(self, *frames: str) -> _Announced | None:
        return next((item for frame in frames for item in self._expected if item.frame == frame), None)

    def _navigates(self, event: dict[str, Any]) -> None:
        same = event["url"].partition("#")[0] == self._agent.page.url.partition("#")[0]
        if event["disposition"] == "currentTab" and event["url"][:4] in ("http", "blob", "data") and not same:
            self._expect(self._running(), event["frameId"], {})

    def _loaded(self, event: dict[str, Any]) -> None:
        frame = event["frameId"] if "frameId" in event else event["frame"]["id"]
        if announced := self._next(frame):
            asyncio.get_running_loop().call_later(_GRACE, self._begun, announced)

    # --- one kind each ------------------------------------------------------------------------------------------------

    def on_event(self, kind: str, payload: Any) -> None:
        """What the page's agent tells: ``print``, ``download``, ``filechooser`` and ``clipboard``."""
        call = self._running(payload.pop("call"))
        match kind:
            case "print":
                if self._record(call, kind, {"title": payload["title"][:_TEXT]}):
                    self._output(call, self._print(payload["id"]), "the printed page", needed=True)
            case "download":
                self._expect(call, "", {})
            case "filechooser":
                self._chooser(payload, call)
            case "clipboard":
                size, mime_type = payload["size"], payload["type"]
                handle = Handle(f"held:{payload['id']}", size)
                if self._record(call, kind, {"type": mime_type, "bytes": size}):
                    written = BinaryData(handle, mime_type or None)
                    self._output(call, _ready(written), "what the app wrote to the clipboard")
                else:
                    self._spawn(self._release(handle))

    def _dialog(self, dialog: Dialog) -> None:
        accept = self._accept or dialog.type in ("alert", "beforeunload")
        answer = "accepted" if accept else "dismissed"
        self._record(
            self._running(), "dialog", {"type": dialog.type, "message": dialog.message[:_TEXT], "answer": answer}
        )
        self._spawn(dialog.accept(dialog.default_value) if accept else dialog.dismiss())

    async def _print(self, picture: int) -> BinaryData:
        """One after another: the page shows one picture of itself at a time."""
        options = {"printBackground": True, "preferCSSPageSize": True, "transferMode": "ReturnAsStream"}
        async with self._printing:
            await self._agent.invoke("picture", picture, timeout=self._timeout)
            try:
                printed = await self._agent.send("Page.printToPDF", options, timeout=self._timeout)
            finally:
                with contextlib.suppress(TransportError):
                    await self._agent.invoke("printed", timeout=_STEP)
        return BinaryData(Handle(f"stream:{printed['stream']}"), "application/pdf")

    def _chooser(self, detail: Detail, call: _Call | None = None) -> None:
        self._record(call or self._running(), "filechooser", {**detail, "answer": "no files"})

    def _download(self, guid: str, url: str, name: str, frame: str) -> bool:
        """Whether the file is wanted."""
        announced = self._next(frame, "")
        call = announced.call if announced and announced.call.id in self._calls else self._running()
        detail: Detail = {"url": redact_url(url)[:_TEXT], "filename": name[:_TEXT]}
        if wanted := self._record(call, "download", detail):
            self._output(call, self._file(guid, name, detail), f"the app's download {name[:80]!r}")
        if announced:
            self._begun(announced)
        return wanted

    async def _file(self, guid: str, name: str, detail: Detail) -> BinaryData:
        size = await self._files.arrived(guid)
        detail["bytes"] = size
        return BinaryData(Handle(f"file:{guid}", size), None, None, name)

    async def save(self, handle: Handle, path: Path) -> None:
        """Move a file that the app downloaded to ``path``."""
        await self._files.take(handle.id.removeprefix("file:"), path)

    def forget(self, handle: Handle) -> None:
        """Remove a file that the app downloaded."""
        self._files.remove(handle.id.removeprefix("file:"))

    # --- windows ------------------------------------------------------------------------------------------------------

    def _opens(self, event: dict[str, Any]) -> None:
        detail: Detail = {"url": redact_url(event["url"])[:_TEXT]}
        call = self._running()
        if self._record(call, "popup", detail):
            self._expect(call, "window", detail)

    def _window(self, window: Page) -> None:
        announced = self._next("window")
        if announced is None:  # opened by a window, or by a frame in a process of its own
            self._opens({"url": window.url})
            announced = self._next("window")
        call = announced.call if announced else self._outside
        if call.id is not None and call.id not in self._calls:
            call = self._outside
        self._windows = [open_ for open_ in self._windows if not open_.is_closed()]
        if len(self._windows) >= _WINDOWS or announced is None:
            if announced:
                announced.detail["closed"] = "too many windows"
                self._begun(announced)
            self._spawn(self._close(window))
            return
        self._windows.append(window)
        call.windows.append(window)
        self._expected.remove(announced)
        self._spawn(self._look(call, window, announced))

    async def _look(self, call: _Call, window: Page, announced: _Announced) -> None:
        """What the window shows, if it is content; one that becomes a download closes without an address."""
        from playwright.async_api import Error

        try:
            if not window.url:
                with contextlib.suppress(Error):
                    await window.wait_for_event("close", timeout=1000 * _ANNOUNCED)
            elif window.url.startswith("blob:"):
                found = await self._agent.invoke("opened", window.url, timeout=_STEP)
                if found:
                    shown = BinaryData(Handle(f"held:{found['id']}", found["size"]), found["type"] or None)
                    self._output(call, _ready(shown), "what a window showed")
            elif window.url.startswith("http"):
                with contextlib.suppress(Error, TimeoutError):
                    async with asyncio.timeout(_ANNOUNCED):
                        if await window.evaluate("document.contentType") == "application/pdf":
                            shown = BinaryData(Download(window.url), "application/pdf")
                            self._output(call, _ready(shown), "what a window showed")
        finally:
            if not announced.begun.done():
                announced.begun.set_result(None)

    async def _close(self, window: Page) -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(_STEP):
                await window.close()


async def _ready(binary: BinaryData) -> BinaryData:
    return binary
