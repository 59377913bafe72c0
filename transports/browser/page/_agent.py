"""The agent inside one page: installed before the app's first script, reached over a channel of its own.

No call into a page has a timeout of its own, and a frozen page never answers. So every wait here has a deadline, and
ends at once when the page or the browser dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from ...errors import (
    BrowserCrashed,
    CallTimeout,
    ContextLost,
    Disconnected,
    PageCrashed,
    ProtocolError,
    TransportError,
    UsageError,
    first_line,
    no_answer,
)
from ...protocol import PARSED_ON_LOOP
from ...protocol.messages import Message
from ...tasks import Deadlines, cancel_and_wait, drop, ending, spawn
from ._channel import OPAQUE, Channel, DevTools, FrameDocument, FrameWatcher, PageObject, listener
from ._channels import Rate
from ._received import Clipboard, Effect, FileChooser, Flood, Tools, checked, parse_event, parse_reply
from ._scripts import load_script

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

#: Parts of messages: the page, the browser or the connection to it has ended.
CLOSED_MESSAGES = (
    "Target crashed",
    "has been closed",
    "Target closed",
    "Connection closed",
    "Session closed",
    "browser has disconnected",
)
#: The driver, a process of its own, has ended.
DRIVER_CLOSED_MESSAGE = "Connection closed while reading from the driver"
#: The page navigated or was reloaded.
NAVIGATED_MESSAGES = (
    "Cannot find context",
    "navigated or closed",
    "context was destroyed",
    "Promise was collected",
    "Could not find object",
    "JSHandle is disposed",
)
#: Those of a navigation that say that the command did not reach the page's script.
NOT_SENT_MESSAGES = ("Cannot find context", "Could not find object")


def is_closed(error: Exception) -> bool:
    """Return whether an exception of Playwright says that the page, its browser or the driver has ended."""
    return any(text in str(error) for text in CLOSED_MESSAGES)


logger = logging.getLogger("transports.browser")

T = TypeVar("T")

#: Content up to this many bytes per answer travels inside the answer (measured: inline is faster up to here).
INLINE_BYTES = 256 * 1024
#: Answers of up to this many characters of JSON are returned directly (measured: above, a file is faster).
_MAX_INLINE_TEXT = 2 << 20

#: Seconds to wait for the event that explains why a page was closed.
_CLOSE_DELAY = 0.1
#: Seconds after which a page that answers nothing at all is given up.
_RESPONSE_TIMEOUT = 1.0
#: Seconds for each step of removing the agent from a page that stays open.
_UNINSTALL_TIMEOUT = 2.0
#: The methods of the agent that are requests of the protocol, as error messages call them.
_REQUESTS = {"call": "", "initialize": "initialize", "list": "capabilities/list", "cancel": "capabilities/cancel"}
_LOOK = "inspecting the page"
#: Events of a page in a second. Its agent sends fewer: more come from a script that has taken the agent's place.
_MAX_EVENTS = 5000


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its ``agent``, which is of no other, its ``origin`` (``"null"`` for none of its own), and the
    registered ``domain`` in its host, empty if it is not known."""

    agent: PageObject
    origin: str
    domain: str


