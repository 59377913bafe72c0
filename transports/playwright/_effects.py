"""Side effects of an app: dialogs, prints, downloads, windows, file choosers, the clipboard, permissions.

Each is answered at once, so that no call waits for a person, and recorded as an :class:`~transports.Effect`. Its
content, if it has any, becomes an output of the call that was running. An effect outside any call is announced as an
event, and its content comes with the next call. See ``docs/side-effects.md``.

:class:`EffectTracker` assigns effects and outputs to calls; :class:`Windows` handles windows; :class:`PageEffects`
listens to the page and connects the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from playwright.async_api import Error

from .._internal.tasks import in_thread
from ..errors import (
    ABPError,
    BrowserCrashed,
    CallTimeout,
    ContextLost,
    PageCrashed,
    TransportError,
    UsageError,
    first_line,
    format_seconds,
)
from ..protocol._plain_text import redact_url
from ..protocol._strict_json import JSONValue
from ..protocol.binary import BinaryData, Handle
from ..protocol.messages import Effect as SideEffect, Message
from ._agent import INLINE_BYTES, DevTools, PageAgent
from ._downloads import AppDownloads, CdpDownloads
from ._listeners import listen, listener
from ._received import Clipboard, Download, Effect, FileChooser, Held, Notice, Print, Unsent, checked, parse_json
from ._scripts import load_script
from ._source import Tab, close_quietly

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog, Frame, Page, Request

logger = logging.getLogger("transports.playwright")

#: Names of ``navigator.permissions.query`` (W3C Permissions). Without local-network-access, whose denial would keep an
#: app on this machine from loading at all.
_ASKED = (
    "camera",
    "captured-surface-control",
    "clipboard-read",
    "display-capture",
    "geolocation",
    "idle-detection",
    "keyboard-lock",
    "local-fonts",
    "microphone",
    "midi",
    "nfc",
    "notifications",
    "persistent-storage",
    "pointer-lock",
    "storage-access",
    "window-management",
)
#: Effects recorded for one call; the rest is only counted.
_MAX_RECORDED = 100
#: Warnings about the effects of one call; the rest is left out.
_MAX_WARNINGS = 20
#: Announced effects that one call waits for at a time (docs/security.md).
_MAX_EXPECTED = 100
#: Outputs that wait for the next call; beyond it the oldest is discarded.
_MAX_DEFERRED = 8
#: Seconds for an announced effect (a click on a download link, a window) to begin.
BEGIN_TIMEOUT = 2.0
#: Windows open at once; further ones are closed as soon as they open.
_MAX_OPEN = 8
#: Seconds for a window to show its content. Longer than a call waits, since the next call may take it.
_CAPTURE_TIMEOUT = 5.0
_MAX_TEXT = 500
#: Seconds by which the browser's event of a download may precede the page's announcement of the same download.
_BROWSER_LEAD = 0.05
#: Seconds between the end of a navigation and the start of the download that it turned into.
_NAVIGATION_GRACE = 0.1
_STEP_TIMEOUT = 2.0
#: Seconds between two looks at a window that shows nothing yet.
_LOOK_INTERVAL = 0.05
#: Seconds between the end of a navigation of a window and the start of the download that it turned into.
_WINDOW_GRACE = 0.5
#: First four characters of addresses that a browser loads, and does not hand to another program.
_LOADED = ("http", "blob", "data")
#: Seconds for the viewer of a PDF to load and to begin to save.
_SAVE_TIMEOUT = 10.0
#: Saves the PDF that Chromium's viewer shows, as its button does. Returns false until the viewer is ready.
_SAVE_PDF = """() => {
  const controller = document.querySelector("pdf-viewer")?.currentController;
  controller?.save?.("ORIGINAL");
  return Boolean(controller?.save);
}"""
#: Windows whose calls are remembered, for downloads that begin in them later.
_MAX_OWNERS = 100
#: Prefix of handles of content held by the page's own agent.
_HELD = "held:"
#: Seconds for the images of a printed page to load.
_SNAPSHOT_TIMEOUT = 10.0
#: Events of an embedded app per second, and events handled in one turn of the event loop.
_EVENTS_A_SECOND, _FEW = 1000, 50


def check_permissions(names: Collection[str]) -> frozenset[str]:
    """Return the names as a set. Raises :class:`~transports.errors.UsageError` for an unknown one."""
    if isinstance(names, str) or (unknown := sorted(set(names) - set(_ASKED))):
        wrong = names if isinstance(names, str) else ", ".join(unknown)
        raise UsageError(f"permissions= takes names of {', '.join(_ASKED)}; not {wrong!r}")
    return frozenset(names)


async def set_permissions(tab: Tab, agent: PageAgent, granted: Collection[str]) -> None:
    """Grant or deny every permission for the page's context, for all origins, so that the browser never prompts.

    Contexts of the caller or of an attached browser are left as they are, and so are browsers without CDP.
    """
    if tab.borrowed or tab.browser is None or tab.browser.attached or agent.channel.cdp is None:
        return
    browser = tab.browser.cdp
    context = (await agent.target())["browserContextId"]

    async def decide(permission: dict[str, object], setting: str) -> None:
        with contextlib.suppress(Error):  # unknown to an older browser, which never asks for it
            decided = {"permission": permission, "setting": setting, "browserContextId": context}
            await browser.send("Browser.setPermission", decided)

    permissions: list[dict[str, object]] = [{"name": name} for name in _ASKED]
    permissions.append({"name": "midi", "sysex": True})
    await asyncio.gather(*(decide(item, "granted" if item["name"] in granted else "denied") for item in permissions))


Detail: TypeAlias = dict[str, JSONValue]


@dataclass(slots=True, eq=False)
class _Output:
    """Pending content of a call; ``what`` names it in warnings.

    A call fails without a ``required`` output; other outputs may come with a later call. ``on_discard`` cancels work
    whose result is no longer wanted. ``is_late`` is true for content that began before the call.
    """

    task: asyncio.Future[BinaryData]
    what: str
    required: bool
    on_discard: Callable[[], None]
    is_late: bool = False


@dataclass(slots=True, eq=False)
class CallEffects:
    """Side effects of one call so far. ``id`` is ``None`` for effects outside any call.

    ``effects`` holds the first 100, ``overflow`` counts the rest. ``refused`` counts windows that were closed at once,
    ``dropped`` downloads that were too many.
    """

    id: str | None
    effects: list[tuple[str, Detail]] = field(default_factory=list)
    overflow: int = 0
    refused: int = 0
    dropped: int = 0
    warnings: list[str] = field(default_factory=list)
    outputs: list[_Output] = field(default_factory=list)
    expected: set[ExpectedEffect] = field(default_factory=set)
    windows: list[Window] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if nothing has happened and nothing is announced."""
        noted = self.effects or self.overflow or self.refused or self.dropped or self.warnings
        return not (noted or self.outputs or self.expected)

    def as_effects(self) -> tuple[SideEffect, ...]:
        """Return the effects for a result; those beyond the limit are summed up in one of the kind ``more``."""
        more = [SideEffect("more", self.id, {"count": self.overflow})] if self.overflow else []
        return (*(SideEffect(kind, self.id, detail) for kind, detail in self.effects), *more)


