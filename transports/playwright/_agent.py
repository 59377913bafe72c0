"""The agents inside a page and its frames, installed before the app's first script and reached over a channel.

* :class:`PageAgent` — the agent of the page; it notices the loss of page, browser or driver.
* :class:`FrameAgent` — the agent of a document in a frame.
* :class:`FrameTools` — the WebMCP tools in the frames of a page: their names, lists and calls.

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

from .._internal.tasks import Deadlines, Wait, cancel_and_wait, drop, spawn
from ..errors import (
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
from ..protocol._strict_json import PARSED_ON_LOOP
from ..protocol.messages import Message
from ._channel import OPAQUE, Channel, DevTools, FrameDocument, FrameWatcher, PageObject, listener
from ._channels import Rate
from ._received import Clipboard, Effect, FileChooser, Flood, Tools, checked, parse_event, parse_reply
from ._scripts import load_script

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

logger = logging.getLogger("transports.playwright")

# Playwright has no error types for the following events, so they are recognised by their messages.
#: Parts of messages after the end of the page, of the browser or of the connection to it.
CLOSED_MESSAGES = (
    "Target crashed",
    "has been closed",
    "Target closed",
    "Connection closed",
    "Session closed",
    "browser has disconnected",
)
#: Part of the message after the end of the driver, which is a process of its own.
DRIVER_CLOSED_MESSAGE = "Connection closed while reading from the driver"
#: Parts of messages after the page navigated or was reloaded.
NAVIGATED_MESSAGES = (
    "Cannot find context",
    "navigated or closed",
    "context was destroyed",
    "Promise was collected",
    "Could not find object",
    "JSHandle is disposed",
)
#: The subset of NAVIGATED_MESSAGES after which the command cannot have reached the page's script.
NOT_SENT_MESSAGES = ("Cannot find context", "Could not find object")


def is_closed(error: Exception) -> bool:
    """Return whether an exception of Playwright means that the page, its browser or the driver has ended."""
    return any(text in str(error) for text in CLOSED_MESSAGES)


T = TypeVar("T")

#: Bytes of content per answer that travel inside the answer (measured: inline is faster up to here).
INLINE_BYTES = 256 * 1024
#: Characters of JSON up to which an answer is returned directly (measured: above, a file is faster).
_MAX_INLINE_TEXT = 2 << 20

#: Seconds to wait for the event that explains why a page was closed.
_CLOSE_DELAY = 0.25
#: Seconds without any answer after which a page is given up.
_RESPONSE_TIMEOUT = 1.0
#: Seconds for each step of removing the agent from a page that stays open.
_UNINSTALL_TIMEOUT = 2.0
#: Names, in error messages, of the agent's methods that are requests of the protocol.
_REQUESTS = {"call": "", "initialize": "initialize", "list": "capabilities/list", "cancel": "capabilities/cancel"}
_LOOK = "inspecting the page"
#: Events of a page per second. Its agent sends fewer: more come from a script that impersonates the agent.
_MAX_EVENTS = 5000


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its ``agent``, its ``origin`` (``"null"`` if opaque), and the registrable ``domain`` of its host,
    empty if unknown."""

    agent: PageObject
    origin: str
    domain: str


