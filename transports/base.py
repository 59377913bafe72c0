"""The Transport contract: how messages and content travel between a session and one app.

A transport moves :class:`~transports.Message` values and content. It knows nothing of artifacts, retries or results.
Third parties implement :class:`Transport` and register it under the entry-point group ``abp.transports``
(``docs/write-a-transport.md``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypedDict, runtime_checkable

from .binary import BinaryData, Handle
from .errors import TransportError
from .protocol.messages import Message, Sender
from .telemetry import traced

__all__ = [
    "Clip",
    "Features",
    "Fetch",
    "PageTools",
    "PdfMargins",
    "PdfOptions",
    "ResourcePage",
    "ResourceTools",
    "ScreenshotOptions",
    "Transport",
    "WebResource",
]


@dataclass(frozen=True, slots=True)
class Features:
    """The abilities of a transport beyond calls.

    ``listing``: it answers ``capabilities/list`` (docs/protocol.md 2.4: only page objects have that; envelopes do not).
    ``reconnects``: it opens a lost connection again by itself and says so with the events ``connection/lost`` and
    ``connection/restored``. Requests under way at the break fail with ``DISCONNECTED``; one that was never sent says so
    by ``details["sent"] = False``.
    ``cookies``: the far side holds cookies that a download from its origin may need.
    ``presets``: the far side speaks another protocol than ABP (MCP). Where the caller gives no routing policy, the
    preset for the name that it gives itself applies (:func:`transports.routing.preset`).
    ``appends``: :meth:`Transport.save` writes a file from its beginning to its end and never changes what it wrote, so
    that its hash can be computed meanwhile.
    """

    listing: bool = False
    reconnects: bool = False
    cookies: bool = False
    presets: bool = False
    appends: bool = False


class PdfMargins(TypedDict, total=False):
    """Margins of a PDF: a number of CSS pixels, or a text with a unit (``"1cm"``, ``"0.5in"``)."""

    top: str | float
    right: str | float
    bottom: str | float
    left: str | float


class PdfOptions(TypedDict, total=False):
    """The options of ``render_to_pdf``: those of Playwright's ``page.pdf`` without ``path``.

    ``width`` and ``height`` are as :class:`PdfMargins`; ``format`` is the name of a paper size (``"A4"``) and goes
    before them. ``scale`` is from 0.1 to 2; ``page_ranges`` such as ``"1-5, 8"``. ``print_background`` is on unless
    it is given as ``False``.
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
    """A rectangle of a page, in CSS pixels."""

    x: float
    y: float
    width: float
    height: float


class ScreenshotOptions(TypedDict, total=False):
    """The options of ``screenshot``: those of Playwright's ``page.screenshot`` without ``path``, and three of ours.

    ``url`` is an ``http(s)`` address to take a picture of in place of the app's page. It is opened in a page that sees
    nothing of the app, and the picture waits until the network is idle, for 15 seconds at most. ``width`` and
    ``height`` are the size of the view in CSS pixels, at most 1920 × 1080: 1280 × 800 for a ``url``, else the page's
    own, which it has again afterwards.

    ``quality`` is from 0 to 100, for JPEG only; ``style`` is a style sheet that is applied meanwhile. Playwright's
    ``mask`` and ``mask_color`` are missing: they take locators, which exist only beside a page.
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
class WebResource:
    """What an address on the web answered: the headers that a browser needs to use the ``body``, and no others."""

    body: bytes
    headers: Mapping[str, str]


class Fetch(Protocol):
    """A way to the web for HTML that has no network of its own."""

    async def __call__(self, url: str, accept: str, max_bytes: int) -> WebResource:
        """Return what is at ``url``. Raises :class:`~transports.errors.ABPError` for what may not be fetched, cannot be
        fetched or has more than ``max_bytes``."""


@runtime_checkable
class PageTools(Protocol):
    """The tools of a transport that has a page, besides calls. ``timeout`` is in seconds, unlike Playwright's own.

    Both raise :class:`~transports.errors.UsageError` for an option that does not exist or that the browser refuses, and
    :class:`~transports.errors.CallTimeout`.
    """

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float, fetch: Fetch | None) -> BinaryData:
        """Return ``html`` as a PDF. It is rendered in a page of its own without a network; the app's page does not
        change. What it refers to is read with ``fetch``, if there is one."""

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
        """Return an image of the app's page as it is now, or of another address."""


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """One page of a list of resources or templates, as the far side sends it. ``cursor`` asks for the next page, and is
    ``None`` on the last one."""

    items: Sequence[object]
    cursor: str | None = None