class Agent(ABC):
    """The agent of a document of ``page``: what can be asked of it, over its ``channel``."""

    page: Page
    channel: Channel
    _document: Document | None = None

    @property
    def cdp(self) -> DevTools:
        """The CDP session. Raises :class:`~transports.errors.UsageError` if the browser has none."""
        if self.channel.cdp is None:
            raise UsageError("this browser has no CDP; use a Chromium")
        return self.channel.cdp

    @abstractmethod
    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """Await ``work`` on the document until it ends, the document is gone, or ``timeout`` seconds have passed.

        ``action`` names the work in error messages. Raises the reason of the loss,
        :class:`~transports.errors.CallTimeout`, or Playwright's error as one of ours. Work that is given up is
        cancelled in the background, and its outcome ignored.
        """

    async def send(self, method: str, params: Mapping[str, object] | None = None, *, timeout: float) -> dict[str, Any]:
        """Send one CDP command and return its result. ``timeout`` in seconds.

        Raises :class:`~transports.errors.CallTimeout`, :class:`~transports.errors.Disconnected` and
        :class:`~transports.errors.ContextLost`.
        """
        reply: dict[str, Any] = await self.with_deadline(
            self.cdp.send(method, dict(params or {})), method, timeout=timeout
        )
        return reply

    async def document(self, *, timeout: float) -> Document:
        """Return the document that is there now; ``timeout`` in seconds. It is asked once in each."""
        agent = await self._find_agent(timeout)
        if self._document is None or self._document.agent is not agent:
            origin, domain = await asyncio.gather(
                self.invoke("origin", timeout=timeout, returns=str, of=agent), self._domain(timeout)
            )
            self._document = Document(agent, origin, domain)
        return self._document

    async def _domain(self, timeout: float) -> str:
        """Return the registered name in the document's host, by the browser's list of public suffixes; empty for an
        address in numbers, and where the browser does not tell."""
        if self.channel.cdp is None:
            return ""
        tree = await self.send("Page.getFrameTree", timeout=timeout)
        return str(tree["frameTree"]["frame"].get("domainAndRegistry", ""))

    async def _find_agent(self, timeout: float) -> PageObject:
        agent = self.channel.agent or await self.with_deadline(self.channel.find_agent(), _LOOK, timeout=timeout)
        if not isinstance(agent, PageObject):
            raise ContextLost("the document in the page is none that scripts can be installed in; it cannot be driven")
        return agent

    async def invoke(
        self,
        method: str,
        *args: object,
        timeout: float,
        returns: type[T] = object,  # type: ignore[assignment]
        of: PageObject | None = None,
    ) -> T:
        """Call a method of the agent and return its result, a ``returns``; ``timeout`` in seconds. ``of`` is the agent
        of one document; without it, it is that of the document that is there now.

        A :class:`~.channel.PageObject` argument is passed as the object it stands for; as ``returns`` it makes the
        result such an object. Raises :class:`~transports.errors.ProtocolError` if the method throws, or its result is
        another.
        """
        agent = of or await self._find_agent(timeout)
        call = self.channel.invoke(agent, method, args, by_value=returns is not PageObject)
        result: T = await self.with_deadline(call, _REQUESTS.get(method, f"`{method}`"), timeout=timeout)
        return result if isinstance(result, returns) else checked(result, returns, f"the result of {method}")

    async def set_file(self, element: PageObject, path: Path, *, timeout: float) -> None:
        """Choose a local file for an ``<input type=file>`` of the document."""
        await self.with_deadline(self.channel.set_file(element, path), "choosing a file", timeout=timeout)

    async def release_object(self, page_object: PageObject, *, timeout: float = 5.0) -> None:
        """Let the document collect an object as garbage."""
        await self.with_deadline(self.channel.release_object(page_object), "forgetting", timeout=timeout)


