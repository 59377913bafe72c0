"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (docs/protocol.md 6.5).

Buffers in parameters and answers are transferred, not copied.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from .._internal.arguments import checked, showing
from .._internal.tasks import cancel_and_wait
from ..base import Features
from ..errors import CallTimeout, ConnectFailed, Disconnected, NotAbpApp, TransportError, UsageError, format_seconds
from ..playwright._agent import Document, PageAgent
from ..playwright._channels import A4_HEIGHT, A4_WIDTH
from ..playwright._diagnosis import asks_to_sign_in, not_abp, now_at, read_problems
from ..playwright._listeners import listener
from ..playwright._page_transport import PageTransport, ServerAddress, sender_of
from ..playwright._source import PageOptions, PageSource
from ..protocol._plain_text import redact_url
from ..protocol.binary import BinaryData, Handle
from ..protocol.messages import Message, Sender
from ._frame import AppFrame, HarnessSite, NavigationWatcher, open_harness

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

logger = logging.getLogger("transports.postmessage")

#: Inches: Chromium's default margin, and the tallest page that PDF allows.
_MARGIN, _MAX_PAPER_HEIGHT = 0.4, 200.0
_PIXELS_PER_INCH = 96  # CSS pixels
_PRINTED_WIDTH = int((A4_WIDTH - 2 * _MARGIN) * _PIXELS_PER_INCH)
#: No top navigation (the app could leave the harness), no popups, no modal dialogs.
_SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"