@dataclass(slots=True, eq=False)
class ExpectedEffect:
    """An effect that was announced and is about to begin.

    ``place`` identifies it: a download link (``""``), a window (``"window"``), the navigation of a frame (the frame's
    id), or the event ``number`` of an app's frame (``"event"``). It begins ``wait`` seconds later, and its call waits
    for it until ``until`` (loop time). ``begun`` is done once it has begun or is given up, at the latest by ``timer``.
    ``is_late`` is true if it began before the call.
    """

    call: CallEffects
    place: str
    detail: Detail
    begun: asyncio.Future[None]
    number: int
    wait: float
    until: float
    is_late: bool
    timer: asyncio.TimerHandle | None = None


class EffectTracker:
    """Tracker of the side effects of one page, by call.

    ``lost`` is done once the app is gone. ``emit`` is called with events, ``release`` with unwanted content.
    """

    def __init__(
        self,
        lost: asyncio.Future[TransportError],
        emit: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
    ) -> None:
        self.unattributed = CallEffects(None)
        self._lost = lost
        self._emit = emit
        self._release = release
        self._calls: dict[str, CallEffects] = {}
        self._expected: deque[ExpectedEffect] = deque()
        self._discarded = 0
        self._tasks: set[asyncio.Future[Any]] = set()

    async def aclose(self) -> None:
        """Cancel all background work; waits two seconds at most."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STEP_TIMEOUT)

    # --- calls --------------------------------------------------------------------------------------------------------

    def current_call(self, call_id: str | None = None) -> CallEffects:
        """Return the call with this id if it is under way, or the latest call, or :attr:`unattributed`."""
        if call_id is not None and call_id in self._calls:
            return self._calls[call_id]
        return next(reversed(self._calls.values()), self.unattributed)

    def call_of(self, call_id: str | None) -> CallEffects:
        """Return the call with this id if it is under way, or :attr:`unattributed`."""
        return self._calls.get(call_id or "", self.unattributed)

    def begin_call(self, call_id: str) -> CallEffects:
        """Track a call until :meth:`end_call`."""
        call = self._calls[call_id] = CallEffects(call_id)
        return call

    def end_call(self, call: CallEffects) -> None:
        """Stop tracking a call. Outputs that are not in its reply wait for the next call."""
        self._calls.pop(call.id or "", None)
        for output in call.outputs:
            self._defer(output)
        self.unattributed.effects.clear()
        self.unattributed.overflow = 0

    def has_some_for(self, call: CallEffects) -> bool:
        """Return whether :meth:`settle` has anything to add to the reply to a call, or to wait for."""
        waiting = self.unattributed
        return bool(not call.is_empty or waiting.outputs or waiting.warnings or self._discarded)

    async def settle(self, call: CallEffects, reply: Message, *, timeout: float) -> None:
        """Add the effects and outputs of its call to ``reply``.

        Waits up to ``timeout`` seconds for outputs that have begun. Raises :class:`~transports.errors.CallTimeout` if a
        printed page is not ready in time. A failed call has no result: its effects are announced as events, and its
        outputs come with the next call.
        """
        now = asyncio.get_running_loop().time
        replied = now()
        deadline = replied + timeout
        while call.expected and not self._lost.done():
            until = max(replied + BEGIN_TIMEOUT, *(effect.until for effect in call.expected))
            if (left := min(until, deadline) - now()) <= 0:
                break
            waiting: list[asyncio.Future[Any]] = [*(effect.begun for effect in call.expected), self._lost]
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if isinstance(reply.payload, dict) and reply.payload.get("success") is False:
            for effect in call.as_effects():
                self._emit(Message("effect", effect))
            return
        warnings = [*self.unattributed.warnings, *call.warnings]
        self.unattributed.warnings.clear()
        if call.refused:
            warnings.append(f"{call.refused} windows were too many and were closed at once")
        if call.dropped:
            warnings.append(f"{call.dropped} downloads were too many for one call and are lost; let the app make fewer")
        if waits := sum(effect.wait > 0 for effect in call.expected):
            warnings.append(f"{waits} downloads had not begun in time; they come with later calls, so allow more time")
        outputs: list[BinaryData] = []
        late: list[_Output] = []
        for output in call.outputs:
            if await self._finished(output, deadline - now()):
                if finished := self._result(output, warnings):
                    outputs += finished
                    if output.is_late:
                        warnings.append(f"{output.what} began before this call")
            elif output.required:
                raise CallTimeout(f"{output.what} was not ready within {format_seconds(timeout)}")
            else:
                warnings.append(f"{output.what} was not finished in time; it comes with a later call")
                late.append(output)
        call.outputs = late
        outputs += self._take_deferred(warnings)
        reply.outputs = (*reply.outputs, *outputs)
        reply.warnings = (*reply.warnings, *warnings)
        reply.effects = call.as_effects()

    async def _finished(self, output: _Output, timeout: float) -> bool:
        waiting: list[asyncio.Future[Any]] = [output.task]
        if not output.required:  # a download gives no event when its page is lost
            waiting.append(self._lost)
        await asyncio.wait(waiting, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED)
        return output.task.done()

    def _result(self, output: _Output, warnings: list[str]) -> list[BinaryData]:
        try:
            return [output.task.result()]
        except ABPError as error:
            if output.required:
                raise
            warnings.append(f"{output.what}: {error.message}")
            return []
        except Exception as error:
            if output.required:
                raise TransportError(f"{output.what}: {first_line(error)}") from error
            warnings.append(f"{output.what}: {first_line(error)}")
            return []

    def _take_deferred(self, warnings: list[str]) -> list[BinaryData]:
        """Return the finished outputs that began before this call, with a warning for each."""
        waited, self.unattributed.outputs = self.unattributed.outputs, []
        found: list[BinaryData] = []
        for output in waited:
            if not output.task.done():
                self.unattributed.outputs.append(output)
            elif content := self._result(output, warnings):
                warnings.append(f"{output.what} began before this call")
                found += content
        if self._discarded:
            warnings.append(f"{self._discarded} outputs that began before this call were too many and are lost")
            self._discarded = 0
        return found

    # --- records and outputs ------------------------------------------------------------------------------------------

    def record(self, call: CallEffects, kind: str, detail: Detail) -> bool:
        """Record an effect of the call. Returns ``False`` if the call has 100 already: then it is only counted."""
        if len(call.effects) >= _MAX_RECORDED:
            call.overflow += 1
            return False
        call.effects.append((kind, detail))
        if call is self.unattributed:
            self.announce(kind, None, dict(detail))
        return True

    def warn(self, call: CallEffects, text: str) -> None:
        """Add a warning to the result of the call, or of the next one; of a call, 20 at most."""
        if len(call.warnings) < _MAX_WARNINGS:
            call.warnings.append(text)

    def announce(self, kind: str, call_id: str | None, detail: Detail) -> None:
        """Emit an ``effect`` event for an effect that will not be in any result."""
        self._emit(Message("effect", SideEffect(kind, call_id, detail)))

    def add_output(
        self,
        call: CallEffects,
        work: Coroutine[Any, Any, BinaryData],
        what: str,
        *,
        required: bool = False,
        is_late: bool = False,
        on_discard: Callable[[], None] = lambda: None,
    ) -> None:
        """Add content to the call, ready once ``work`` is done. ``what`` names it in warnings."""
        output = _Output(self.spawn(work), what, required, on_discard, is_late)
        if call.id in self._calls:
            call.outputs.append(output)
        else:
            self._defer(output)

    def add_content(self, call: CallEffects, content: BinaryData, what: str, *, is_late: bool = False) -> None:
        """Add content to the call that needs no more work."""
        self.add_output(call, _ready(content), what, is_late=is_late)

    def drop(self, call: CallEffects) -> None:
        """Count a download that was too many."""
        if call is self.unattributed:
            self._discarded += 1
        else:
            call.dropped += 1

    def _defer(self, output: _Output) -> None:
        output.required = False
        self.unattributed.outputs.append(output)
        if len(self.unattributed.outputs) > _MAX_DEFERRED:
            self._discarded += 1
            self._discard(self.unattributed.outputs.pop(0))

    def _discard(self, output: _Output) -> None:
        if not output.task.done():
            output.task.cancel()
            output.on_discard()
        elif not output.task.cancelled() and not output.task.exception():
            content = output.task.result().content
            if isinstance(content, Handle):
                self.spawn(self._release(content))

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run work in the background; :meth:`aclose` cancels it. Its errors are never reported by asyncio."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()  # marked as retrieved: users of the outcome read it from the task
        if error is not None and not isinstance(error, (ABPError, Error)):  # pages go away, which is expected
            logger.error("a side effect of the app could not be handled", exc_info=error)

    # --- effects that are announced before they begin -----------------------------------------------------------------

    def expect(
        self,
        call: CallEffects,
        place: str,
        detail: Detail,
        number: int = 0,
        *,
        wait: float = 0.0,
        is_late: bool = False,
    ) -> ExpectedEffect | None:
        """Let the call's reply wait for this effect, which begins in ``wait`` seconds, two seconds longer at most.
        Ignored if the call waits for a hundred others."""
        if len(call.expected) >= _MAX_EXPECTED:
            return None
        loop = asyncio.get_running_loop()
        until = loop.time() + wait + BEGIN_TIMEOUT
        expected = ExpectedEffect(call, place, detail, loop.create_future(), number, wait, until, is_late)
        expected.timer = loop.call_later(wait + 2 * BEGIN_TIMEOUT, self.mark_begun, expected)
        self._expected.append(expected)
        call.expected.add(expected)
        return expected

    def mark_heard(self, number: int) -> None:
        """Stop waiting for the events of the app's frame up to ``number``."""
        for item in [item for item in self._expected if item.place == "event" and item.number <= number]:
            self.mark_begun(item)

    def take_expected(self, *places: str) -> ExpectedEffect | None:
        """Remove and return the first effect expected at the first of these places that has one."""
        found = next((item for place in places if (item := self.find_expected(place))), None)
        if found is not None:
            self._expected.remove(found)
        return found

    def find_expected(self, place: str) -> ExpectedEffect | None:
        """Return the first effect that is expected at this place, or ``None``."""
        return next((item for item in self._expected if item.place == place), None)

    def mark_begun(self, expected: ExpectedEffect) -> None:
        """Stop waiting for an expected effect that has begun or is given up."""
        if expected in self._expected:
            self._expected.remove(expected)
        expected.call.expected.discard(expected)
        if expected.timer is not None:
            expected.timer.cancel()
        if not expected.begun.done():
            expected.begun.set_result(None)


