"""The effects and outputs of a page, by call (:class:`EffectTracker`), and its windows (:class:`Windows`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from playwright.async_api import Error

from .._internal.recent import Recent
from ..errors import ABPError, CallTimeout, TransportError, first_line, format_seconds
from ..protocol._plain_text import redact_url
from ..protocol._strict_json import JSONValue
from ..protocol.binary import BinaryData, Handle
from ..protocol.messages import Effect as SideEffect, Message
from ._agent import PageAgent
from ._process import listen
from ._received import HELD, Held, parse_json
from ._source import close_quietly

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request

logger = logging.getLogger("transports.playwright")

#: Characters of a text of the app in the record of an effect.
MAX_TEXT = 500
#: Seconds between two looks at a window that shows nothing yet.
_LOOK_INTERVAL = 0.05
#: Saves the PDF that Chromium's viewer shows, as its button does. Returns false until the viewer is ready.
_SAVE_PDF = """() => {
  const controller = document.querySelector("pdf-viewer")?.currentController;
  controller?.save?.("ORIGINAL");
  return Boolean(controller?.save);
}"""
#: Warning of a call whose work goes on after its answer.
UNFINISHED = "the app answered while it still loaded or made content; a file of it comes with a later call"
#: Seconds for an announced effect to begin, such as content in a blank window.
BEGIN_TIMEOUT = 2.0
#: The same for what a server or a busy browser may delay: a download, a window or frame that loads.
LOAD_TIMEOUT = 5.0

Detail: TypeAlias = dict[str, JSONValue]


@dataclass(slots=True, eq=False)
class Window:
    """A window of the app. ``frame`` is its id in CDP, once that is known. ``changed`` is set whenever the window may
    show something else. ``shown`` is the address whose content was looked at, ``saved`` the download of a PDF there,
    ``saving`` the output with the PDF."""

    page: Page
    call: CallEffects
    frame: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    navigations: int = 0
    is_loading: bool = False
    has_download: bool = False
    shown: str = ""
    saved: asyncio.Future[tuple[str, str]] | None = None
    capture_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    saving: asyncio.Future[BinaryData] | None = None

    def begin_loading(self) -> None:
        self.navigations += 1
        self.is_loading = True
        self.has_download = False
        self.changed.set()

    def end_loading(self) -> None:
        """Show the window in half a second, unless another navigation has begun by then."""
        ended_navigation = self.navigations

        def end() -> None:
            if self.navigations == ended_navigation:
                self.show()

        delay = 0.5
        asyncio.get_running_loop().call_later(delay, end)

    def show(self) -> None:
        self.is_loading = False
        self.changed.set()

    def on_request(self, request: Request) -> None:
        if self._is_navigation(request):
            self.begin_loading()

    def on_request_failed(self, request: Request) -> None:
        if self._is_navigation(request):
            self.end_loading()

    def on_navigated(self, frame: Frame) -> None:
        if frame == self.page.main_frame:
            self.show()

    @property
    def is_unfinished(self) -> bool:
        """True if the window may still show a file: it waits for its server, or for a busy browser."""
        if self.page.is_closed():
            return False
        return self.is_loading or self.page.url not in ("", "about:blank", self.shown)

    @property
    def is_saving(self) -> bool:
        return self.saving is not None and not self.saving.done()

    @property
    def is_written(self) -> bool:
        """True if the window shows what the app wrote into it."""
        return self.shown == "about:blank" and self.navigations == 0 and not self.page.is_closed()

    def _is_navigation(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self.page.main_frame
        except Error:  # the window is too new to have frames
            return True

    async def is_blank(self) -> bool:
        """Return whether the window shows nothing. This always asks the browser, even if the address is enough to know:
        events of a navigation that the app has begun come before the answer."""
        try:
            has_content = await self.page.evaluate("document.title !== '' || Boolean(document.body?.hasChildNodes())")
        except Error:  # it is leaving
            return True
        return self.page.url == "about:blank" and not has_content

    async def press_save(self) -> bool:
        """Press the button of the PDF viewer that saves the PDF. Return whether the viewer was ready."""
        for frame in self.page.frames:
            if frame.url.startswith("chrome-extension:") and await frame.evaluate(_SAVE_PDF):
                return True
        return False


@dataclass(slots=True, eq=False)
class _Output:
    """Content for a call, which fails without it if ``required``. ``is_late`` is true if it began before the call."""

    task: asyncio.Future[BinaryData]
    what: str
    required: bool
    on_discard: Callable[[], None]
    is_late: bool = False


@dataclass(slots=True, eq=False)
class CallEffects:
    """Effects of a call or, if ``id`` is ``None``, outside any call: the first 100; ``overflow`` counts the rest.
    ``refused`` counts windows and ``dropped`` downloads that were too many, ``given_up`` downloads that never began."""

    id: str | None
    effects: list[tuple[str, Detail]] = field(default_factory=list)
    overflow: int = 0
    refused: int = 0
    dropped: int = 0
    given_up: int = 0
    warnings: list[str] = field(default_factory=list)
    outputs: list[_Output] = field(default_factory=list)
    expected: set[ExpectedEffect] = field(default_factory=set)
    windows: list[Window] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        counts = self.overflow, self.refused, self.dropped, self.given_up
        return not any((*counts, self.effects, self.warnings, self.outputs, self.expected))

    def as_effects(self) -> tuple[SideEffect, ...]:
        """Return the effects. The last, of the kind ``more``, counts the effects beyond the limit."""
        effects = [SideEffect(kind, self.id, detail) for kind, detail in self.effects]
        if self.overflow:
            effects.append(SideEffect("more", self.id, {"count": self.overflow}))
        return tuple(effects)


@dataclass(slots=True, eq=False)
class ExpectedEffect:
    """An effect that is announced. ``place`` identifies it: a download link (``""``), a window (``"window"``), the
    navigation of a frame (the frame's id), or the event ``number`` of an app's frame (``"event"``). The effect begins
    ``wait`` seconds later, and its call waits for it until ``until`` (loop time). ``begun`` is done once it has begun
    or is given up, at the latest by ``timer``. ``is_late`` is true if it began before the call. If it never begins and
    ``is_counted`` is true, a warning counts it."""

    call: CallEffects
    place: str
    detail: Detail
    begun: asyncio.Future[None]
    number: int
    wait: float
    until: float
    is_late: bool
    is_counted: bool
    timer: asyncio.TimerHandle = field(init=False)

    @property
    def is_navigation(self) -> bool:
        return self.place not in ("", "window", "content", "event")

    @property
    def is_window_to_load(self) -> bool:
        url = str(self.detail.get("url"))
        # An app may open a blank window to write into it.
        return self.place == "window" and (loads_in_browser(url) or url in ("", "about:blank"))


class EffectTracker:
    """Effects of a page by call, and their outputs. ``lost`` is done once the app is gone."""

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
        lost = len(self.unattributed.outputs) + self._discarded
        if lost:
            logger.warning(
                "files that the app made after its last call are lost: %d; have its handler await them", lost
            )

        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)

    # --- calls --------------------------------------------------------------------------------------------------------

    def current_call(self, call_id: str | None = None) -> CallEffects:
        """Return the call with this id if it is under way, else the latest call, else :attr:`unattributed`."""
        if call_id is not None and call_id in self._calls:
            return self._calls[call_id]
        return next(reversed(self._calls.values()), self.unattributed)

    def call_of(self, call_id: str | None) -> CallEffects:
        return self._calls.get(call_id or "", self.unattributed)

    def begin_call(self, call_id: str) -> CallEffects:
        call = self._calls[call_id] = CallEffects(call_id)
        return call

    def end_call(self, call: CallEffects) -> None:
        """Leave the outputs that are not in the call's reply to the next call."""
        self._calls.pop(call.id or "", None)
        for output in call.outputs:
            self._defer_output(output)
        self.unattributed.effects.clear()
        self.unattributed.overflow = 0

    def has_effects_for(self, call: CallEffects) -> bool:
        """Return whether :meth:`add_to_reply` has anything to add to the reply, or to wait for."""
        return bool(not call.is_empty or self.unattributed.outputs or self.unattributed.warnings or self._discarded)

    async def add_to_reply(self, call: CallEffects, reply: Message, *, timeout: float) -> None:
        """Add the effects and outputs of its call to ``reply``.

        Waits up to ``timeout`` seconds for outputs that have begun. Raises :class:`~transports.errors.CallTimeout` if a
        printed page is not ready in time. A failed call has no result: its effects are announced as events, and its
        outputs come with the next call."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        await self._wait_for_expected(call, deadline)
        if isinstance(reply.payload, dict) and reply.payload.get("success") is False:
            for effect in call.as_effects():
                self._emit(Message("effect", effect))
            return

        warnings = self._take_warnings(call)
        contents: list[BinaryData] = []
        unfinished: list[_Output] = []
        for output in call.outputs:
            if await self._is_finished(output, deadline - now()):
                contents += self._take_contents(output, warnings, is_late=output.is_late)
            elif output.required:
                raise CallTimeout(f"{output.what} was not ready within {format_seconds(timeout)}")
            elif self._lost.done():
                warnings.append(f"{output.what} is lost: {self._lost.result().message}")
            else:
                warnings.append(f"{output.what} was not finished in time; it comes with a later call")
                unfinished.append(output)
        call.outputs = unfinished
        contents += self._take_deferred(warnings)

        reply.outputs = (*reply.outputs, *contents)
        reply.warnings = (*reply.warnings, *warnings)
        reply.effects = call.as_effects()

    async def _wait_for_expected(self, call: CallEffects, deadline: float) -> None:
        """Wait until the announced effects of a call have begun, or have had their time."""
        now = asyncio.get_running_loop().time
        replied_at = now()
        while call.expected and not self._lost.done():
            # Further effects may be announced during the wait.
            until = max(replied_at + BEGIN_TIMEOUT, *(effect.until for effect in call.expected))
            seconds_left = min(until, deadline) - now()
            if seconds_left <= 0:
                return

            beginnings: list[asyncio.Future[Any]] = [effect.begun for effect in call.expected]
            await asyncio.wait((*beginnings, self._lost), timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED)

    def _take_warnings(self, call: CallEffects) -> list[str]:
        """Return the warnings for the reply of a call, with those on effects that did not begin."""
        warnings = [*self.unattributed.warnings, *call.warnings]
        self.unattributed.warnings.clear()

        unopened = [effect for effect in self._expected if effect.call is call and effect.is_window_to_load]
        postponed = [effect for effect in call.expected if effect.wait > 0]
        unbegun = [effect for effect in call.expected if effect.is_counted and not effect.wait]
        counts = {
            "windows were too many and were closed at once": call.refused,
            "downloads were too many for one call and are lost; have the app make fewer": call.dropped,
            "windows did not open in time: the browser refuses them, or their server is slow; then a file that one "
            "shows comes with a later call": len(unopened),
            "downloads had not begun in time; they come with later calls, so allow more time": len(postponed),
            "downloads did not begin: the browser refuses them (in a sandbox, for example), or their server is slow; "
            "then they come with a later call": call.given_up + len(unbegun),
        }
        warnings += [f"{count} {text}" for text, count in counts.items() if count]

        is_loading = not self._lost.done() and any(effect.is_navigation for effect in call.expected)
        if is_loading and UNFINISHED not in warnings:
            warnings.append(UNFINISHED)
        return warnings

    async def _is_finished(self, output: _Output, timeout: float) -> bool:
        futures: list[asyncio.Future[Any]] = [output.task]
        # When the page is lost, a download gives no event. Only a required output is waited for even then.
        if not output.required:
            futures.append(self._lost)
        await asyncio.wait(futures, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED)
        return output.task.done()

    def _take_contents(self, output: _Output, warnings: list[str], *, is_late: bool) -> list[BinaryData]:
        """Return a list with the content of an output. If the output has failed, raise its error if it is required,
        otherwise add a warning and return an empty list."""
        try:
            content = output.task.result()
        except Exception as error:
            reason = error.message if isinstance(error, ABPError) else first_line(error)
            if not output.required:
                warnings.append(f"{output.what}: {reason}")
                return []
            if isinstance(error, ABPError):
                raise
            raise TransportError(f"{output.what}: {reason}") from error

        if is_late:
            warnings.append(f"{output.what} began before this call")
        return [content]

    def _take_deferred(self, warnings: list[str]) -> list[BinaryData]:
        """Return the finished contents of earlier calls. The others wait for a later call."""
        outputs = self.unattributed.outputs
        self.unattributed.outputs = []
        contents: list[BinaryData] = []
        for output in outputs:
            if output.task.done():
                contents += self._take_contents(output, warnings, is_late=True)
            else:
                self.unattributed.outputs.append(output)

        if self._discarded:
            warnings.append(f"{self._discarded} outputs that began before this call were too many and are lost")
            self._discarded = 0
        return contents

    # --- records and outputs ------------------------------------------------------------------------------------------

    def record(self, call: CallEffects, kind: str, detail: Detail) -> bool:
        """Add an effect to a call. Return ``False`` if the call has too many: then the effect is only counted."""
        max_effects = 100
        if len(call.effects) >= max_effects:
            call.overflow += 1
            return False
        call.effects.append((kind, detail))
        if call is self.unattributed:
            self.announce(kind, None, dict(detail))
        return True

    def warn(self, call: CallEffects, text: str) -> None:
        """Add a warning to a call, unless it has the same one already, or too many."""
        max_warnings = 20
        if text not in call.warnings and len(call.warnings) < max_warnings:
            call.warnings.append(text)

    def announce(self, kind: str, call_id: str | None, detail: Detail) -> None:
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
    ) -> asyncio.Future[BinaryData]:
        """Run ``work``, which makes content for the reply of a call, or for the next call if this one has ended."""
        output = _Output(self.spawn(work), what, required, on_discard, is_late)
        if call.id in self._calls:
            call.outputs.append(output)
        else:
            self._defer_output(output)
        return output.task

    def add_content(self, call: CallEffects, content: BinaryData, what: str, *, is_late: bool = False) -> None:
        self.add_output(call, _ready(content), what, is_late=is_late)

    def count_dropped(self, call: CallEffects) -> None:
        if call is self.unattributed:
            self._discarded += 1
        else:
            call.dropped += 1

    def _defer_output(self, output: _Output) -> None:
        """Keep an output for the next call. If there are too many, the oldest is discarded."""
        max_deferred = 8
        output.required = False
        outputs = self.unattributed.outputs
        outputs.append(output)
        if len(outputs) > max_deferred:
            self._discarded += 1
            self._discard_output(outputs.pop(0))

    def _discard_output(self, output: _Output) -> None:
        if not output.task.done():
            output.task.cancel()
            output.on_discard()
        elif not output.task.cancelled() and not output.task.exception():
            content = output.task.result().content
            if isinstance(content, Handle):
                self.spawn(self._release(content))

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run work in a task that :meth:`aclose` cancels. asyncio never reports its errors."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return

        # Read the error even if it is of no interest: asyncio logs an error that nobody has read.
        error = task.exception()
        # Playwright's errors are expected, as pages go away.
        if error is not None and not isinstance(error, (ABPError, Error)):
            logger.error("a side effect of the app could not be handled", exc_info=error)

    # --- effects that are announced before they begin -----------------------------------------------------------------

    def expect(
        self,
        call: CallEffects,
        place: str,
        detail: Detail,
        number: int = 0,
        *,
        timeout: float = BEGIN_TIMEOUT,
        wait: float = 0.0,
        is_late: bool = False,
        is_counted: bool = False,
    ) -> ExpectedEffect | None:
        """Expect an effect in ``wait`` seconds; the call's reply waits for it ``timeout`` seconds longer at most.

        Returns ``None`` if the call waits for a hundred others (docs/security.md)."""
        if len(call.expected) >= 100:
            return None

        loop = asyncio.get_running_loop()
        until = loop.time() + wait + timeout
        effect = ExpectedEffect(call, place, detail, loop.create_future(), number, wait, until, is_late, is_counted)
        # This is later than ``until``, because a reply waits for two seconds from its arrival.
        effect.timer = loop.call_later(wait + timeout + BEGIN_TIMEOUT, self._stop_expecting, effect)
        self._expected.append(effect)
        call.expected.add(effect)
        return effect

    def expect_navigation(self, call: CallEffects, frame: str, url: str) -> None:
        """Expect a navigation, which may become a download. Only the latest navigation of a frame counts."""
        earlier = self.find_expected(frame)
        if earlier is not None:
            self.mark_begun(earlier)
        self.expect(call, frame, {"url": url}, timeout=LOAD_TIMEOUT)

    def mark_received(self, number: int) -> None:
        """Mark the expected events of an app's frame as begun, up to ``number``."""
        for effect in tuple(self._expected):
            if effect.place == "event" and effect.number <= number:
                self.mark_begun(effect)

    def take_expected(self, *places: str, url: str | None = None) -> ExpectedEffect | None:
        """Return an effect as :meth:`find_expected`. It is then no longer expected."""
        effect = self.find_expected(*places, url=url)
        if effect is not None:
            self._expected.remove(effect)
        return effect

    def find_expected(self, *places: str, url: str | None = None) -> ExpectedEffect | None:
        """Return an expected effect at one of ``places``: preferably one announced with ``url``, which a redirect may
        change, then one at an earlier place, then one of a call that is under way."""
        matching = [expected for expected in self._expected if expected.place in places]

        def rank(expected: ExpectedEffect) -> tuple[bool, int, bool]:
            has_other_url = expected.detail.get("url") != url
            return has_other_url, places.index(expected.place), expected.call.id not in self._calls

        return min(matching, key=rank, default=None)

    def _stop_expecting(self, expected: ExpectedEffect) -> None:
        if expected.is_counted:
            expected.call.given_up += 1
        self.mark_begun(expected)

    def mark_begun(self, expected: ExpectedEffect) -> None:
        if expected in self._expected:
            self._expected.remove(expected)
        expected.call.expected.discard(expected)
        expected.timer.cancel()
        if not expected.begun.done():
            expected.begun.set_result(None)


async def _ready(content: BinaryData) -> BinaryData:
    return content


# --- windows ----------------------------------------------------------------------------------------------------------


class Windows:
    """Windows of the app. They are closed at the end of their call; their content may become an output.

    ``take_pdf(guid, name)`` returns the file of a download once that has ended. Without it, files are not received.
    """

    def __init__(self, agent: PageAgent, tracker: EffectTracker) -> None:
        self._agent = agent
        self._tracker = tracker
        self._open_windows: list[Window] = []
        self._on_window: Callable[[Page], None] = lambda _: None
        #: Frame of a window → its call, for the latest windows.
        self.owners: Recent[str, CallEffects] = Recent(100)
        self.take_pdf: Callable[[str, str], Awaitable[BinaryData]] | None = None

    async def aclose(self) -> None:
        await asyncio.gather(*(close_quietly(window.page) for window in self._open_windows))

    def watch(self, page: Page, on_window: Callable[[Page], None]) -> None:
        """Watch for windows of ``page``. ``on_window`` is called for ``page``, its windows and theirs. Other pages of
        the context are not touched."""
        self._on_window = on_window
        on_window(page)
        listen(page, "popup", self._on_popup)

    def on_window_open(self, event: dict[str, Any]) -> None:
        """Expect a window: this event, of ``window.open`` or of a link or form with a target, comes before it."""
        detail: Detail = {"url": redact_url(event["url"])[:MAX_TEXT]}
        call = self._tracker.current_call()
        if self._tracker.record(call, "popup", detail):
            timeout = LOAD_TIMEOUT if loads_in_browser(event["url"]) else BEGIN_TIMEOUT
            self._tracker.expect(call, "window", detail, timeout=timeout)

    def on_target(self, frame: str) -> None:
        self.owners[frame] = self._tracker.current_call()

    def on_download(self, frame: str, guid: str, name: str) -> bool:
        """Note a download in a window. Return whether it is the PDF that the window shows, saved by its viewer."""
        for window in self._open_windows:
            if window.frame != frame:
                continue
            if window.saved is not None and not window.saved.done():
                window.saved.set_result((guid, name))
                return True
            window.has_download = True
            window.show()
        return False

    def expect_content(self, call: CallEffects) -> None:
        """Follow the call's windows again: an app may open a window at once, and show the file there only after its
        answer."""
        for window in call.windows:
            effect = self._tracker.expect(call, "content", {})
            if effect is not None:
                self._tracker.spawn(self._follow_window(window, effect))

    def close_windows_of(self, call: CallEffects) -> None:
        """Close the windows of a call, but not those that may still show a file, unless they are too many."""
        windows = [*self._tracker.unattributed.windows, *call.windows]
        unfinished = [window for window in windows if window.is_unfinished or window.is_saving]
        for window in windows:
            if window not in unfinished:
                self._tracker.spawn(close_quietly(window.page))
        call.windows.clear()
        self._tracker.unattributed.windows[:] = unfinished

    def _on_popup(self, page: Page) -> None:
        """Add a new window to the call that announced it, or close it if there are too many."""
        self.watch(page, self._on_window)

        effect = self._tracker.take_expected("window")
        if effect is None:
            # A window that another window opened is not announced by the page, so do that here.
            self.on_window_open({"url": page.url})
            effect = self._tracker.take_expected("window")
        if effect is None:
            # The call has more effects than are recorded.
            self._tracker.current_call().refused += 1
            self._tracker.spawn(close_quietly(page))
            return

        if self._make_room():
            self._add_window(page, effect)
        else:
            effect.call.refused += 1
            effect.detail["closed"] = "too many windows"
            self._tracker.mark_begun(effect)
            self._tracker.spawn(close_quietly(page))

    def _make_room(self) -> bool:
        """Return whether another window may be open. If there are too many, close the oldest of an earlier call."""
        max_windows = 8
        self._open_windows = [window for window in self._open_windows if not window.page.is_closed()]
        if len(self._open_windows) < max_windows:
            return True
        earlier_windows = [window for window in self._tracker.unattributed.windows if window in self._open_windows]
        if not earlier_windows:
            return False

        oldest = earlier_windows[0]
        self._open_windows.remove(oldest)
        self._tracker.unattributed.windows.remove(oldest)
        self._tracker.count_dropped(self._tracker.unattributed)
        self._tracker.spawn(close_quietly(oldest.page))
        return True

    def _add_window(self, page: Page, expected: ExpectedEffect) -> None:
        call = expected.call
        if self._tracker.current_call(call.id) is not call:
            call = self._tracker.unattributed
        window = Window(page, call)
        self._open_windows.append(window)
        call.windows.append(window)

        if self._agent.channel.cdp is not None:
            self._tracker.spawn(self._watch_frame(window))
        listen(page, "request", window.on_request)
        listen(page, "requestfailed", window.on_request_failed)
        listen(page, "framenavigated", window.on_navigated)
        listen(page, "close", lambda _: window.show())
        self._tracker.spawn(self._follow_window(window, expected))

    async def _watch_frame(self, window: Window) -> None:
        """Watch over CDP when a window begins and ends to load."""
        session = await window.page.context.new_cdp_session(window.page)
        target = await session.send("Target.getTargetInfo")
        frame = str(target["targetInfo"]["targetId"])

        # This event comes before the answer of a call that begins a navigation.
        def on_navigation(event: dict[str, Any]) -> None:
            if event["frameId"] == frame and loads_in_browser(event["url"]):
                window.begin_loading()

        def on_stopped(event: dict[str, Any]) -> None:
            if event["frameId"] == frame:
                window.end_loading()

        listen(session, "Page.frameRequestedNavigation", on_navigation)
        listen(session, "Page.frameStoppedLoading", on_stopped)
        await session.send("Page.enable")
        window.frame = frame
        window.changed.set()

    async def _follow_window(self, window: Window, expected: ExpectedEffect) -> None:
        """Take what a window shows, also after the call that waits for ``expected``."""
        try:
            while not window.page.is_closed():
                await self._wait_for_content(window, expected)
                # A call follows its windows twice at the same time: from their opening, and again after its answer.
                async with window.capture_lock:
                    url = window.page.url
                    if url == window.shown:
                        return
                    with contextlib.suppress(Error):
                        await self._capture_content(window, url)
                        window.shown = url
                        return
                # The window went to another address meanwhile.
                await asyncio.sleep(_LOOK_INTERVAL)
        finally:
            self._tracker.mark_begun(expected)

    async def _wait_for_content(self, window: Window, expected: ExpectedEffect) -> None:
        """Wait until a window shows something, downloads something or is closed."""
        now = asyncio.get_running_loop().time
        followed_at = now()
        while not window.page.is_closed() and not window.has_download:
            window.changed.clear()
            if window.is_unfinished:
                # The server, or a busy browser that starts its viewer, may take more than two seconds.
                expected.until = max(expected.until, followed_at + LOAD_TIMEOUT)
            # Look at is_loading last, since it may change while the page is asked.
            if window.page.url and not await window.is_blank() and not window.is_loading:
                return

            with contextlib.suppress(TimeoutError):
                # The longer it takes, the more rarely the page is asked.
                interval = max(_LOOK_INTERVAL, (now() - followed_at) / 10)
                async with asyncio.timeout(interval):
                    await window.changed.wait()

    async def _capture_content(self, window: Window, url: str) -> None:
        """Make an output of a ``blob:`` URL, or of a PDF of the app's own origin."""
        if url.startswith("blob:"):
            self._tracker.add_output(window.call, self.take_blob(url), "the content of a window")
            return

        is_of_app_origin = urlsplit(url)[:2] == urlsplit(self._agent.page.url)[:2]
        if is_of_app_origin and await window.page.evaluate("document.contentType") == "application/pdf":
            work = self._save_shown_pdf(window)
            what = f"the PDF of a window ({redact_url(url)[:MAX_TEXT]})"
            window.saving = self._tracker.add_output(window.call, work, what)

    async def take_blob(self, url: str) -> BinaryData:
        """Return the content behind a ``blob:`` URL, which the page still holds."""
        text = await self._agent.invoke("blobOfUrl", url, timeout=LOAD_TIMEOUT, returns=str)
        blobs = parse_json(text, list[Held], "the content of a window")
        if not blobs:
            raise TransportError("the page no longer has it; have the app download or return it")
        blob = blobs[0]
        return BinaryData(Handle(f"{HELD}{blob.id}", blob.size), blob.type or None)

    async def _save_shown_pdf(self, window: Window) -> BinaryData:
        """Let the viewer save the PDF from its cache: an answer to a form cannot be requested again."""
        failure = TransportError("the browser did not hand it over; have the app download or return it")
        if self.take_pdf is None:
            raise failure
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(10.0):
                while window.frame is None:
                    await asyncio.sleep(_LOOK_INTERVAL)

                window.saved = asyncio.get_running_loop().create_future()
                while not await window.press_save():
                    await asyncio.sleep(_LOOK_INTERVAL)

                guid, name = await window.saved
                return await self.take_pdf(guid, name)
        raise failure


def loads_in_browser(url: str) -> bool:
    """Return ``False`` for addresses that a browser hands to another program, such as ``mailto:``."""
    return url.startswith(("http", "blob", "data"))
