"""The transport contract: messages and content between a session and one app.

A transport moves :class:`~transports.Message` values and content; artifacts, retries and results are the session's.
Third parties implement :class:`Transport` and register it under the entry-point group ``abp.transports``
(``docs/write-a-transport.md``). What a transport can do beyond calls is in its :class:`Features`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypedDict

from ._internal.telemetry import traced
from .errors import TransportError
from .protocol.binary import Download, Handle
from .protocol.messages import Fetch, Message, Sender, WebResource

if TYPE_CHECKING:
    from .artifacts._base import ArtifactStore, Staged

__all__ = [
    "Clip",
    "Features",
    "Fetch",
    "Fetched",
    "PdfMargins",
    "PdfOptions",
    "ScreenshotOptions",
    "Transport",
    "WebResource",
    "WrappedTransport",
]


@dataclass(frozen=True, slots=True)
class Features:
    """Abilities of a transport beyond calls.

    ``listing``: it answers ``capabilities/list`` (docs/protocol.md 2.4: only page objects have that; envelopes do not).
    ``reconnects``: it restores a lost connection by itself and reports that with the events ``connection/lost`` and
    ``connection/restored``, between them ``connection/waiting`` with the reason why an attempt has failed. Pending
    requests fail with ``DISCONNECTED``, those that were never sent with :attr:`~transports.errors.ABPError.sent`
    ``False``.
    ``cookies``: the far side holds cookies that a download from its origin may need.
    ``presets``: the far side speaks another protocol than ABP (MCP). Without a routing policy of the caller, the preset
    for the server's own name applies (:func:`transports.routing.preset`).
    ``appends``: :meth:`Transport.save` writes a file from its beginning to its end and never changes written bytes, so
    that its hash can be computed meanwhile.
    ``undeclared``: the app is made of a page's tools or by an adapter, so that the page has no manifest.
    ``page``, ``resources``, ``views``: it also serves the requests of these names, which :meth:`Transport.request`
    describes. They are known once the transport is open.
    """

    listing: bool = False
    reconnects: bool = False
    cookies: bool = False
    presets: bool = False
    appends: bool = False
    undeclared: bool = False
    page: bool = False
    resources: bool = False
    views: bool = False


class PdfMargins(TypedDict, total=False):
    """Margins of a PDF: a number of CSS pixels, or a text with a unit (``"1cm"``, ``"0.5in"``)."""

    top: str | float
    right: str | float
    bottom: str | float
    left: str | float


class PdfOptions(TypedDict, total=False):
    """Options of ``render_to_pdf``: those of Playwright's ``page.pdf`` without ``path``.

    ``width`` and ``height`` are as :class:`PdfMargins`; ``format`` is the name of a paper size (``"A4"``) and overrides
    them. ``scale`` is from 0.1 to 2; ``page_ranges`` are such as ``"1-5, 8"``. ``print_background`` is on by default.
    Without ``format``, ``width`` and ``height`` the ``@page`` rules of the page decide, or the paper is A4.
    """

    display_header_footer: bool
    footer_template: str
    format: str
    header_template: str
    height: str | float
    landscape: bool
    margin: PdfMargins
    outline: bool
    page_ranges: str
    prefer_css_page_size: bool
    print_background: bool
    scale: float
    tagged: bool
    width: str | float


class Clip(TypedDict):
    """Rectangle of a page, in CSS pixels."""

    x: float
    y: float
    width: float
    height: float


class ScreenshotOptions(TypedDict, total=False):
    """Options of ``screenshot``: those of Playwright's ``page.screenshot`` without ``path``, and three of the kit.

    ``url`` is an ``http(s)`` address to take a picture of, instead of the app's page. It is opened in a page isolated
    from the app, and the picture waits until the network is idle, for 15 seconds at most. ``width`` and ``height`` are
    the size of the view in CSS pixels, at most 1920 × 1080. The default is 1280 × 800 for a ``url``, else the page's
    own size, which is restored afterwards.

    ``quality`` is from 0 to 100, for JPEG only; ``style`` is a temporary style sheet. Playwright's ``mask`` and
    ``mask_color`` are missing: they take locators, which exist only beside a page.
    """

    animations: Literal["allow", "disabled"]
    caret: Literal["hide", "initial"]
    clip: Clip
    full_page: bool
    height: int
    omit_background: bool
    quality: int
    scale: Literal["css", "device"]
    style: str
    type: Literal["jpeg", "png"]
    url: str
    width: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a download, from the headers of the final answer.

    ``filename`` is untrusted. ``attempts`` counts the requests for the file. ``left_origin`` is true if a redirect led
    away from the URL's own origin. ``warnings`` are for the result of the call.
    """

    content_type: str | None = None
    filename: str | None = None
    attempts: int = field(default=1, compare=False)
    left_origin: bool = field(default=False, compare=False)
    warnings: Sequence[str] = ()


