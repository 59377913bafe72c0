"""The Transport contract: how bytes and messages travel between a session and one app.

A transport moves :class:`~transports.Message` values and content; it knows nothing of artifacts, retries or
results. Third parties implement this class and register it under the entry-point group ``abp.transports``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypedDict, runtime_checkable

from .binary import BinaryData, Handle
from .protocol.messages import Message

__all__ = [
    "Clip",
    "Features",
    "PageTools",
    "PdfMargins",
    "PdfOptions",
    "ResourcePage",
    "ResourceTools",
    "ScreenshotOptions",
    "Transport",
]


@dataclass(frozen=True, slots=True)
class Features:
    """What a transport can do beyond calls.

    ``listing``: it answers ``capabilities/list`` (PROTOCOL: only page objects have that; envelopes do not).
    ``reconnects``: a lost connection is opened again by the transport, which says so with the events
    ``connection/lost`` and ``connection/restored``; requests under way at the break fail with ``DISCONNECTED``, and one
    that was never sent says so by ``details["sent"] = False``.
    ``cookies``: the far side holds cookies that a download from its origin may need.
    ``presets``: the far side speaks another protocol than ABP (MCP); where the caller gives no routing policy, the
    preset for the name that it gives itself applies (:func:`transports.routing.preset`).
    """

    listing: bool = False
    reconnects: bool = False
    cookies: bool = False
    presets: bool = False


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
    """The options of ``screenshot``: those of Playwright's ``page.screenshot`` without ``path``.

    ``quality`` is from 0 to 100, for JPEG only; ``style`` is a style sheet that is applied meanwhile. Playwright's
    ``mask`` and ``mask_color`` are missing: they take locators, which exist only beside a page.
    """

    animations: Literal["allow", "disabled"]
    caret: Literal["hide", "initial"]
    clip: Clip
    full_page: bool
    omit_background: bool
    quality: int
    scale: Literal["css", "device"]
    style: str
    type: Literal["jpeg", "png"]


@runtime_checkable
class PageTools(Protocol):
    """What a transport with a page can do besides calls.

    ``timeout`` is in seconds. Both methods raise :class:`~transports.errors.UsageError` for an option that does not
    exist or that the browser refuses, and :class:`~transports.errors.CallTimeout`.
    """

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float) -> BinaryData:
        """Return ``html`` as a PDF."""

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
        """Return a picture of the app's page."""


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """A page of resources or templates as the far side lists them, and the ``cursor`` of the next one."""

    items: Sequence[object]
    cursor: str | None = None


@runtime_checkable
class ResourceTools(Protocol):
    """What a transport with resources (MCP) can do beside calls. Raises
    :class:`~transports.errors.CapabilityError` where the far side refuses, and as :meth:`Transport.request`."""

    @property
    def has_resources(self) -> bool:
        """Whether the far side has any, as far as it says."""

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """A page of ``resources/list``."""

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """A page of ``resources/templates/list``."""

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        """``{contents: [{uri, mimeType?, text | blob}], ttl?}``: content as in :meth:`Transport.request`; ``ttl`` is
        how many seconds it may be kept, where the far side says so."""

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Have changes told, as notifications ``notifications/resources/updated`` with ``{uri}``."""

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Have them told no more."""


class Transport(ABC):
    """One connection to one app.

    ``async with transport:`` opens it and closes it, in one task. Opening raises
    :class:`~transports.errors.TransportError`. Closing is idempotent and bounded in time: what does not end is killed.
    Between the two, any number of requests may be under way at once.
    """

    #: Name shown to people and used in results: ``playwright``, ``websocket``, …
    name: str
    features: Features = Features()

    @property
    @abstractmethod
    def url(self) -> str | None:
        """Address of the app as it is now: relative download URLs are resolved against it, and its origin is the
        app's own. ``None`` if the app has none."""

    @abstractmethod
    async def open(self) -> None:
        """Connect. Called once."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close; safe to call again, and after a failed :meth:`open`."""

    @abstractmethod
    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send one request and return its reply. ``timeout`` in seconds.

        Binary content in the reply stands where it stood in the app's answer, as
        :class:`~transports.BinaryData` (``bytes`` or a :class:`~transports.binary.Handle`) or
        :class:`~transports.binary.Broken`; base64 text stays text.

        Raises :class:`~transports.errors.CallTimeout` at the deadline (the session then tells the app to cancel),
        :class:`~transports.errors.Disconnected` if the app is gone, :class:`~transports.errors.ProtocolError` if the
        reply cannot be read.
        """

    @abstractmethod
    async def notify(self, message: Message) -> None:
        """Send a message that has no reply: ``shutdown``, ``elicitation/response``."""

    @abstractmethod
    def events(self) -> AsyncIterator[Message]:
        """``notification``, ``progress`` and ``elicitation/request`` messages, in order, each once; ends when the
        transport closes. For one consumer."""

    @abstractmethod
    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Fetch content that stayed on the far side into a new file at ``path``. Whatever fails, a part of the file
        may be left behind: the caller owns the place. ``timeout`` in seconds, for the whole content."""

    @abstractmethod
    async def release(self, handle: Handle) -> None:
        """Let the far side forget the content. Never raises; unknown handles are ignored."""

    @abstractmethod
    async def cookies(self, url: str) -> Mapping[str, str]:
        """Cookies that the far side would send to ``url``; empty where there are none."""

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()