async def _ready(content: BinaryData) -> BinaryData:
    return content


@dataclass(slots=True, eq=False)
class Window:
    """A window of a call. ``frame`` is the id of its frame in CDP, once it is known. ``changed`` is set whenever it may
    show something else. ``navigations`` counts those that have begun, ``is_loading`` is true until the latest has
    ended. ``shown`` is the address whose content was looked at, ``saved`` the download of a PDF there."""

    page: Page
    call: CallEffects
    frame: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    navigations: int = 0
    is_loading: bool = False
    has_download: bool = False
    shown: str = ""
    saved: asyncio.Future[tuple[str, str]] | None = None


class Windows:
    """Windows opened by one page. They are closed at the end of their call; their content may become an output.

    The page announces each window (:meth:`on_window_open`) before the browser opens it. ``take_pdf(guid, name)``
    returns the file of a download once it has ended; it is ``None`` if files are not received.
    """

    def __init__(self, agent: PageAgent, tracker: EffectTracker) -> None:
        self._agent = agent
        self._tracker = tracker
        self._open_windows: list[Window] = []
        self._on_dialog: Callable[[Dialog], None] = lambda _: None
        self._owners: dict[str, CallEffects] = {}  # frame of a window → its call
        self.take_pdf: Callable[[str, str], Awaitable[BinaryData]] | None = None

    def watch(self, page: Page, on_dialog: Callable[[Dialog], None]) -> None:
        """Follow the windows that ``page`` opens, and their own windows; their dialogs go to ``on_dialog``.

        Other pages of the context are not touched.
        """
        self._on_dialog = on_dialog
        listen(page, "popup", self._on_popup)

    def on_window_open(self, event: dict[str, Any]) -> None:
        """Record a window from the event ``Page.windowOpen``: ``window.open``, or a link or form with a target."""
        detail: Detail = {"url": redact_url(event["url"])[:_MAX_TEXT]}
        call = self._tracker.current_call()
        if self._tracker.record(call, "popup", detail):
            self._tracker.expect(call, "window", detail)

    def on_target(self, frame: str) -> None:
        """Remember which call has opened the window with this frame."""
        self._owners[frame] = self._tracker.current_call()
        if len(self._owners) > _MAX_OWNERS:
            del self._owners[next(iter(self._owners))]

    def owner_of(self, frame: str) -> CallEffects | None:
        """Return the call that has opened the window with this frame; ``None`` for a frame of the page."""
        return self._owners.get(frame)

    def on_download(self, frame: str, guid: str, name: str) -> bool:
        """Note a download of a window. Returns true if it is that of a PDF that the window shows."""
        for window in self._open_windows:
            if window.frame == frame:
                if window.saved is not None and not window.saved.done():
                    window.saved.set_result((guid, name))
                    return True
                window.has_download = True
                self._on_shown(window)
        return False

    def expect_content(self, call: CallEffects) -> None:
        """Let the call, which has answered, wait for its windows that are blank or on their way to another address: an
        app may open a window at once and send it to its file later."""
        for window in call.windows:
            expected = self._tracker.expect(call, "content", {})
            if expected is not None:
                self._tracker.spawn(self._follow(window, expected))

    def loading(self, call: CallEffects) -> list[Window]:
        """Return the windows of the call that wait for an answer of a server."""
        return [window for window in call.windows if window.is_loading and not window.page.is_closed()]

    def close_windows_of(self, call: CallEffects) -> None:
        """Close the windows of a call that has ended, and those of no call. A window that waits for the answer of a
        server, which may be a file, stays until the next call ends."""
        left = self.loading(call)
        for window in (*call.windows, *self._tracker.unattributed.windows):
            if window not in left:
                self._tracker.spawn(close_quietly(window.page))
        call.windows.clear()
        self._tracker.unattributed.windows[:] = left

    def _on_popup(self, page: Page) -> None:
        self.watch(page, self._on_dialog)
        page.on("dialog", self._on_dialog)
        expected = self._tracker.take_expected("window")
        if expected is None:  # opened by another window
            self.on_window_open({"url": page.url})
            expected = self._tracker.take_expected("window")
        self._open_windows = [window for window in self._open_windows if not window.page.is_closed()]
        if expected is None or len(self._open_windows) >= _MAX_OPEN:
            (expected.call if expected else self._tracker.current_call()).refused += 1
            if expected is not None:
                expected.detail["closed"] = "too many windows"
                self._tracker.mark_begun(expected)
            self._tracker.spawn(close_quietly(page))
            return
        call = (
            expected.call
            if self._tracker.current_call(expected.call.id) is expected.call
            else self._tracker.unattributed
        )
        window = Window(page, call)
        if self._agent.channel.cdp is not None:
            self._tracker.spawn(self._watch_frame(window))
        self._open_windows.append(window)
        call.windows.append(window)
        listen(page, "request", lambda request: self._on_request(window, request, self._begin_loading))
        listen(page, "requestfailed", lambda request: self._on_request(window, request, self._end_loading))
        listen(page, "framenavigated", lambda frame: self._on_navigated(window, frame))
        listen(page, "close", lambda _: self._on_shown(window))
        self._tracker.spawn(self._follow(window, expected))

    def _on_request(self, window: Window, request: Request, react: Callable[[Window], None]) -> None:
        if _is_navigation(window.page, request):
            react(window)

    def _on_navigated(self, window: Window, frame: Frame) -> None:
        if frame == window.page.main_frame:
            self._on_shown(window)

    def _begin_loading(self, window: Window) -> None:
        window.navigations += 1
        window.is_loading = True
        window.has_download = False
        window.changed.set()

    def _end_loading(self, window: Window) -> None:
        """Note the end of a navigation that shows nothing. The download that it may have become is reported apart."""
        number = window.navigations

        def end() -> None:
            if window.navigations == number:
                self._on_shown(window)

        asyncio.get_running_loop().call_later(_WINDOW_GRACE, end)

    def _on_shown(self, window: Window) -> None:
        window.is_loading = False
        window.changed.set()

    async def _watch_frame(self, window: Window) -> None:
        """Find the frame of a window in CDP, and note its navigations."""
        session = await window.page.context.new_cdp_session(window.page)
        target = await session.send("Target.getTargetInfo")
        frame = str(target["targetInfo"]["targetId"])

        def on_navigation(event: dict[str, Any]) -> None:  # comes before the answer of a call that begins one
            if event["frameId"] == frame and event["url"][:4] in _LOADED:
                self._begin_loading(window)

        def on_stopped(event: dict[str, Any]) -> None:
            if event["frameId"] == frame:
                self._end_loading(window)

        listen(session, "Page.frameRequestedNavigation", on_navigation)
        listen(session, "Page.frameStoppedLoading", on_stopped)
        await session.send("Page.enable")
        window.frame = frame
        window.changed.set()

    async def _follow(self, window: Window, expected: ExpectedEffect) -> None:
        """Wait until a window shows something or begins a download, and add its content as an output."""
        try:
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_CAPTURE_TIMEOUT):
                    await self._arrival(window)
                    if window.page.url != window.shown:
                        window.shown = window.page.url
                        await self._capture(window)
        finally:
            self._tracker.mark_begun(expected)

    async def _arrival(self, window: Window) -> None:
        """Wait until a window has left the blank page that it began with, or has content, a download, or no page."""
        while not window.page.is_closed() and not window.has_download:
            window.changed.clear()
            if window.page.url and not await _is_blank(window.page) and not window.is_loading:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_INTERVAL):
                    await window.changed.wait()

    async def _capture(self, window: Window) -> None:
        """Add the content of a window as an output, if it shows a ``blob:`` URL or a PDF of the app's own origin."""
        url = window.page.url
        if url.startswith("blob:"):
            found = await self._agent.invoke("blobOfUrl", url, timeout=_STEP_TIMEOUT, returns=str)
            for held in parse_json(found, list[Held], "the content of a window")[:1]:
                content = BinaryData(Handle(f"held:{held.id}", held.size), held.type or None)
                self._tracker.add_content(window.call, content, "the content of a window")
        elif (
            urlsplit(url)[:2] == urlsplit(self._agent.page.url)[:2]  # the app's own origin
            and await window.page.evaluate("document.contentType") == "application/pdf"
        ):
            work = self._saved_pdf(window)
            self._tracker.add_output(window.call, work, f"the PDF of a window ({redact_url(url)[:_MAX_TEXT]})")

    async def _saved_pdf(self, window: Window) -> BinaryData:
        """Let the browser's viewer save the PDF that it shows, as its button does: the browser takes it from its cache.

        It is not requested again here. The answer to a form, or to a link that works once, cannot be. Raises
        :class:`~transports.errors.TransportError`.
        """
        if self.take_pdf is not None:
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_SAVE_TIMEOUT):
                    while window.frame is None:
                        await asyncio.sleep(_LOOK_INTERVAL)
                    window.saved = asyncio.get_running_loop().create_future()
                    while not await _press_save(window.page):
                        await asyncio.sleep(_LOOK_INTERVAL)
                    guid, name = await window.saved
                    return await self.take_pdf(guid, name)
        raise TransportError("the browser did not hand it over; let the app download or answer it")