class PageAgent(Agent):
    """The agent of one page.

    ``on_loss(error)`` is called once, as soon as the app is known to be gone, with what happened to it; it returns the
    error for the calls under way and for later ones, which says what follows.

    ``on_event(kind, payload)`` is called in the event loop for everything the page emits: ``notification``,
    ``progress``, ``elicitation``, ``capabilities``, and the kinds that
    :meth:`PageEffects.on_event <transports.browser.effects.PageEffects.on_event>` takes. What is no event
    of the agent is dropped, with one warning.
    """

    def __init__(
        self,
        page: Page,
        channel: Channel,
        on_event: Callable[[str, Any], None],
        on_loss: Callable[[TransportError], TransportError],
    ) -> None:
        self.page = page
        self.channel = channel
        self._on_event = on_event
        self._on_loss = on_loss
        self._binding = f"_{secrets.token_hex(8)}"
        self._warned = False
        self._rate = Rate(_MAX_EVENTS)
        self._pinned = False
        self._on_navigated: Callable[[], object] | None = None
        self._target: dict[str, Any] | None = None
        self._lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
        self._waiting: set[asyncio.Future[None]] = set()
        self._deadlines = Deadlines()
        self._browser = page.context.browser
        page.on("crash", self._on_crash)
        page.on("close", self._on_close)
        if self._browser is not None:
            self._browser.on("disconnected", self.on_disconnect)

    async def install(self, *parts: str, now: bool = False, frames: FrameWatcher | None = None, **options: str) -> None:
        """Install the agent in every document that the page loads from now on.

        ``parts`` are further scripts of this folder, which ``agent.js`` takes as arguments, and ``options`` more of its
        configuration. With ``now`` the document that is loaded already gets the agent too. ``frames`` takes the
        documents of frames, which then have agents of their own.
        """
        own = {"binding": self._binding, "inline": INLINE_BYTES, "longest": _MAX_INLINE_TEXT, "borrowed": now}
        source = f"({load_script('agent.js')})({', '.join((json.dumps(own | options), *map(load_script, parts)))})"
        install = self.channel.install(
            source, self._binding, on_emit=self._on_emit, on_document=self._on_document, now=now, frames=frames
        )
        await (install if self.channel.cdp is None else asyncio.gather(install, self.target()))

    async def target(self) -> dict[str, Any]:
        """Return what the browser says of the page (CDP ``TargetInfo``), with ``targetId`` and ``browserContextId``."""
        if self._target is None:
            self._target = (await self.cdp.send("Target.getTargetInfo"))["targetInfo"]
        return self._target

    async def uninstall(self) -> None:
        """Remove the agent from a page that stays open, and stop listening to it. Takes about four seconds at most."""
        with contextlib.suppress(TransportError):
            if self.channel.agent is not None:
                await self.invoke("uninstall", timeout=_UNINSTALL_TIMEOUT)
        with contextlib.suppress(TransportError):
            await self.with_deadline(self.channel.close(), "leaving the page", timeout=_UNINSTALL_TIMEOUT)
        self.stop_listening()

    def stop_listening(self) -> None:
        """Stop listening to the page and its browser."""
        self.page.remove_listener("crash", self._on_crash)
        self.page.remove_listener("close", self._on_close)
        if self._browser is not None:
            self._browser.remove_listener("disconnected", self.on_disconnect)

    def _on_emit(self, text: object) -> None:
        if self.is_lost:
            return
        if self._rate.is_over():  # before it is read
            self.end_flood()
        else:
            self.deliver(text, to=self._on_event)

    def end_flood(self) -> None:
        """Give up a page whose events do not end."""
        self.mark_lost(Disconnected("the page sent far more events than the limit (docs/security.md); it was given up"))

    def deliver(self, text: object, *, to: Callable[[str, Any], None]) -> None:
        """Hand an event that a script of ours has emitted on to ``to``, with its kind and payload."""
        try:
            kind, payload = parse_event(text)
        except ProtocolError as error:  # it belongs to no call
            logger.log(logging.DEBUG if self._warned else logging.WARNING, "an event is ignored: %s", error.message)
            self._warned = True
        else:
            to(kind, payload)

    def pin(self) -> None:
        """Declare the current document to be the app: from now on a navigation loses it (docs/faults.md 10), unless
        :meth:`follow` was called."""
        self._pinned = self._on_navigated is None

    def follow(self, on_navigated: Callable[[], object]) -> None:
        """Declare every document of the page to be the app. A navigation fails the calls under way with
        :class:`~transports.errors.ContextLost`, and ``on_navigated`` is called; the page is not lost."""
        self._on_navigated = on_navigated

    def _on_document(self) -> None:
        if self._pinned:
            self.mark_lost(ContextLost("the page navigated or reloaded"))
        elif self._on_navigated is not None:
            self._on_navigated()

    @listener
    def _on_crash(self, _: Page) -> None:
        self.mark_lost(PageCrashed("the page's renderer crashed"))

    @listener
    def on_disconnect(self, _: object) -> None:
        """Declare the app gone with its browser."""
        self.mark_lost(BrowserCrashed("the browser is gone"))

    @listener
    def _on_close(self, _: Page) -> None:
        """A dying browser closes its pages first: wait a moment, so that the crash is reported as the reason."""
        closed = Disconnected("the page was closed")
        asyncio.get_running_loop().call_later(_CLOSE_DELAY, self.mark_lost, closed)

    @property
    def is_lost(self) -> bool:
        """Whether the app is gone."""
        return self._lost.done()

    @property
    def lost(self) -> asyncio.Future[TransportError]:
        """A future that is done once the app is gone, with the reason as its result. Callers must not change it."""
        return self._lost

    async def check_responsive(self) -> None:
        """Give the page up if it does not answer within a second: its script hangs in a loop (docs/faults.md 5)."""
        try:
            await self.with_deadline(self.channel.ping(), _LOOK, timeout=_RESPONSE_TIMEOUT)
        except CallTimeout:
            self.mark_lost(Disconnected("the page does not respond any more"))

    def mark_lost(self, error: TransportError) -> None:
        """Declare the app gone, for the reason in ``error``: calls under way and later ones fail. Only the first error
        counts."""
        if not self._lost.done():
            reason = self._on_loss(error)  # which may come back here, if all sessions of a browser are told
            if not self._lost.done():
                self._lost.set_result(reason)
                for ended in self._waiting:
                    if not ended.done():
                        ended.set_exception(self.loss())

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """As :meth:`Agent.with_deadline`, until the page is lost."""
        if self._lost.done():
            drop(work)
            raise self.loss()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(ending(work, ended))
        self._waiting.add(ended)
        self._deadlines.add(ended, timeout, partial(no_answer, action, timeout))
        try:
            with contextlib.suppress(CallTimeout):
                await ended
            if not task.done():  # else the answer came, if only in the turn of the deadline
                raise no_answer(action, timeout)
            return task.result()
        except PlaywrightError as error:
            if any(text in error.message for text in (*CLOSED_MESSAGES, *NAVIGATED_MESSAGES)):
                await asyncio.wait((self._lost,), timeout=2 * _CLOSE_DELAY)  # an event may say why
            raise self._map_error(error) from None
        except Exception as error:
            if DRIVER_CLOSED_MESSAGE not in str(error):
                raise
            self.mark_lost(BrowserCrashed("the browser's driver is gone"))
            raise self.loss() from None
        finally:
            self._waiting.discard(ended)
            self._deadlines.discard(ended)
            if not task.done():
                task.cancel()
                task.add_done_callback(partial(drop, work))

    def loss(self, **details: bool) -> TransportError:
        """Return the reason why the app is gone, as an error of its own with these ``details``."""
        lost = self._lost.result()
        return type(lost)(lost.message, retryable=lost.retryable, details=details)

    def _map_error(self, error: PlaywrightError) -> TransportError:
        """Return the error of ours for one of Playwright's."""
        first = first_line(error)
        if self._lost.done():
            return self.loss()
        if any(text in first for text in NAVIGATED_MESSAGES):
            lost = self._on_loss(ContextLost("the page navigated or reloaded while it worked"))
            lost.details |= {"sent": False} if any(text in first for text in NOT_SENT_MESSAGES) else {}
            return lost
        if any(text in first for text in CLOSED_MESSAGES):  # no event said why, so the driver, which sends them, died
            self.mark_lost(BrowserCrashed("the browser's driver is gone"))
            return self.loss()
        return TransportError(f"the browser refused: {first}")