class PostMessageTransport(PageTransport):
    """Transport to the app at ``url``, embedded in an iframe.

    ``sandbox`` and ``allow`` are the attributes of the iframe (HTML "The iframe element"); ``sandbox=None`` leaves the
    attribute out. ``allow-same-origin`` is required: a message to an app without an origin cannot be addressed.

    ``harness`` is the site of the page that embeds the app. With ``"same"``, another port of the app's own host, the
    app has the cookies (``SameSite`` ones too) and the storage of a window of its own. Buffers move without a copy,
    since both share a process. With ``"other"``, :data:`HARNESS_ORIGIN`, the app is embedded as by a third party:
    third-party cookies and storage, a separate process, buffers copied between the two. The other options are as for
    :class:`~transports.PlaywrightTransport`.

    Raises :class:`~transports.errors.UsageError` if options contradict each other.
    """

    name = "postmessage"
    features = Features(reconnects=True, cookies=True, appends=True, page=True)
    _scripts = ("codec.js", "effects.js", "postmessage/js/harness.js")

    @showing(PageOptions, headless=True)
    @checked
    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        sandbox: str | None = _SANDBOX,
        allow: str = "",
        harness: HarnessSite = "same",
        **options: Unpack[PageOptions],
    ) -> None:
        if harness not in ("same", "other"):
            raise UsageError(f"harness= is 'same' or 'other', not {harness!r}")
        if sandbox is not None:
            permissions = set(sandbox.lower().split())
            if not {"allow-scripts", "allow-same-origin"} <= permissions:
                raise UsageError("sandbox= must include allow-scripts and allow-same-origin")
        super().__init__(url, source=PageSource(**options), timeout=timeout)

        self._sandbox = sandbox
        self._allow = allow
        self._harness = harness
        self._harness_origin = ""
        self._origin = ""
        self._counts: Counter[str] = Counter()
        self._has_unknown_types = False
        self._frame: Frame | None = None
        self._navigation: NavigationWatcher | None = None
        self._server_address = ServerAddress()
        self._app: AppFrame | None = None

    @property
    def url(self) -> str | None:
        """Address of the app, not of the harness."""
        if self._frame is None:
            return self._target
        return self._frame.url

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Socket address that the browser loaded the app from."""
        return self._server_address.of(self.url)

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of messages by outcome: ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown``, ``malformed``
        or ``foreign`` (from another window or origin). May be 50 ms old.
        """
        return self._counts

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        """Open the harness, embed the app in it, and watch the app's frame."""
        self._harness_origin = await open_harness(page, self._target, self._harness)
        navigation = NavigationWatcher(page, self._harness_origin)
        self._navigation = navigation
        self._page_stack.callback(navigation.close)
        await agent.invoke("embed", self._target, self._sandbox, self._allow, timeout=self._timeout)

        frame = page.main_frame.child_frames[0]
        # Playwright learns the address of the frame a little later than the page.
        while not frame.url:
            await asyncio.sleep(0.01)
        if navigation.failed.is_set():
            raise await self._load_error(navigation)

        self._frame = frame
        await self._server_address.read(navigation.response)
        parts = urlsplit(frame.url)
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        await agent.invoke("setOrigin", self._origin, timeout=self._timeout)

        removed = Disconnected("the embedded app's frame was removed")

        @listener
        def on_detached(detached_frame: Frame) -> None:
            if detached_frame is frame:
                agent.mark_lost(removed)

        page.on("framedetached", on_detached)
        self._app = await AppFrame.open(frame, agent, self._effects, timeout=self._timeout)

    def _sender(self, document: Document) -> Sender:
        assert self._frame is not None
        return sender_of(
            self._frame.url,
            self._origin,
            page=document,
            around=[document.origin],
            server_address=self._address_of(self._origin),
        )

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request to the embedded app.

        ``initialize`` raises :class:`~transports.errors.ConnectFailed` if the app's address leads to a document that
        cannot be embedded, and :class:`~transports.errors.NotAbpApp` if there is no reply in time.
        """
        navigation = self._navigation
        if message.type != "initialize" or navigation is None:
            return await super().request(message, timeout=timeout)

        # An error page of the browser never answers: the request is given up when one is shown.
        requesting = asyncio.ensure_future(super().request(message, timeout=timeout))
        failing = asyncio.ensure_future(navigation.failed.wait())
        try:
            await asyncio.wait((requesting, failing), return_when=asyncio.FIRST_COMPLETED)
            if not requesting.done():
                raise await self._load_error(navigation)
            reply = requesting.result()
        except CallTimeout:
            raise await self._no_app_error(navigation.status, timeout) from None
        finally:
            await cancel_and_wait((requesting, failing))

        navigation.close()
        return reply

    async def _load_error(self, navigation: NavigationWatcher) -> ConnectFailed:
        reason = await navigation.reason(self._target)
        details = {"status": navigation.status} if navigation.response else {}
        return ConnectFailed(f"cannot embed {redact_url(self._target)}: {reason}", details=details)

    async def _no_app_error(self, http_status: int | None, timeout: float) -> NotAbpApp:
        """Return the error for a page that did not answer ``initialize``, with what the page reports."""
        page = self._require_agent().page
        frame = self._frame
        app_page = f"the embedded page at {redact_url(self._target)}"
        if frame is not None:
            app_page += now_at(frame.url, self._target)
        if http_status:
            app_page += f" (HTTP {http_status})"

        return not_abp(
            f"{app_page} answered no message within {format_seconds(timeout)}",
            "it must include abp-embed.js, with a data-origins that allows "
            f"{self._harness_origin} (docs/embedding.md); a page with window.abp is driven without this transport",
            await read_problems(page, frame),
            sign_in=frame is not None and await asks_to_sign_in(frame, self._target),
        )

    def _on_event(self, kind: str, payload: Any) -> None:
        if kind == "unloaded":
            self._require_agent().mark_lost(Disconnected("the embedded app navigated or reloaded"))
        elif kind == "counts":
            self._counts = Counter(payload)
        elif kind == "emitted":
            self._effects.on_emitted(payload)
        elif kind == "unknown":
            if not self._has_unknown_types:
                self._has_unknown_types = True
                logger.warning(
                    "ignored a message of the unknown type %r; more of them are ignored quietly", str(payload)[:80]
                )
        else:
            super()._on_event(kind, payload)

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """Print the app.

        A browser prints only top pages and cuts a frame at the end of the paper. So the frame and the paper become as
        tall as the printed app for a moment.
        """
        agent = self._require_agent()
        app = self._app
        if app is None:
            return await super()._print_page()
        try:
            await app.send("Emulation.setEmulatedMedia", {"media": "print"})
            await agent.invoke("resize", _PRINTED_WIDTH, None, timeout=self._timeout)
            height = await app.height()
            await agent.invoke("resize", _PRINTED_WIDTH, height, timeout=self._timeout)

            printed_height = height / _PIXELS_PER_INCH + 2 * _MARGIN
            paper_height = min(max(A4_HEIGHT, printed_height), _MAX_PAPER_HEIGHT)
            return await super()._print_page(paper_height=paper_height)
        finally:
            await app.send("Emulation.setEmulatedMedia", {"media": ""})
            await agent.invoke("resize", None, None, timeout=self._timeout)

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Write content of the app to ``path``. A ``blob:`` URL of the app cannot be read from the harness."""
        if handle.id.startswith("blob:"):
            raise TransportError(
                "a blob: URL of an embedded app can be read by that app only; have it answer with the Blob itself"
            )
        await super().save(handle, path, timeout=timeout)