class Agent(ABC):
    """The agent of a document of ``page``: calls of its methods over its ``channel``, each with a deadline."""

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

    @property
    def known_document(self) -> Document | None:
        """The current document, if it was asked for before (:meth:`document`)."""
        known = self._document
        return known if known is not None and known.agent is self.channel.agent else None

    async def document(self, *, timeout: float) -> Document:
        """Return the current document; ``timeout`` in seconds. Each document is asked for its origin once."""
        agent = await self._find_agent(timeout)
        if self._document is None or self._document.agent is not agent:
            origin, domain = await asyncio.gather(
                self.invoke("origin", timeout=timeout, returns=str, of=agent), self._domain(timeout)
            )
            self._document = Document(agent, origin, domain)
        return self._document

    async def _domain(self, timeout: float) -> str:
        """Return the registrable domain of the document's host, by the browser's Public Suffix List; empty for a
        numeric address, and in browsers without CDP."""
        if self.channel.cdp is None:
            return ""
        tree = await self.send("Page.getFrameTree", timeout=timeout)
        return str(tree["frameTree"]["frame"].get("domainAndRegistry", ""))

    async def _find_agent(self, timeout: float) -> PageObject:
        agent = self.channel.agent or await self.with_deadline(self.channel.find_agent(), _LOOK, timeout=timeout)
        if not isinstance(agent, PageObject):
            raise ContextLost("cannot install scripts in this document (is it a PDF or a browser page?)")
        return agent

    async def invoke(
        self,
        method: str,
        *args: object,
        timeout: float,
        returns: type[T] = object,  # type: ignore[assignment]
        of: PageObject | None = None,
    ) -> T:
        """Call a method of the agent and return its result of the type ``returns``; ``timeout`` in seconds. ``of`` is
        the agent of one document, by default that of the current document.

        A :class:`~._channel.PageObject` argument is passed as the object it refers to; as ``returns`` it makes the
        result such a reference. Raises :class:`~transports.errors.ProtocolError` if the method throws, or if its result
        is of another type.
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

    ``on_loss(error)`` is called once, as soon as the app is known to be gone, with the reason. It returns the error for
    the calls under way and for later ones, whose message adds the consequence (reopened, or over).

    ``on_event(kind, payload)`` is called in the event loop for every event of the page: ``notification``, ``progress``,
    ``elicitation``, ``capabilities``, and the kinds of :meth:`PageEffects.on_event
    <transports.playwright._effects.PageEffects.on_event>`. Invalid events are dropped, with one warning.
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
        self._waiting: set[Wait[Any]] = set()
        self._deadlines = Deadlines()
        self._browser = page.context.browser
        page.on("crash", self._on_crash)
        page.on("close", self._on_close)
        if self._browser is not None:
            self._browser.on("disconnected", self.on_disconnect)

    async def install(self, *parts: str, now: bool = False, frames: FrameWatcher | None = None, **options: str) -> None:
        """Install the agent in every document that the page loads from now on.

        ``parts`` are further scripts of this folder, the arguments of ``agent.js``; ``options`` are added to its
        configuration. With ``now`` the document that is loaded already gets the agent too. With ``frames`` the
        documents in frames have agents of their own, whose events go to ``frames``.
        """
        own = {"binding": self._binding, "inline": INLINE_BYTES, "longest": _MAX_INLINE_TEXT, "borrowed": now}
        scripts = [load_script(name) for name in ("natives.js", *parts)]

        def source(**more: bool) -> str:
            return f"({load_script('agent.js')})({', '.join((json.dumps(own | options | more), *scripts))})"

        await self.channel.install(
            source(),
            source(late=True),
            self._binding,
            on_emit=self._on_emit,
            on_document=self._on_document,
            now=now,
            frames=frames,
        )

    async def target(self) -> dict[str, Any]:
        """Return the page's CDP ``TargetInfo``, with ``targetId`` and ``browserContextId``. It is asked for once."""
        if self._target is None:
            self._target = (await self.cdp.send("Target.getTargetInfo"))["targetInfo"]
        return self._target

    async def uninstall(self) -> None:
        """Remove the agent from a page that stays open, and stop listening to the page. This takes about four seconds
        at most."""
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
        if self._rate.is_over():  # before parsing, which costs time
            self.end_flood()
        else:
            self.deliver(text, to=self._on_event)

    def end_flood(self) -> None:
        """Give up a page that floods us with events."""
        self.mark_lost(Disconnected("the page sent far more events than the limit (docs/security.md); it was given up"))

    def deliver(self, text: object, *, to: Callable[[str, Any], None]) -> None:
        """Parse an event of a script of ours, and pass its kind and payload to ``to``."""
        try:
            kind, payload = parse_event(text)
        except ProtocolError as error:  # logged, since there is no call that could raise it
            logger.log(logging.DEBUG if self._warned else logging.WARNING, "an event is ignored: %s", error.message)
            self._warned = True
        else:
            to(kind, payload)

    def pin(self) -> None:
        """Declare the current document to be the app: from now on a navigation loses it (docs/faults.md 10), unless
        :meth:`follow` was called."""
        self._pinned = self._on_navigated is None

    def follow(self, on_navigated: Callable[[], object]) -> None:
        """Declare every document of the page to be the app. Then a navigation does not lose the page: it fails the
        calls under way with :class:`~transports.errors.ContextLost` and calls ``on_navigated``."""
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
        """Mark the page as lost, a moment later: a dying browser closes its pages first, and its crash is the reason to
        report."""
        closed = Disconnected("the page was closed")
        asyncio.get_running_loop().call_later(_CLOSE_DELAY, self.mark_lost, closed)

    @property
    def is_lost(self) -> bool:
        """True once the app is gone."""
        return self._lost.done()

    @property
    def lost(self) -> asyncio.Future[TransportError]:
        """A future that is done once the app is gone, with the reason as its result. Callers must not set it."""
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
            reason = self._on_loss(error)  # may re-enter here: it notifies all sessions of the browser
            if not self._lost.done():
                self._lost.set_result(reason)
                for wait in self._waiting:
                    if not wait.done():
                        wait.set_exception(self.loss())

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """Await ``work`` as :meth:`Agent.with_deadline` does, until the page is lost."""
        if self._lost.done():
            drop(work)
            raise self.loss()
        wait = Wait(work)
        self._waiting.add(wait)
        self._deadlines.add(wait, timeout, no_answer, action, timeout)
        try:
            return await wait
        except PlaywrightError as error:
            if any(text in error.message for text in (*CLOSED_MESSAGES, *NAVIGATED_MESSAGES)):
                await asyncio.wait((self._lost,), timeout=2 * _CLOSE_DELAY)  # an event may bring the real reason
            raise self._map_error(error) from None
        except Exception as error:
            if DRIVER_CLOSED_MESSAGE not in str(error):
                raise
            self.mark_lost(BrowserCrashed("the browser's driver is gone"))
            raise self.loss() from None
        finally:
            self._waiting.discard(wait)
            self._deadlines.discard(wait)

    def loss(self, *, sent: bool | None = None) -> TransportError:
        """Return a new error with the reason of the loss."""
        lost = self._lost.result()
        return type(lost)(lost.message, retryable=lost.retryable, sent=sent)

    def _map_error(self, error: PlaywrightError) -> TransportError:
        """Return the error of ours for one of Playwright's."""
        first = first_line(error)
        if self._lost.done():
            return self.loss()
        if any(text in first for text in NAVIGATED_MESSAGES):
            lost = self._on_loss(ContextLost("the page navigated or reloaded while it worked"))
            lost.sent = False if any(text in first for text in NOT_SENT_MESSAGES) else None
            return lost
        if any(text in first for text in CLOSED_MESSAGES):  # without an event: so the driver, which sends them, died
            self.mark_lost(BrowserCrashed("the browser's driver is gone"))
            return self.loss()
        return TransportError(f"the browser refused: {first}")