class FrameAgent(Agent):
    """The agent of a document in a frame of ``owner``'s page. The document ends before the page does; :meth:`leave`
    says so."""

    def __init__(self, owner: PageAgent, channel: Channel) -> None:
        self.page, self.channel = owner.page, channel
        self._owner = owner
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def leave(self) -> None:
        """Declare the document gone: what waits for it ends at once."""
        if not self._gone.done():
            self._gone.set_result(None)

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """As :meth:`Agent.with_deadline`. A document that is gone is a :class:`~transports.errors.ContextLost`, whose
        ``details`` hold ``sent: False`` if the work never reached it."""
        if self._gone.done():
            drop(work)
            raise self._lost(sent=False)
        task = asyncio.ensure_future(work)  # at once: the page may be lost before it begins
        try:
            return await self._owner.with_deadline(self._until_gone(task), action, timeout=timeout)
        except ContextLost as lost:
            if self._owner.is_lost:
                raise
            raise self._lost(**{key: False for key in ("sent",) if lost.details.get(key) is False}) from None
        finally:
            task.cancel()
            task.add_done_callback(partial(drop, work))

    async def _until_gone(self, task: asyncio.Future[Any]) -> Any:
        await asyncio.wait((task, self._gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise self._lost()
        try:
            return task.result()
        except PlaywrightError as error:
            if not is_closed(error):
                raise
            # A frame's session ends with the frame. Only the page's own says that page, browser or driver is gone.
            raise self._lost() from None

    def _lost(self, **details: bool) -> ContextLost:
        return ContextLost("the frame navigated or went away", details=details)


#: Stands between the name of a tool and the frame that it is in. Names of tools have none.
MARK = "@"
#: Frames with tools of one page, tools of one frame, and characters of a tool's name.
_MAX_FRAMES, _MAX_TOOLS, _MAX_NAME = 64, 500, 128
#: Calls that are known after their end.
_MAX_SENT = 1000
#: Events of a frame in a second, and those with which it is left out. Its agent sends fewer (agent.js).
_MAX_FRAME_EVENTS, _FLOOD = 300, 3000
#: Seconds for a frame to say what its tools are, and for the tools of all that are asked while the page is opened.
_LIST_TIMEOUT, _SETTLE_TIMEOUT = 5.0, 1.0
#: Seconds between two lists of a frame that changes all the time: the first, the longest, and what counts as quiet.
_FIRST_PAUSE, _LONGEST_PAUSE, _QUIET = 0.05, 5.0, 10.0
#: What a frame of the page's own origin may be called. Never like another origin, which has a port.
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_PORTS = {"http": 80, "https": 443}


@dataclass(eq=False, slots=True)
class ToolFrame:
    """A document in a frame, with its tools: the name that each has here → its own name, and how it is listed."""

    document: FrameDocument
    agent: FrameAgent
    number: int
    label: str = ""
    tools: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)
    calls: dict[str, object] = field(default_factory=dict)  # ids of calls under way, oldest first
    rate: Rate = field(default_factory=lambda: Rate(_MAX_FRAME_EVENTS))
    listed: asyncio.Event = field(default_factory=asyncio.Event)  # whether it has been asked for its tools once
    stale: bool = False
    reading: bool = False
    pause: float = _FIRST_PAUSE
    changed_at: float = 0.0
    warned: bool = False

    @property
    def origin(self) -> str:
        """The document's origin, as the browser says; ``"null"`` if it shares it with no other."""
        return self.document.origin

    @property
    def url(self) -> str:
        """The document's address."""
        return self.document.url

    @property
    def holder(self) -> str:
        """The beginning of the handles of content that this document holds."""
        return f"frame:{self.number}/"

    @property
    def frame(self) -> Frame | None:
        """Playwright's frame of the document, ``None`` if it is not known."""
        frames = self.agent.page.frames[1:]
        return self.document.frame or next((frame for frame in frames if frame.url == self.url), None)


class FrameTools:
    """The tools in the frames of ``agent``'s page. It is a :class:`~.channel.FrameWatcher`.

    ``on_change(removed)`` is called when tools have come, gone or changed, with the names of those that went.
    ``on_effect(frame, kind, payload)`` gets what a frame does beside answering, with the id of its own call, if it has
    one under way.
    """

    def __init__(
        self,
        agent: PageAgent,
        on_change: Callable[[list[str]], None],
        on_effect: Callable[[ToolFrame, str, Effect], None],
    ) -> None:
        self._agent = agent
        self._on_change = on_change
        self._on_effect = on_effect
        self._frames: dict[FrameDocument, ToolFrame] = {}
        self._numbers = count(1)
        self._names: dict[str, tuple[ToolFrame, str]] = {}
        self._sent: dict[
            str, ToolFrame
        ] = {}  # call → where it went, also when it has ended: a cancellation comes later
        self._gone: dict[str, None] = {}  # names whose document has gone
        self._appeared = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._used = True

    # --- documents ----------------------------------------------------------------------------------------------------

    def came(self, document: FrameDocument) -> None:
        """Take a document in a frame; most have no tools."""
        self._frames[document] = ToolFrame(document, FrameAgent(self._agent, document.channel), next(self._numbers))

    def left(self, document: FrameDocument) -> None:
        """Forget a document and its tools. Calls of them that are under way end."""
        if frame := self._frames.pop(document, None):
            frame.agent.leave()
            frame.listed.set()
            self._replace(frame, {})

    def emitted(self, document: FrameDocument, text: object) -> None:
        """Take an event of a document; what is too much is dropped before it is read."""
        frame = self._frames.get(document)
        if frame is None:
            return
        if frame.rate.is_over():
            if frame.rate.count > _FLOOD:
                self._leave_out(frame)
            else:
                self._warn(frame)
        else:
            self._agent.deliver(text, to=partial(self._take, frame))

    def _warn(self, frame: ToolFrame) -> None:
        if not frame.warned:
            frame.warned = True
            logger.warning("the frame %s sends too many events: the rest of them is left out", _place(frame))

    def _leave_out(self, frame: ToolFrame) -> None:
        logger.warning("the frame %s sent far too many events: it is left out, with its tools", _place(frame))
        self.left(frame.document)
        self._agent.channel.leave_out(frame.document)

    def _take(self, frame: ToolFrame, kind: str, payload: object) -> None:
        match payload:
            case Tools():
                self._ask(frame, payload.name)
            case Flood():
                self._leave_out(frame) if payload.ended else self._warn(frame)
            case FileChooser() | Clipboard():
                self._tell_effect(frame, kind, payload)
            case Effect() if kind in ("download", "submitting"):
                self._tell_effect(frame, kind, payload)

    def _tell_effect(self, frame: ToolFrame, kind: str, effect: Effect) -> None:
        if effect.call not in frame.calls:  # a frame speaks for no call but its own
            effect.call = next(reversed(frame.calls), None)
        self._on_effect(frame, kind, effect)

    # --- the list -----------------------------------------------------------------------------------------------------

    def _ask(self, frame: ToolFrame, window_name: str) -> None:
        if not self._used:
            spawn(self._uninstall(frame), self._tasks)
            return
        if not frame.label:
            if sum(bool(other.label) for other in self._frames.values()) >= _MAX_FRAMES:
                logger.warning(
                    "the tools of the frame %s are left out: %d frames have some", _place(frame), _MAX_FRAMES
                )
                return
            frame.label = self._label(frame, window_name)
        frame.stale = True
        if not frame.reading:
            frame.reading = True
            spawn(self._read(frame), self._tasks)

    def _label(self, frame: ToolFrame, window_name: str) -> str:
        """Return what the frame is called, for as long as its document lives."""
        document = frame.document
        if document.origin == OPAQUE:
            label = OPAQUE
        elif not document.of_page:
            parts = urlsplit(document.origin)
            label = parts.netloc if parts.port else f"{parts.netloc}:{_PORTS.get(parts.scheme, parts.scheme)}"
        else:
            label = window_name if _LABEL.fullmatch(window_name) and window_name != OPAQUE else "frame"
        taken = {other.label for other in self._frames.values()}
        return next(
            one for one in (label, *(f"{label}#{again}" for again in range(2, _MAX_FRAMES + 2))) if one not in taken
        )

    async def _read(self, frame: ToolFrame) -> None:
        """Read the list of a frame until it is current. One that changes all the time is read ever more seldom."""
        now = asyncio.get_running_loop().time
        try:
            while frame.stale and frame.document in self._frames:
                frame.stale = False
                with contextlib.suppress(TransportError):
                    listed = await self._list(frame)
                    if frame.document in self._frames:
                        self._replace(frame, self._named(frame, listed))
                frame.listed.set()
                frame.pause = (
                    _FIRST_PAUSE if now() - frame.changed_at > _QUIET else min(2 * frame.pause, _LONGEST_PAUSE)
                )
                frame.changed_at = now()
                await asyncio.sleep(frame.pause)
        finally:
            frame.reading = False

    async def _list(self, frame: ToolFrame) -> object:
        text = await frame.agent.invoke("list", timeout=_LIST_TIMEOUT, returns=str)
        request = Message("capabilities/list", None)
        if len(text) <= PARSED_ON_LOOP:
            return parse_reply(request, text).payload
        if text.startswith('{"id":'):
            logger.warning("the tools of the frame %s are left out: they are more than 2 MB", _place(frame))
            return []
        return (await asyncio.to_thread(parse_reply, request, text)).payload

    def _named(self, frame: ToolFrame, listed: object) -> dict[str, tuple[str, dict[str, object]]]:
        tools: dict[str, tuple[str, dict[str, object]]] = {}
        for tool in own_tools(listed):
            if len(tools) >= _MAX_TOOLS:
                logger.warning("the frame %s has more than %d tools; the rest is left out", _place(frame), _MAX_TOOLS)
                break
            own = tool["name"]
            if len(own) <= _MAX_NAME:
                name = f"{own}{MARK}{frame.label}"
                tools[name] = own, {**tool, "name": name, "frame": frame.url}
        return tools

    def _replace(self, frame: ToolFrame, tools: dict[str, tuple[str, dict[str, object]]]) -> None:
        before, frame.tools = frame.tools, tools
        removed = [name for name in before if name not in tools]
        for name in removed:
            del self._names[name]
            self._gone[name] = None
        while len(self._gone) > _MAX_TOOLS:
            del self._gone[next(iter(self._gone))]
        for name, (own, _) in tools.items():
            self._names[name] = frame, own
            self._gone.pop(name, None)
        if before == tools:
            return
        if tools:
            self._appeared.set()
        self._on_change(removed)

    def listed(self) -> Iterable[dict[str, object]]:
        """Yield the tools of all frames, as a page lists its own: with their names here, and ``frame``, the address of
        their document."""
        for frame in self._frames.values():
            for _, tool in frame.tools.values():
                yield tool

    async def settle(self) -> None:
        """Wait until the frames that have tools have said which, for a second at most."""
        waiting = [frame.listed.wait() for frame in self._frames.values() if frame.label and not frame.listed.is_set()]
        if waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_TIMEOUT):
                    await asyncio.gather(*waiting)

    async def appear(self) -> None:
        """Return once a frame has tools, if that takes forever."""
        await self._appeared.wait()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def find(self, name: str, *, patience: float) -> tuple[ToolFrame, str] | None:
        """Return the frame that has a tool of this name, and the tool's own name; ``None`` if there is none. A tool
        that was never there may still come, for ``patience`` seconds."""
        deadline = asyncio.get_running_loop().time() + patience
        while name not in self._names and name not in self._gone and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return self._names.get(name)

    def owner(self, name: str) -> ToolFrame | None:
        """Return the frame that has a tool of this name now."""
        found = self._names.get(name)
        return found[0] if found else None

    def begin(self, frame: ToolFrame, call_id: str) -> None:
        """Note that a call is sent to a frame."""
        frame.calls[call_id] = self._sent[call_id] = frame
        while len(self._sent) > _MAX_SENT:
            del self._sent[next(iter(self._sent))]

    def sent_to(self, call_id: str) -> ToolFrame | None:
        """Return the frame that a call was sent to, which may have ended, if it was one that is there still."""
        frame = self._sent.get(call_id)
        return frame if frame is not None and frame.document in self._frames else None

    def holder_of(self, name: str) -> tuple[ToolFrame | None, str]:
        """Return the frame of a handle ``NUMBER/ID`` and the id; ``None`` if its document is gone."""
        number, _, held = name.partition("/")
        return next((frame for frame in self._frames.values() if str(frame.number) == number), None), held

    # --- the end ------------------------------------------------------------------------------------------------------

    def stand_aside(self) -> None:
        """Leave the frames alone from now on: the page is driven by ``window.abp``."""
        self._used = False
        for frame in tuple(self._frames.values()):
            if frame.label:
                spawn(self._uninstall(frame), self._tasks)

    async def uninstall(self) -> None:
        """Remove the agents from the frames of a page that stays open. Takes two seconds at most."""
        await asyncio.gather(*(self._uninstall(frame) for frame in tuple(self._frames.values())))

    async def _uninstall(self, frame: ToolFrame) -> None:
        with contextlib.suppress(TransportError):
            await frame.agent.invoke("uninstall", timeout=2.0)

    async def aclose(self) -> None:
        """End background work."""
        await cancel_and_wait(self._tasks)


def own_tools(listed: object) -> list[dict[str, Any]]:
    """Return the tools of a document's own list. One whose name has an ``@`` is left out: only a frame's has one."""
    if not isinstance(listed, list):
        return []
    return [
        one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str) and MARK not in one["name"]
    ]


def _place(frame: ToolFrame) -> str:
    return frame.label or (frame.origin if frame.origin != OPAQUE else "without an origin")