class Transport(ABC):
    """Base of transports: one connection to one app.

    :meth:`open`, :meth:`aclose` and :meth:`request` are abstract. The defaults of the other methods fit a simple wire:
    no events, no content that stays on the far side, no cookies.

    ``async with transport:`` opens it and closes it, both in one task. In between, any number of requests may run
    concurrently. A transport is opened once, and not used again after it was closed. It raises only errors of
    :mod:`transports.errors`, never a foreign exception.
    """

    #: Name for people and in results: ``playwright``, ``websocket``, … Lower case, as in a URL scheme.
    name: str
    features: Features = Features()

    @property
    def url(self) -> str | None:
        """Current address of the app, or ``None`` if the app has none, which is the default.

        Relative download URLs are resolved against it, and its origin is the app's own."""
        return None

    def receiver(self, message: Message) -> str | None:
        """Return the address that would receive a request or an answer now.

        That is :attr:`url`, unless other documents or servers than the app's own receive some of the messages. A secret
        is sent only if this address has an allowed origin."""
        return self.url

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Numeric address and port at which the app at :attr:`url` was reached, or ``None`` (the default) if unknown.

        Downloads from the app's own origin may use no other private address, unless the host of :attr:`url` is itself
        numeric or ``localhost``."""
        return None

    @property
    def rungs(self) -> Mapping[str, int]:
        """Number of contents that each rung has moved out of the app so far, by its name (docs/performance.md).

        Rungs are the ways of a transport to move content, from the fastest down. The default has none: all content
        comes inside the replies."""
        return {}

    @abstractmethod
    async def open(self) -> None:
        """Connect. Called once. Raises :class:`~transports.errors.TransportError`; then :meth:`aclose` is called."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connection. Idempotent; also called after a failed :meth:`open`.

        Bounded in time: processes that do not end are killed. Pending requests fail with
        :class:`~transports.errors.Disconnected`, and :meth:`events` ends."""

    @abstractmethod
    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send one request and return its reply. ``timeout`` is in seconds; ``math.inf`` is no limit.

        Requests are ``initialize``, ``capabilities/call``, ``capabilities/cancel``, and ``capabilities/list`` with the
        feature ``listing``. ``message.id`` may be ``None``: a wire that needs an id makes one. Binary content in the
        reply has the place that it had in the app's answer, as :class:`~transports.BinaryData` (``bytes`` or a
        :class:`~transports.protocol.binary.Handle`) or
        :class:`~transports.protocol.binary.Broken`; base64 text stays text.

        With the feature ``page``, ``page/pdf`` ``{html, options}`` (:class:`PdfOptions`) prints HTML in a page of its
        own without a network, and ``page/screenshot`` with :class:`ScreenshotOptions` takes a picture. The reply to
        both is a :class:`~transports.BinaryData`. Both raise :class:`~transports.errors.UsageError` for an option that
        does not exist or that the browser refuses.

        With the feature ``resources``, ``resources/list``, ``resources/templates/list`` (both ``{cursor?}``),
        ``resources/read``, ``resources/subscribe`` and ``resources/unsubscribe`` (``{uri}``) are those of MCP. Content
        in a reply to ``resources/read`` is as above, and its ``ttl`` is the time in seconds that a cache may keep it. A
        subscription leads to the notification ``notifications/resources/updated`` ``{uri}`` at every change. With the
        feature ``views``, ``view/request`` ``{method, params}`` is a request of a view to its server, answered by the
        server's result, and ``view/listed`` ``{uri, read}`` returns ``{listed}``: the entry of a view in the server's
        list of resources, or ``None`` if its document (``read``, the result of ``resources/read``) declares its policy
        itself, or if it is not listed. All raise :class:`~transports.errors.CapabilityError` if the server refuses.

        If the awaiting task is cancelled, a later reply is dropped; the session sends the cancellation to the app.
        Raises :class:`~transports.errors.CallTimeout` at the deadline, :class:`~transports.errors.Disconnected` if the
        app is gone, :class:`~transports.errors.ProtocolError` if the reply cannot be read.
        """

    async def notify(self, message: Message) -> None:
        """Send a message that has no reply: ``shutdown``, ``elicitation/response``.

        The default sends nothing: it fits a wire whose apps ask no questions and need no ``shutdown``."""
        return

    async def events(self) -> AsyncIterator[Message]:
        """Yield ``notification``, ``progress`` and ``elicitation/request`` messages, in order, each once.

        Ends when the transport closes. For one consumer. The default has no messages and ends at once."""
        return
        yield  # makes this an asynchronous generator

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Fetch content that stayed on the far side into a new file at ``path``, within ``timeout`` seconds in total.

        If that fails, part of the file may be left behind: the caller owns the path. The default raises
        :class:`~transports.errors.TransportError`, since only a transport that returns handles needs this method."""
        raise TransportError(f"over {self.name} no content stays with the app; call again")

    async def release(self, handle: Handle) -> None:
        """Let the far side forget content. Never raises, and ignores unknown handles. The default does nothing."""
        return

    async def cookies(self, url: str, sender: Sender | None = None) -> Mapping[str, str]:
        """Return the cookies that the far side would send to ``url``, on behalf of the document ``sender`` if given.

        The default has none."""
        return {}

    def use_store(self, store: ArtifactStore) -> None:
        """Take the store of the session, before :meth:`open`: for its limits, or to store artifacts in it.

        Answers may contain the references that the store returned; the routing recognises them. The default ignores
        the store."""
        return

    async def fetch_download(
        self, reference: Download, staged: Staged, fetch: Callable[[Staged], Awaitable[Fetched]]
    ) -> Fetched:
        """Fill ``staged`` with the content of ``reference``, which an answer refers to.

        The default awaits ``fetch``, which downloads it over the network. A recording and a replay do otherwise."""
        return await fetch(staged)

    async def __aenter__(self) -> Self:
        try:
            await traced(self.open(), "abp.open", {"abp.transport": self.name})
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


class WrappedTransport(Transport):
    """A transport that delegates everything to ``wrapped``. Subclasses extend some of the methods."""

    def __init__(self, wrapped: Transport) -> None:
        self.wrapped = wrapped
        self._follow()

    def _follow(self) -> None:
        """Copy the name and the features of the wrapped transport. They may change with an operation: ``auto`` chooses
        its transport when the page has loaded."""
        self.name = self.wrapped.name
        self.features = self.wrapped.features

    def use_store(self, store: ArtifactStore) -> None:
        self.wrapped.use_store(store)

    @property
    def url(self) -> str | None:
        return self.wrapped.url

    def receiver(self, message: Message) -> str | None:
        return self.wrapped.receiver(message)

    @property
    def server_address(self) -> tuple[str, int] | None:
        return self.wrapped.server_address

    @property
    def rungs(self) -> Mapping[str, int]:
        return self.wrapped.rungs

    async def open(self) -> None:
        await self.wrapped.open()
        self._follow()

    async def aclose(self) -> None:
        await self.wrapped.aclose()

    async def request(self, message: Message, *, timeout: float) -> Message:
        try:
            return await self.wrapped.request(message, timeout=timeout)
        finally:
            self._follow()

    async def notify(self, message: Message) -> None:
        await self.wrapped.notify(message)

    async def events(self) -> AsyncIterator[Message]:
        async for message in self.wrapped.events():
            yield message

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        await self.wrapped.save(handle, path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        await self.wrapped.release(handle)

    async def cookies(self, url: str, sender: Sender | None = None) -> Mapping[str, str]:
        return await self.wrapped.cookies(url, sender)

    async def fetch_download(
        self, reference: Download, staged: Staged, fetch: Callable[[Staged], Awaitable[Fetched]]
    ) -> Fetched:
        return await self.wrapped.fetch_download(reference, staged, fetch)