class FrameAgent(Agent):
    """The agent of a document in a frame of ``owner``'s page. :meth:`leave` marks the end of the document, which may
    come before that of the page."""

    def __init__(self, owner: PageAgent, channel: Channel) -> None:
        self.page, self.channel = owner.page, channel
        self._owner = owner
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def leave(self) -> None:
        """Declare the document gone: all waits for it end at once."""
        if not self._gone.done():
            self._gone.set_result(None)

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """Await ``work`` as :meth:`Agent.with_deadline` does, until the document or the page is gone.

        Raises :class:`~transports.errors.ContextLost` for a document that is gone, with ``sent`` set to ``False``
        if the work never reached it."""
        if self._gone.done():
            drop(work)
            raise self._lost(sent=False)
        task = asyncio.ensure_future(work)  # a task at once: the page may be lost before the wait begins
        try:
            return await self._owner.with_deadline(self._until_gone(task), action, timeout=timeout)
        except ContextLost as lost:
            if self._owner.is_lost:
                raise
            raise self._lost(sent=lost.sent) from None
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
            # A frame's session ends with the frame. Only the page's own session reports the end of page or browser.
            raise self._lost() from None

    def _lost(self, *, sent: bool | None = None) -> ContextLost:
        return ContextLost("the frame navigated or went away", sent=sent)


