"""The agent inside a page: the script ``agent.js`` in each document, and the channel to it.

No call into a page has a timeout of its own, and a frozen page never answers. So every wait here has a deadline, and
ends at once when the page or the browser dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from playwright.async_api import Error as PlaywrightError

from .._internal.tasks import discard_unawaited
from ..errors import (
    BrowserCrashed,
    CallTimeout,
    ContextLost,
    Disconnected,
    PageCrashed,
    ProtocolError,
    TransportError,
    first_line,
    no_answer,
)
from ._process import listener
from ._received import convert_received, parse_event
from ._scripts import load_script

if TYPE_CHECKING:
    from playwright.async_api import Page

logger = logging.getLogger("transports.playwright")

#: An opaque origin (of a document that shares its origin with no other), as browsers spell it.
OPAQUE = "null"


class PageObject:
    """An object of the page. ``ref`` is a CDP object id, or Playwright's handle."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any) -> None:
        self.ref = ref


class DevTools(Protocol):
    """Playwright's CDP session, or ours with a frame (:class:`~._frames.FrameSession`)."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]: ...

    def on(self, event: Any, f: Callable[[Any], None]) -> None: ...


@dataclass(eq=False, slots=True)
class FrameDocument:
    """Document of a frame. The browser reports its ``origin``. ``id`` is the frame's id in CDP, if that is known."""

    channel: Channel
    origin: str
    same_origin: bool
    url: str
    id: str = ""


class FrameWatcher(Protocol):
    """Receiver of the documents in frames and of their events. The browser, not the frame, names the document."""

    def add_document(self, document: FrameDocument) -> None: ...

    def remove_document(self, document: FrameDocument) -> None: ...

    def on_emit(self, document: FrameDocument, text: object) -> None: ...


@dataclass(frozen=True, slots=True)
class AgentScript:
    """The agent's script, and how it is run in a page. ``source`` runs before the first script of every later document.
    With ``now``, ``late`` runs in the current document. Both are expressions whose value is the agent, or ``undefined``
    in a frame. The agent emits text through the global function ``binding``, which calls ``on_emit``. With ``frames``,
    the documents in frames have agents, too."""

    source: str
    late: str
    binding: str
    on_emit: Callable[[object], None]
    on_document: Callable[[], None]
    now: bool = False
    frames: FrameWatcher | None = None


class Channel(ABC):
    """Access to the JavaScript of a page or frame. No method here has a deadline: callers wrap each in
    :meth:`Agent.with_deadline`.

    ``target`` is CDP's ``TargetInfo``, from :meth:`install` on. ``agent`` is set once it is known (:meth:`find_agent`).
    """

    cdp: DevTools | None = None
    target: Mapping[str, Any] = {}
    agent: PageObject | None = None

    @abstractmethod
    async def install(self, script: AgentScript) -> None:
        """Run the script in every document from now on.

        Raises :class:`~transports.errors.ProtocolError` if ``late`` throws."""

    @abstractmethod
    async def run(self, expression: str) -> None:
        """Evaluate an expression, whose value is ignored.

        Raises :class:`~transports.errors.ProtocolError` if the expression throws."""

    @abstractmethod
    async def find_agent(self) -> PageObject | None:
        """Return the agent of the current document, or ``None`` if it has none. Never returns while the page hangs."""

    @abstractmethod
    async def ping(self) -> None:
        """Return once the page's scripts have answered."""

    @abstractmethod
    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        """Call a method of an agent. Return its value or, without ``by_value``, a :class:`PageObject`.

        Raises :class:`~transports.errors.ProtocolError` if the method throws."""

    @abstractmethod
    async def set_file(self, element: PageObject, path: Path) -> None: ...

    @abstractmethod
    async def release_object(self, page_object: PageObject) -> None: ...

    @abstractmethod
    async def collect_garbage(self) -> None: ...

    @abstractmethod
    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """Print the page. Return the PDF, or the name of a CDP stream that contains it.

        ``paper_height`` is in inches; with ``None`` the page's own ``@page`` rules decide, or the paper is A4. Raises
        :class:`~transports.errors.UnsupportedBinary` if the browser makes no PDF."""

    def disconnect_frame(self, document: FrameDocument) -> None:
        """Stop listening to the agent of a frame. Channels that cannot do this do nothing."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Undo :meth:`install`, if the page is still there."""