def _is_navigation(page: Page, request: Request) -> bool:
    """Return whether a request is that of a new document of the window itself."""
    try:
        return request.is_navigation_request() and request.frame == page.main_frame
    except Error:  # the window is too new to have frames
        return True


async def _is_blank(page: Page) -> bool:
    """Return whether a window is at the blank page and has nothing written into it. The browser is asked in any case:
    its events of a navigation that the app has begun come before its answer."""
    try:
        has_content = await page.evaluate("document.title !== '' || Boolean(document.body?.hasChildNodes())")
    except Error:  # it is leaving
        return True
    return page.url == "about:blank" and not has_content


async def _press_save(page: Page) -> bool:
    """Save the PDF that a window shows. Returns ``False`` while the viewer has not loaded."""
    for frame in page.frames:
        if frame.url.startswith("chrome-extension:") and await frame.evaluate(_SAVE_PDF):
            return True
    return False


#: Answer to ``confirm`` and ``prompt``.
Dialogs: TypeAlias = Literal["dismiss", "accept"]


class PageEffects:
    """The side effects of one page and its windows: listeners, answers and outputs.

    ``emit`` is called with events, ``release`` with unwanted content; ``print_page`` makes a PDF of the page in its
    current state. ``limits`` are the bytes of the largest file that the app may download, and of all its files that are
    not taken yet. In a page that belongs to the caller, dialogs, windows and file choosers are left to the caller.
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
        self._unannounced_at = 0.0  # loop time of the latest download that began without an announcement
        self._heard = 0  # events of the app's frame
        self._printing = asyncio.Lock()
        agent.lost.add_done_callback(self._on_lost)

    async def prepare(self, downloads: object) -> None:
        """Start watching the page. Called before the app's first script.

        The app's own files are received only over :class:`CdpDownloads`, since their folder can be set.
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
            self._app_downloads.on_window = self._windows.on_target
            self._windows.take_pdf = self._downloaded_pdf
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

        With ``shared`` the frame has no process of its own: then ``cdp`` is a session with the page, which is watched
        already, and ``context`` selects the frame's context (parameters of CDP ``Runtime.evaluate``).
        """
        if not shared:
            self._watch(cdp)
            await cdp.send("Page.enable")
            await _cancel_file_choosers(cdp)
        parts = map(load_script, ("natives.js", "codec.js", "effects.js"))
        arguments = ", ".join((json.dumps({"inline": INLINE_BYTES}), *parts))
        expression = f"({load_script('embedded.js')})({arguments})"
        made = await cdp.send("Runtime.evaluate", {"expression": expression, **context})
        if "objectId" in made["result"]:
            self._tracker.spawn(self._hear(cdp, made["result"]["objectId"]))

    async def _hear(self, cdp: CDPSession, object_id: str) -> None:
        """Handle the events of a frame until it is gone or returns anything but a list of events."""
        asking = 'function () { "use strict"; return this.next(); }'
        command = {"objectId": object_id, "functionDeclaration": asking, "awaitPromise": True, "returnByValue": True}
        while True:
            answer = await cdp.send("Runtime.callFunctionOn", command)
            texts = checked(answer["result"].get("value"), list[str], "the events of a frame")
            for start in range(0, len(texts), _FEW):
                few = texts[start : start + _FEW]
                for text in few:
                    self._agent.deliver(text, to=self.on_event)
                self._heard += len(few)
                self._tracker.mark_heard(self._heard)
                await asyncio.sleep(len(few) / _EVENTS_A_SECOND)

    def on_emitted(self, number: int) -> None:
        """Let the call under way, whose reply follows, wait for the event ``number`` of the app's frame."""
        if number > self._heard and (call := self._tracker.current_call()).id is not None:
            self._tracker.expect(call, "event", {}, number)

    @property
    def download_folder(self) -> Path | None:
        """The folder of the app's downloads, once it is prepared."""
        return None if self._app_downloads is None else self._app_downloads.folder

    async def aclose(self) -> None:
        """Cancel background work and remove downloaded files."""
        await self._tracker.aclose()
        if self._app_downloads is not None:
            await self._app_downloads.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    def begin_call(self, call_id: str) -> CallEffects:
        """Track a call until :meth:`end_call`."""
        return self._tracker.begin_call(call_id)

    @property
    def current_call(self) -> str | None:
        """Id of the latest call under way, or ``None``."""
        return self._tracker.current_call().id

    def add_file(self, content: BinaryData, what: str) -> None:
        """Add a file that the app hands out to the call under way, or to the next one."""
        self._tracker.add_content(self._tracker.current_call(), content, what)

    def end_call(self, call: CallEffects) -> None:
        """Stop tracking a call, and close its windows."""
        if call.windows or self._tracker.unattributed.windows:
            self._windows.close_windows_of(call)
        self._tracker.end_call(call)

    def has_some_for(self, call: CallEffects) -> bool:
        """Return whether a reply to the call has side effects to be completed with (:meth:`settle`)."""
        return self._tracker.has_some_for(call)

    async def settle(self, call: CallEffects, reply: Message, *, timeout: float) -> None:
        """Complete a reply with its side effects; see :meth:`EffectTracker.settle
        <transports.playwright._effects.EffectTracker.settle>`.
        """
        self._windows.expect_content(call)
        await self._tracker.settle(call, reply, timeout=timeout)
        for window in self._windows.loading(call):
            address = redact_url(window.page.url)[:_MAX_TEXT]
            warning = f"a window at {address} waited for its server; a file that it brings comes with a later call"
            reply.warnings = (*reply.warnings, warning)

    def _on_lost(self, lost: asyncio.Future[TransportError]) -> None:
        """Announce the loss as an event: the call under way fails, so there is no result for the effect."""
        error = lost.result()
        kind = "navigation" if isinstance(error, ContextLost) else "crash"
        if isinstance(error, ContextLost | PageCrashed | BrowserCrashed):
            self._tracker.announce(kind, self._tracker.current_call().id, {})

    # --- navigations that may turn into downloads ---------------------------------------------------------------------

    def _on_navigation(self, event: dict[str, Any]) -> None:
        call = self._tracker.current_call()
        same = event["url"].partition("#")[0] == self._agent.page.url.partition("#")[0]
        download = event["disposition"] == "currentTab" and event["url"][:4] in _LOADED
        if download and not same and call.id is not None:
            self._tracker.expect(call, event["frameId"], {})

    def _on_loaded(self, frame: str) -> None:
        if announced := self._tracker.find_expected(frame):
            asyncio.get_running_loop().call_later(_NAVIGATION_GRACE, self._tracker.mark_begun, announced)

    # --- the kinds of effects -----------------------------------------------------------------------------------------

    def on_event(self, kind: str, payload: Any, *, holder: str = _HELD) -> None:
        """Handle an event of an agent: ``print``, ``download``, ``filechooser``, ``clipboard``, ``share``,
        ``notice`` or ``unsent``.

        Handles of its content begin with ``holder``. Effects of a frame, which has a prefix of its own, are assigned
        only to calls of that frame.
        """
        if not isinstance(payload, Effect):
            return
        call = self._tracker.current_call(payload.call) if holder == _HELD else self._tracker.call_of(payload.call)
        is_late = payload.call not in (None, call.id)
        match payload:
            case Print():
                if not payload.kept:
                    self._tracker.warn(
                        call, "the page could not be copied at its print(): its PDF may show a later state"
                    )
                if self._tracker.record(call, kind, {"title": payload.title[:_MAX_TEXT]}):
                    work = self._print(payload.id)
                    self._tracker.add_output(call, work, "the printed page", required=not is_late, is_late=is_late)
            case FileChooser():
                kinds = {"multiple": payload.multiple, "directory": payload.directory, "picker": payload.picker}
                if payload.picker is not None:
                    picker = payload.picker[:_MAX_TEXT]
                    self._tracker.warn(call, f"{picker}() of the app was cancelled: nobody is there to choose a file")
                self._on_file_chooser({name: value for name, value in kinds.items() if value is not None}, call)
            case Clipboard(size=size, id=held):
                content = payload.base64 if held is None else Handle(f"{holder}{held}", size)
                recorded = self._tracker.record(call, kind, {"type": payload.type[:_MAX_TEXT], "bytes": size})
                if recorded and content is not None:
                    written = BinaryData(content, payload.type or None, None, payload.name or None)
                    what = "the clipboard content of the app" if kind == "clipboard" else "what the app shared"
                    self._tracker.add_content(call, written, what, is_late=is_late)
                elif isinstance(content, Handle):
                    self._tracker.spawn(self._release(content))
            case Notice(title=title, body=body):
                self._tracker.record(call, "notification", {"title": title[:_MAX_TEXT], "body": body[:_MAX_TEXT]})
            case Unsent():
                self._tracker.warn(call, f"an event of the app could not be sent: {payload.reason[:_MAX_TEXT]}")
            case Download(dropped=True):
                self._tracker.drop(call)
            case Download(wait=wait):
                is_new = asyncio.get_running_loop().time() - self._unannounced_at > _BROWSER_LEAD
                if call.id is not None and (wait or is_new):
                    self._tracker.expect(call, "", {}, wait=wait / 1000, is_late=is_late)

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
        """Return the PDF of a ``print()``.

        ``snapshot`` is the id of the page's copy at that moment, or ``None`` for the current page. Prints run one after
        another: the page can show only one snapshot at a time.
        """
        async with self._printing:
            if snapshot is None:
                return await self._print_page()
            await self._agent.invoke("showSnapshot", snapshot, timeout=_SNAPSHOT_TIMEOUT)
            try:
                return await self._print_page()
            except BaseException:  # the page restores itself only after a print
                with contextlib.suppress(TransportError):
                    await self._agent.invoke("restorePage", timeout=_STEP_TIMEOUT)
                raise

    def _on_file_chooser(self, detail: Detail, call: CallEffects | None = None) -> None:
        self._tracker.record(call or self._tracker.current_call(), "filechooser", {**detail, "answer": "no files"})

    def _on_download(self, guid: str, url: str, name: str, frame: str) -> bool:
        """Record a download of the app; return whether the file is wanted."""
        if self._windows.on_download(frame, guid, name):
            return True
        owner = self._windows.owner_of(frame)
        announced = None if owner else self._tracker.take_expected(frame, "")
        begun_by = announced.call if announced else owner
        call = self._tracker.current_call(begun_by.id if begun_by else None)
        is_late = (announced is not None and announced.is_late) or begun_by not in (None, call)
        detail: Detail = {"url": redact_url(url)[:_MAX_TEXT], "filename": name[:_MAX_TEXT]}
        if wanted := self._tracker.record(call, "download", detail):
            work, what = self._downloaded(guid, name, detail), f"the app's download {name[:80]!r}"
            discard = partial(self._cancel_download, guid)
            self._tracker.add_output(call, work, what, is_late=is_late, on_discard=discard)
        else:
            self._tracker.drop(call)
        if announced:
            self._tracker.mark_begun(announced)
        else:
            self._unannounced_at = asyncio.get_running_loop().time()
        return wanted

    async def _downloaded(self, guid: str, name: str, detail: Detail | None = None) -> BinaryData:
        assert self._app_downloads is not None
        size = await self._app_downloads.wait(guid)
        if detail is not None:
            detail["bytes"] = size
        return BinaryData(Handle(f"file:{guid}", size), None, None, name)

    async def _downloaded_pdf(self, guid: str, name: str) -> BinaryData:
        """Return a PDF that the viewer saved. It requests a PDF that must not be kept again, and its server may answer
        anything then."""
        content = await self._downloaded(guid, name)
        assert self._app_downloads is not None
        if not await in_thread(_is_pdf, self._app_downloads.folder / guid):
            self._app_downloads.remove(guid)
            raise TransportError("its server answered something else to a second request; let the app download it")
        return replace(content, mime_type="application/pdf")

    def _cancel_download(self, guid: str) -> None:
        if self._app_downloads is not None:
            self._app_downloads.cancel(guid)

    async def save(self, handle: Handle, path: Path) -> None:
        """Move a file that the app downloaded to ``path``. Raises :class:`~transports.errors.TransportError`."""
        if self._app_downloads is None:
            raise TransportError("this download belongs to a page that is gone")
        await self._app_downloads.move_to(handle.id.removeprefix("file:"), path)

    def remove_download(self, handle: Handle) -> None:
        """Delete a file that the app downloaded and that was not fetched."""
        if self._app_downloads is not None:
            self._app_downloads.remove(handle.id.removeprefix("file:"))


def _is_pdf(path: Path) -> bool:
    with path.open("rb") as file:
        return b"%PDF-" in file.read(1024)


async def _cancel_file_choosers(cdp: DevTools) -> None:
    """Let the browser close every file chooser at once, as if a user pressed Cancel."""
    await cdp.send("Page.setInterceptFileChooserDialog", {"enabled": True, "cancel": True})