#: Separator of a tool's name and the label of its frame. It is not allowed in names of tools.
MARK = "@"
#: Limits: frames with tools of one page, tools of one frame, and characters of a tool's name.
_MAX_FRAMES, _MAX_TOOLS, _MAX_NAME = 64, 500, 128
#: Calls remembered after their end, as a cancellation may come later.
_MAX_SENT = 1000
#: Events of a frame per second: the limit, and the flood after which the frame is left out. Its agent sends fewer
#: (agent.js).
_MAX_FRAME_EVENTS, _FLOOD = 300, 3000
#: Seconds for a frame to list its tools, and for all frames to do so while the page is opened.
_LIST_TIMEOUT, _SETTLE_TIMEOUT = 5.0, 1.0
#: Back-off in seconds between two lists of a frame that keeps changing: first pause, longest pause, and the quiet time
#: after which it starts again.
_FIRST_PAUSE, _LONGEST_PAUSE, _QUIET = 0.05, 5.0, 10.0
#: Labels for a frame of the page's own origin. They cannot look like another origin, whose label has a port.
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_PORTS = {"http": 80, "https": 443}


@dataclass(eq=False, slots=True)
class ToolFrame:
    """A document in a frame, with its ``tools``: qualified name → own name, and entry in the list."""

    document: FrameDocument
    agent: FrameAgent
    number: int
    label: str = ""
    tools: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)
    calls: dict[str, object] = field(default_factory=dict)  # ids of calls under way, oldest first
    rate: Rate = field(default_factory=lambda: Rate(_MAX_FRAME_EVENTS))
    listed: asyncio.Event = field(default_factory=asyncio.Event)  # set after the first list of tools
    stale: bool = False
    reading: bool = False
    pause: float = _FIRST_PAUSE
    changed_at: float = 0.0
    warned: bool = False

    @property
    def origin(self) -> str:
        """The document's origin, as the browser reports it; ``"null"`` if it is opaque."""
        return self.document.origin

    @property
    def url(self) -> str:
        """The document's address."""
        return self.document.url

    @property
    def holder(self) -> str:
        """Prefix of handles of content in this document."""
        return f"frame:{self.number}/"

    @property
    def frame(self) -> Frame | None:
        """Playwright's frame of the document, ``None`` if it is unknown. With CDP it is found by its address."""
        frames = self.agent.page.frames[1:]
        return self.document.frame or next((frame for frame in frames if frame.url == self.url), None)