@runtime_checkable
class ResourceTools(Protocol):
    """The tools of a transport that has resources (MCP), beside calls. ``timeout`` is in seconds.

    All raise :class:`~transports.errors.CapabilityError` where the far side refuses, and the errors of
    :meth:`Transport.request`.
    """

    @property
    def has_resources(self) -> bool:
        """Whether the far side declares that it has resources."""

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return a page of ``resources/list``, the first one for ``cursor=None``."""

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return a page of ``resources/templates/list``, the first one for ``cursor=None``."""

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        """Return ``{contents: [{uri, mimeType?, text | blob}], ttl?}``, with content as in :meth:`Transport.request`.
        ``ttl`` is how many seconds it may be kept, where the far side says so."""

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Ask for the notification ``notifications/resources/updated`` ``{uri}`` at every change."""

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Ask for no more of these notifications."""


class Transport(ABC):
    """One connection to one app. :meth:`open`, :meth:`aclose` and :meth:`request` must be written; the rest has
    defaults for a wire that needs no more: no events, no content that stays on the far side, no cookies.

    ``async with transport:`` opens it and closes it, both in one task. Between the two, any number of requests may be
    under way at once. A transport is opened once and not used again after it was closed. Errors are those of
    :mod:`transports.errors`; a foreign exception never leaves it.
    """

    #: Name shown to people and used in results: ``playwright``, ``websocket``, … Lower case, as in a URL scheme.
    name: str
    features: Features = Features()

    @property
    def url(self) -> str | None:
        """The address of the app as it is now, or ``None`` if the app has none, which is the default. Relative download
        URLs are resolved against it, and its origin is the app's own."""
        return None

    def receiver(self, message: Message) -> str | None:
        """Return the address of who would receive a request or an answer now: :attr:`url`, unless other documents than
        the app's own, or other servers, take some of the messages. A secret goes to its origin only."""
        return self.url

    @property
    def server_address(self) -> tuple[str, int] | None:
        """The numeric address and the port at which the app at :attr:`url` was reached, or ``None`` if they are not
        known, which is the default. Downloads from the app's own origin may go to a private address only if it is this
        one, unless the host of :attr:`url` is itself numeric or ``localhost``."""
        return None

    @property
    def rungs(self) -> Mapping[str, int]:
        """How many contents each rung of a ladder has moved out of the app so far, by its name (docs/performance.md).
        The default has none: all content comes inside the replies."""
        return {}

    @abstractmethod
    async def open(self) -> None:
        """Connect. Called once. Raises :class:`~transports.errors.TransportError`, after which :meth:`aclose` is
        called."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connection. Safe to call again, and after a failed :meth:`open`. Bounded in time: what does not end
        is killed. Requests under way fail with :class:`~transports.errors.Disconnected`, and :meth:`events` ends."""

    @abstractmethod
    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send one request and return its reply. ``timeout`` in seconds, ``math.inf`` for no limit.

        Requests are ``initialize``, ``capabilities/call``, ``capabilities/cancel``, and ``capabilities/list`` with the
        feature ``listing``. ``message.id`` may be ``None``: a wire that needs an id gives it one. Binary content in the
        reply stands where it stood in the app's answer, as :class:`~transports.BinaryData` (``bytes`` or a
        :class:`~transports.binary.Handle`) or :class:`~transports.binary.Broken`; base64 text stays text.

        If the awaiting task is cancelled, the reply is dropped when it comes; the session tells the app. Raises
        :class:`~transports.errors.CallTimeout` at the deadline, :class:`~transports.errors.Disconnected` if the app is
        gone, :class:`~transports.errors.ProtocolError` if the reply cannot be read.
        """

    async def notify(self, message: Message) -> None:
        """Send a message that has no reply: ``shutdown``, ``elicitation/response``. The default sends nothing, which
        suits a wire over which no app can ask and none waits for an end."""
        return

    async def events(self) -> AsyncIterator[Message]:
        """Iterate over ``notification``, ``progress`` and ``elicitation/request`` messages, in order, each once, until
        the transport closes. For one consumer. The default has none and ends at once."""
        return
        yield  # makes this an asynchronous generator

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Fetch content that stayed on the far side into a new file at ``path``, within ``timeout`` seconds for all of
        it. If that fails, part of the file may be left behind: the caller owns the path. The default raises
        :class:`~transports.errors.TransportError`, since only a transport that returns handles is asked for them."""
        raise TransportError(f"over {self.name} no content stays with the app; call again")

    async def release(self, handle: Handle) -> None:
        """Let the far side forget content. Never raises, and ignores unknown handles. The default does nothing."""
        return

    async def cookies(self, url: str, sender: Sender | None = None) -> Mapping[str, str]:
        """Return the cookies that the far side would send to ``url``, on behalf of the document ``sender`` if a reply
        had one. The default has none."""
        return {}

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