class Rate:
    """Counter of events, with a limit for each second."""

    __slots__ = ("_begun", "count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self._begun = 0.0

    def is_over(self) -> bool:
        """Count an event. Return whether there were more than ``limit`` in this second."""
        now = time.monotonic()
        if now - self._begun >= 1.0:
            self._begun = now
            self.count = 0
        self.count += 1
        return self.count > self.limit


async def evaluate(session: DevTools, expression: str, **options: object) -> Mapping[str, Any]:
    """Return CDP's object for the value of an expression. Raises :func:`start_error` if the expression throws."""
    reply = await session.send("Runtime.evaluate", {"expression": expression, **options})
    if "exceptionDetails" in reply:
        exception = reply["exceptionDetails"].get("exception", {})
        raise start_error(str(exception.get("description", exception.get("value", "?"))))
    return cast("Mapping[str, Any]", reply["result"])


def start_error(description: str) -> ProtocolError:
    return ProtocolError(
        f"the session cannot begin in this page: {first_line(description)}; connect before the page's scripts run "
        "(without page=)"
    )


# Playwright has no error types for the following events, so they are recognised by their messages.
#: After the end of the page, of the browser or of the connection to it.
_CLOSED_MESSAGES = (
    "Target crashed",
    "has been closed",
    "Target closed",
    "Connection closed",
    "Session closed",
    "browser has disconnected",
)
#: After the page navigated or was reloaded, before the command can have reached the page's script.
_NOT_SENT_MESSAGES = ("Cannot find context", "Could not find object")
#: After the page navigated or was reloaded.
_NAVIGATED_MESSAGES = (
    *_NOT_SENT_MESSAGES,
    "navigated or closed",
    "context was destroyed",
    "Promise was collected",
    "JSHandle is disposed",
)


def is_closed(error: Exception) -> bool:
    """Return whether an error of Playwright means the end of the page, of its browser or of the driver."""
    return any(text in str(error) for text in _CLOSED_MESSAGES)


T = TypeVar("T")

#: Bytes of content per answer that travel inside the answer (measured: inline is faster up to here).
INLINE_BYTES = 256 * 1024
#: Seconds to wait for the event that explains why a page was closed.
_CLOSE_DELAY = 0.25
#: Names, in error messages, of the agent's methods that are requests of the protocol.
_REQUESTS = {"call": "", "initialize": "initialize", "list": "capabilities/list", "cancel": "capabilities/cancel"}
_INSPECTING = "inspecting the page"


@dataclass(frozen=True, slots=True)
class Document:
    """Current document of an agent. ``origin`` is ``"null"`` if it is opaque. ``domain`` is the registrable domain of
    its host, empty if it is not known. ``base`` is the address that its ``<base>`` sets for relative addresses, or an
    empty text."""

    agent: PageObject
    origin: str
    domain: str
    base: str


class Agent(ABC):
    """Access to the agent in the current document of a page or frame. Every wait has a deadline."""

    page: Page
    channel: Channel
    _document: Document | None = None

    @property
    def cdp(self) -> DevTools:
        assert self.channel.cdp is not None  # callers check this first
        return self.channel.cdp

    @abstractmethod
    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """Await ``work`` on the document until it ends, the document is gone, or ``timeout`` seconds have passed.

        ``action`` names the work in messages. Raises the reason why the document is gone,
        :class:`~transports.errors.CallTimeout`, or an error of this kit in place of Playwright's. Work that is given up
        is cancelled in the background, and its outcome ignored."""

    async def send(self, method: str, params: Mapping[str, object] | None = None, *, timeout: float) -> dict[str, Any]:
        """Send a CDP command and return its reply. Raises as :meth:`with_deadline`."""
        reply: dict[str, Any] = await self.with_deadline(
            self.cdp.send(method, dict(params or {})), method, timeout=timeout
        )
        return reply

    async def document(self, *, timeout: float) -> Document:
        agent = await self._find_agent(timeout)
        if self._document is None or self._document.agent is not agent:
            origin, base, domain = await asyncio.gather(
                self.invoke("origin", timeout=timeout, returns=str, agent=agent),
                self.invoke("base", timeout=timeout, returns=str, agent=agent),
                self._registrable_domain(timeout),
            )
            self._document = Document(agent, origin, domain, base)
        return self._document

    async def _registrable_domain(self, timeout: float) -> str:
        """Return the registrable domain of the page: the browser has the Public Suffix List. It is empty for a numeric
        address, and without CDP."""
        if self.channel.cdp is None:
            return ""
        tree = await self.send("Page.getFrameTree", timeout=timeout)
        return str(tree["frameTree"]["frame"].get("domainAndRegistry", ""))

    async def _find_agent(self, timeout: float) -> PageObject:
        agent = self.channel.agent
        if agent is None:
            agent = await self.with_deadline(self.channel.find_agent(), _INSPECTING, timeout=timeout)
        if agent is None:
            raise ContextLost("cannot install scripts in this document (is it a PDF or a browser page?)")
        return agent

    async def invoke(
        self,
        method: str,
        *args: object,
        timeout: float,
        returns: type[T] = object,  # type: ignore[assignment]
        agent: PageObject | None = None,
    ) -> T:
        """Call a method of ``agent``, by default of the current document's.

        A :class:`PageObject` is passed, or returned, as a reference to an object of the page. Raises
        :class:`~transports.errors.ProtocolError` if the method throws, or if its result is of another type."""
        if agent is None:
            agent = await self._find_agent(timeout)
        call = self.channel.invoke(agent, method, args, by_value=returns is not PageObject)
        result: T = await self.with_deadline(call, _REQUESTS.get(method, f"`{method}`"), timeout=timeout)
        if isinstance(result, returns):
            return result
        return convert_received(result, returns, f"the result of {method}")

    async def set_file(self, element: PageObject, path: Path, *, timeout: float) -> None:
        await self.with_deadline(self.channel.set_file(element, path), "choosing a file", timeout=timeout)

    async def release_object(self, page_object: PageObject, *, timeout: float = 5.0) -> None:
        await self.with_deadline(self.channel.release_object(page_object), "forgetting", timeout=timeout)


class PageAgent(Agent):
    """The agent of a page's main document.

    ``on_loss(error)`` is called once, as soon as the app is known to be gone. It returns the error for the calls under
    way and for later calls: its message adds whether the page is opened again or the session is over.

    ``on_event(kind, payload)`` is called in the event loop for every event of the page: ``notification``, ``progress``,
    ``elicitation``, ``capabilities``, and the kinds of :meth:`PageEffects.on_event
    <transports.playwright._effects.PageEffects.on_event>`. Invalid events are dropped, with one warning."""

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
        #: Name of the page's function through which the agent sends events.
        self._binding = f"_{secrets.token_hex(8)}"
        # The agent never sends so many events a second: they come from a script that impersonates it.
        self._rate = Rate(5000)
        self._has_warned = False
        self._ends_on_navigation = False
        self._on_navigated: Callable[[], object] | None = None

        #: Done once the app is gone, with the reason. Only :meth:`mark_lost` and :meth:`stop_listening` set it.
        self.lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
        self._browser = page.context.browser
        page.on("crash", self._on_crash)
        page.on("close", self._on_close)
        if self._browser is not None:
            self._browser.on("disconnected", self.on_disconnect)

    async def install(self, *parts: str, now: bool = False, frames: FrameWatcher | None = None, **options: str) -> None:
        """Install the agent in every document of the page.

        ``parts`` are further scripts, the arguments of ``agent.js``; ``options`` are added to its configuration. With
        ``now``, the document that is loaded already gets the agent, too. With ``frames``, each document in a frame has
        another agent, whose events go to ``frames``."""
        configuration = {
            "binding": self._binding,
            "inline": INLINE_BYTES,
            # Characters of JSON in a direct answer (measured: a file is faster for longer JSON).
            "longest": 2 << 20,
            "borrowed": now,
            **options,
        }
        scripts = [load_script(name) for name in ("natives.js", *parts)]

        def source_with(options: Mapping[str, object]) -> str:
            arguments = ", ".join((json.dumps(options), *scripts))
            return f"({load_script('agent.js')})({arguments})"

        await self.channel.install(
            AgentScript(
                source=source_with(configuration),
                late=source_with({**configuration, "late": True}),
                binding=self._binding,
                on_emit=self._on_emit,
                on_document=self._on_document,
                now=now,
                frames=frames,
            )
        )

    async def uninstall(self) -> None:
        """Remove the agent from a page that stays open. Takes about four seconds at most."""
        step_timeout = 2.0
        with contextlib.suppress(TransportError):
            if self.channel.agent is not None:
                await self.invoke("uninstall", timeout=step_timeout)
        with contextlib.suppress(TransportError):
            await self.with_deadline(self.channel.close(), "leaving the page", timeout=step_timeout)
        self.stop_listening()

    def stop_listening(self) -> None:
        self.page.remove_listener("crash", self._on_crash)
        self.page.remove_listener("close", self._on_close)
        if self._browser is not None:
            self._browser.remove_listener("disconnected", self.on_disconnect)
        # No event reports the end of the page any more. A call still under way would take it for the driver's end.
        if not self.lost.done():
            self.lost.set_result(Disconnected("the page was left"))

    def _on_emit(self, text: object) -> None:
        """Deliver an event. If there are too many in a second, give the page up for this session."""
        if self.is_lost:
            return
        # Count the event before parsing, which costs time.
        if self._rate.is_over():
            self.end_flood()
        else:
            self.deliver(text, to=self._on_event)

    def end_flood(self) -> None:
        self.mark_lost(Disconnected("the page sent far more events than the limit (docs/security.md); it was given up"))

    def deliver(self, text: object, *, to: Callable[[str, Any], None]) -> None:
        """Parse an event and pass it on. Invalid events are logged only: no call could raise their error."""
        try:
            kind, payload = parse_event(text)
        except ProtocolError as error:
            level = logging.DEBUG if self._has_warned else logging.WARNING
            logger.log(level, "an event is ignored: %s", error.message)
            self._has_warned = True
        else:
            to(kind, payload)

    def lose_on_navigation(self) -> None:
        """Give the app up if its page navigates (docs/faults.md 10), unless :meth:`survive_navigation` was called."""
        self._ends_on_navigation = self._on_navigated is None

    def survive_navigation(self, on_navigated: Callable[[], object]) -> None:
        """Call ``on_navigated`` when the page navigates, and fail only the calls under way."""
        self._on_navigated = on_navigated

    def _on_document(self) -> None:
        if self._ends_on_navigation:
            self.mark_lost(ContextLost("the page navigated or reloaded"))
        elif self._on_navigated is not None:
            self._on_navigated()

    @listener
    def _on_crash(self, _: Page) -> None:
        self.mark_lost(PageCrashed("the page's renderer crashed"))

    @listener
    def on_disconnect(self, _: object) -> None:
        self.mark_lost(BrowserCrashed("the browser is gone"))

    @listener
    def _on_close(self, _: Page) -> None:
        """Report the end of the page in a moment: a dying browser closes its pages first, and then its crash is the
        reason to report."""
        reason = Disconnected("the page was closed")
        asyncio.get_running_loop().call_later(_CLOSE_DELAY, self.mark_lost, reason)

    @property
    def is_lost(self) -> bool:
        return self.lost.done()

    async def check_responsive(self) -> None:
        """Give the page up if it does not answer for a second: its script may hang in a loop (docs/faults.md 5)."""
        try:
            await self.with_deadline(self.channel.ping(), _INSPECTING, timeout=1.0)
        except CallTimeout:
            self.mark_lost(Disconnected("the page stopped responding"))

    def mark_lost(self, error: TransportError) -> None:
        """Fail the calls under way and later ones. Only the first error counts."""
        if not self.lost.done():
            reason = self._on_loss(error)
            # on_loss() may have called this method, as it notifies all sessions of the browser.
            if not self.lost.done():
                self.lost.set_result(reason)

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        if self.lost.done():
            discard_unawaited(work)
            raise self.loss_error()

        # Run the work in a task, whose stack has none of our functions: Playwright reads the stack of each call.
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.lost), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if self.lost.done():
                raise self.loss_error()
            raise no_answer(action, timeout)
        except PlaywrightError as error:
            if any(text in error.message for text in (*_CLOSED_MESSAGES, *_NAVIGATED_MESSAGES)):
                # Wait for an event that may bring the real reason.
                await asyncio.wait((self.lost,), timeout=2 * _CLOSE_DELAY)
            raise self._map_error(error) from None
        except Exception as error:
            if "Connection closed while reading from the driver" in str(error):
                self.mark_lost(BrowserCrashed("the browser's driver has ended"))
            if self.lost.done():
                raise self.loss_error() from None
            raise
        finally:
            if not task.done():
                discard_unawaited(task)

    def loss_error(self, *, sent: bool | None = None) -> TransportError:
        """Return a new error with the reason why the app is gone, for one call."""
        lost = self.lost.result()
        return type(lost)(lost.message, retryable=lost.retryable, sent=sent)

    def _map_error(self, error: PlaywrightError) -> TransportError:
        """Return the error of this kit for an error of Playwright."""
        if self.lost.done():
            return self.loss_error()

        message = first_line(error)
        if any(text in message for text in _NAVIGATED_MESSAGES):
            lost = self._on_loss(ContextLost("the page navigated or reloaded while it worked"))
            if any(text in message for text in _NOT_SENT_MESSAGES):
                lost.sent = False
            return lost
        if any(text in message for text in _CLOSED_MESSAGES):
            # No event has reported the end, so the driver, which sends the events, has died.
            self.mark_lost(BrowserCrashed("the browser's driver has ended"))
            return self.loss_error()
        return TransportError(f"the browser refused: {message}")