class FrameTools:
    """The tools in the frames of ``agent``'s page. Implements :class:`~._channel.FrameWatcher`.

    Names, labels and routing of calls are decided here, not in the page: its documents may belong to different owners
    and must not learn of each other's tools through us. Each document with tools has an agent of its own. A document
    that floods events is slowed, then left out.

    ``on_change(removed)`` is called when tools were added, removed or changed, with the names of the removed ones.
    ``on_effect(frame, kind, payload)`` gets the side effects of a frame, with the id of the frame's own call if there
    is one under way.
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
        # call → its frame, also after its end: a cancellation may come later
        self._sent: dict[str, ToolFrame] = {}
        self._gone: dict[str, None] = {}  # names of removed tools, which are not waited for
        self._appeared = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._used = True

    # --- documents ----------------------------------------------------------------------------------------------------

    def came(self, document: FrameDocument) -> None:
        """Add a document in a frame; most documents have no tools."""
        self._frames[document] = ToolFrame(document, FrameAgent(self._agent, document.channel), next(self._numbers))

    def left(self, document: FrameDocument) -> None:
        """Forget a document and its tools. Calls of these tools end at once."""
        if frame := self._frames.pop(document, None):
            frame.agent.leave()
            frame.listed.set()
            self._replace(frame, {})

    def emitted(self, document: FrameDocument, text: object) -> None:
        """Handle an event of a document. Events beyond the rate limit are dropped unparsed."""
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
            logger.warning("the frame %s sends too many events: the rest is left out", _place(frame))

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
        if effect.call not in frame.calls:  # a frame may name its own calls only
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
        """Return a label for the frame, unique on the page. It stays for the life of the document."""
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
        """Read the list of a frame until it is current, with a growing back-off if it keeps changing."""
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
            frame.listed.set()

    async def _list(self, frame: ToolFrame) -> object:
        text = await frame.agent.invoke("list", timeout=_LIST_TIMEOUT, returns=str)
        request = Message("capabilities/list", None)
        if len(text) <= PARSED_ON_LOOP:
            return parse_reply(request, text).payload
        if text.startswith('{"id":'):
            logger.warning("the tools of the frame %s are left out: their list is longer than 2 MB", _place(frame))
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
            self._appeared = True
        self._on_change(removed)

    def listed(self) -> Iterable[dict[str, object]]:
        """Yield the tools of all frames as entries of a page's list, with their qualified names, and with the address
        of their document as ``frame``."""
        for frame in self._frames.values():
            for _, tool in frame.tools.values():
                yield tool

    async def settle(self) -> None:
        """Wait until all frames with tools have listed them, for a second at most."""
        waiting = [frame.listed.wait() for frame in self._frames.values() if frame.label and not frame.listed.is_set()]
        if waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_TIMEOUT):
                    await asyncio.gather(*waiting)

    @property
    def have_tools(self) -> bool:
        """True once a frame has had tools."""
        return self._appeared

    # --- calls --------------------------------------------------------------------------------------------------------

    async def find(self, name: str, *, patience: float) -> tuple[ToolFrame, str] | None:
        """Return the frame that has a tool of this name, and the tool's own name; ``None`` if there is none. An unknown
        tool is waited for up to ``patience`` seconds, a removed one is not."""
        deadline = asyncio.get_running_loop().time() + patience
        while name not in self._names and name not in self._gone and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return self._names.get(name)

    def owner(self, name: str) -> ToolFrame | None:
        """Return the frame that has a tool of this name now."""
        found = self._names.get(name)
        return found[0] if found else None

    def begin(self, frame: ToolFrame, call_id: str) -> None:
        """Record that a call is sent to a frame."""
        frame.calls[call_id] = self._sent[call_id] = frame
        while len(self._sent) > _MAX_SENT:
            del self._sent[next(iter(self._sent))]

    def sent_to(self, call_id: str) -> ToolFrame | None:
        """Return the frame that a call was sent to, or ``None`` if the frame is gone. The call may have ended."""
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
        """Remove the agents from the frames of a page that stays open. This takes two seconds at most."""
        await asyncio.gather(*(self._uninstall(frame) for frame in tuple(self._frames.values())))

    async def _uninstall(self, frame: ToolFrame) -> None:
        with contextlib.suppress(TransportError):
            await frame.agent.invoke("uninstall", timeout=2.0)

    async def aclose(self) -> None:
        """End background work."""
        await cancel_and_wait(self._tasks)


def own_tools(listed: object) -> list[dict[str, Any]]:
    """Return the tools of a document's own list, without those whose name has an ``@``: it marks tools of frames."""
    if not isinstance(listed, list):
        return []
    return [
        one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str) and MARK not in one["name"]
    ]


def _place(frame: ToolFrame) -> str:
    return frame.label or (frame.origin if frame.origin != OPAQUE else "without an origin")
