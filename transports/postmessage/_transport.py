"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (docs/protocol.md 6.5).

Buffers in parameters and answers are transferred, not copied.

* :class:`AppFrame` — the app's frame, in the harness's process or its own.
* :class:`NavigationWatcher` — the outcome of loading the app's document.
* :func:`open_harness` — the page that embeds the app.
* :class:`PostMessageTransport` — all three behind the Transport contract.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack
from urllib.parse import urlsplit

from playwright.async_api import Error

from .._internal.signatures import showing
from .._internal.tasks import cancel_and_wait
from ..base import Features
from ..errors import (
    CallTimeout,
    ConnectFailed,
    Disconnected,
    NotAbpApp,
    ProtocolError,
    TransportError,
    UsageError,
    checked,
    format_seconds,
)
from ..playwright._agent import Document, PageAgent
from ..playwright._channels import A4_HEIGHT, A4_WIDTH
from ..playwright._diagnosis import (
    asks_to_sign_in,
    explain_load_failure,
    not_abp,
    now_at,
    read_problems,
    same_document,
    shown_address,
)
from ..playwright._effects import PageEffects
from ..playwright._listeners import listen, listener
from ..playwright._page_transport import PageTransport, ServerAddress, sender_of
from ..playwright._source import PageOptions, PageSource
from ..protocol._plain_text import redact_url
from ..protocol.binary import BinaryData, Handle
from ..protocol.messages import Message, Sender

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page, Request, Response, Route

logger = logging.getLogger("transports.postmessage")

#: The origin of a harness on another site. ``.localhost`` is a secure context without https, so that http and https
#: apps can both be embedded and keep the features of secure contexts.
HARNESS_ORIGIN = "http://abp-harness.localhost"
#: The ports of a harness on the app's own site: a port is part of an origin and not of a site (HTML "same site"). The
#: second is for an app on the first.
_PORTS = 47474, 47475
_HTML = """<!doctype html><meta charset="utf-8"><title>abp-transports harness</title>
<style>html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%}</style><body>"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-src *"
#: Runs in every frame before the app's first script: ``print`` becomes a message (docs/protocol.md 11.3), since the
#: browser's own would block the frame.
_PRINT_SCRIPT = """if (self !== top) {
  const post = top.postMessage.bind(top);
  self.print = function print() { post({type: "print"}, %r); };
}"""
#: Inches: Chromium's default margin, and the tallest page that PDF allows.
_MARGIN, _MAX_PAPER_HEIGHT = 0.4, 200.0
_PIXELS_PER_INCH = 96  # CSS pixels
_PRINTED_WIDTH = int((A4_WIDTH - 2 * _MARGIN) * _PIXELS_PER_INCH)
#: No top navigation (the app could leave the harness), no popups, no modal dialogs.
_SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"


class AppFrame:
    """Frame of an app, in a separate process or in that of the harness.

    An app of another site than the harness has its own process and debugging session. An app of the same site is part
    of the harness's page: it shares the page's session, and its scripts run in one of the page's contexts.
    """

    def __init__(self, agent: PageAgent, session: CDPSession, timeout: float) -> None:
        self._agent = agent
        self._session = session
        self._timeout = timeout
        self._shared = False
        self._frame_id = ""
        self._context: dict[str, Any] = {}

    @classmethod
    async def open(cls, frame: Frame, agent: PageAgent, effects: PageEffects, *, timeout: float) -> AppFrame | None:
        """Return the frame, watched for crashes and side effects; ``None`` if the browser cannot do it."""
        if agent.channel.cdp is None:
            return None
        context = frame.page.context
        with contextlib.suppress(Error):
            try:
                own = cls(agent, await context.new_cdp_session(frame), timeout)
            except Error:  # the frame shares the page's process
                own = cls(agent, await context.new_cdp_session(frame.page), timeout)
                if not await own._enter():
                    return None
            else:
                crashed = Disconnected("the embedded app's process crashed")
                listen(own._session, "Inspector.targetCrashed", lambda _: agent.mark_lost(crashed))
                await own._session.send("Inspector.enable")
            await effects.watch_frame(own._session, own._context, shared=own._shared)
            return own
        return None

    async def _enter(self) -> bool:
        """Find the context of the app's scripts among those of the page. Returns ``False`` if there is none."""
        self._shared = True
        contexts: list[dict[str, Any]] = []
        note = listener(lambda event: contexts.append(event["context"]))
        self._session.on("Runtime.executionContextCreated", note)
        await self._session.send("Runtime.enable")  # reports each context before it returns
        self._session.remove_listener("Runtime.executionContextCreated", note)
        await self._session.send("Runtime.disable")  # the console of the app would be sent here too
        tree = await self._session.send("Page.getFrameTree")
        children = [child["frame"]["id"] for child in tree["frameTree"].get("childFrames", ())]
        for context in contexts:
            data = context.get("auxData", {})
            if data.get("isDefault") and data.get("frameId") in children[:1]:
                self._frame_id = data["frameId"]
                self._context = {"uniqueContextId": context["uniqueId"]}
        return bool(self._context)

    async def send(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        """Send a command to the frame's session, within the timeout for opening."""
        sent = self._session.send(method, params)
        reply: dict[str, Any] = await self._agent.with_deadline(sent, method, timeout=self._timeout)
        return reply

    async def height(self) -> float:
        """Return the height of the app's content in CSS pixels. Raises :class:`~transports.errors.ProtocolError`."""
        if not self._shared:
            metrics = await self.send("Page.getLayoutMetrics", {})
            return float(metrics["cssContentSize"]["height"])
        # in a world of its own, whose functions the app cannot replace
        world = await self.send("Page.createIsolatedWorld", {"frameId": self._frame_id, "worldName": "abp-transports"})
        command = {"expression": "document.documentElement.scrollHeight", "returnByValue": True}
        measured = await self.send("Runtime.evaluate", {**command, "contextId": world["executionContextId"]})
        height = measured["result"].get("value")
        if not isinstance(height, (int, float)):
            raise ProtocolError("the embedded app does not report its height")
        return float(height)


class NavigationWatcher:
    """Recorder of the requests for the document of the frame in ``page``, and of their outcome, until closed."""

    def __init__(self, page: Page, harness_origin: str) -> None:
        self._harness_origin = harness_origin
        self._page = page
        self._failed: Request | None = None
        self.response: Response | None = None
        #: Set once the frame shows an error page of the browser, which never answers.
        self.failed = asyncio.Event()
        self._listeners = {
            "requestfailed": listener(self._on_failed),
            "response": listener(self._on_response),
            "framenavigated": listener(self._on_document),
        }
        for event, handle in self._listeners.items():
            page.on(event, handle)  # type: ignore[call-overload]

    def close(self) -> None:
        """Stop listening."""
        while self._listeners:
            self._page.remove_listener(*self._listeners.popitem())

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request() and self._is_apps(request.frame):
            self._failed = request

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request() and self._is_apps(response.frame):
            self.response = response

    def _on_document(self, frame: Frame) -> None:
        if self._is_apps(frame) and frame.url.startswith("chrome-error:"):
            self.failed.set()

    def _is_apps(self, frame: Frame) -> bool:
        return frame.parent_frame == self._page.main_frame  # frames that the app embeds are nested deeper

    @property
    def status(self) -> int | None:
        """HTTP status of the document, if it came over HTTP."""
        return self.response.status if self.response else None

    async def reason(self, url: str) -> str:
        """Return the reason why the frame, opened at ``url``, shows an error page."""
        leads = ""
        if self._failed is not None and not same_document(self._failed.url, url):
            leads = f"it leads to {shown_address(self._failed.url).partition('?')[0]}: "
        failure = (self._failed.failure if self._failed else None) or "the browser does not say why"
        if "BLOCKED_BY_RESPONSE" not in failure or self.response is None:
            return leads + explain_load_failure(failure, url)
        headers: dict[str, str] = {}
        with contextlib.suppress(Exception):  # any error, if the page has gone meanwhile
            async with asyncio.timeout(5.0):
                headers = await self.response.all_headers()
        policy = headers.get("content-security-policy", "")
        directive = next((part.strip() for part in policy.split(";") if "frame-ancestors" in part), None)
        refusal = directive or f"X-Frame-Options: {headers.get('x-frame-options', '?')}"
        return (
            f"{leads}it refuses to be embedded ({refusal}); have the app allow {self._harness_origin}, or open it by "
            "itself (transport='playwright')"
        )


HarnessSite: TypeAlias = Literal["same", "other"]
"""Site of the harness: the app's own, or another one."""


async def open_harness(page: Page, url: str, site: HarnessSite) -> str:
    """Load the harness for the app at ``url`` into ``page`` and return its origin."""
    origin = _origin_beside(url) if site == "same" else HARNESS_ORIGIN
    # https too: the browser upgrades http for hosts with HSTS (RFC 6797)
    address = re.compile(rf"^https?://{re.escape(origin.partition('//')[2])}/$", re.IGNORECASE)
    await page.route(address, _serve)
    await page.goto(f"{origin}/")
    await page.unroute(address)  # interception would slow down the app's own requests
    origin = page.url.removesuffix("/")
    with contextlib.suppress(Error):  # older browsers do not know this permission and never ask for it
        await page.context.grant_permissions(["local-network-access"], origin=origin)
    await page.add_init_script(script=_PRINT_SCRIPT % origin)
    return origin


def _origin_beside(url: str) -> str:
    """Return an origin of the same site as ``url``: its scheme and host, with a port of the harness."""
    parts = urlsplit(url)
    port = _PORTS[parts.port == _PORTS[0]]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].removesuffix(f':{parts.port}')}:{port}"


async def _serve(route: Route) -> None:
    # The agent cluster of the site, not of the origin, so that a buffer can move between frames without a copy.
    headers = {"Content-Security-Policy": _POLICY, "Origin-Agent-Cluster": "?0"}
    await route.fulfill(body=_HTML, content_type="text/html; charset=utf-8", headers=headers)


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
    features = Features(reconnects=True, cookies=True, appends=True)
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
        if sandbox is not None and not {"allow-scripts", "allow-same-origin"} <= set(sandbox.lower().split()):
            raise UsageError("sandbox= needs allow-scripts and allow-same-origin, or the app cannot be spoken with")
        super().__init__(url, source=PageSource(**options), timeout=timeout)
        self._sandbox = sandbox
        self._allow = allow
        self._harness = harness
        self._harness_origin = self._origin = ""
        self._counts: Counter[str] = Counter()
        self._frame: Frame | None = None
        self._navigation: NavigationWatcher | None = None
        self._server_address = ServerAddress()
        self._app: AppFrame | None = None

    @property
    def url(self) -> str | None:
        """Address of the app, not of the harness."""
        return self._frame.url if self._frame else self._target

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
        self._harness_origin = await open_harness(page, self._target, self._harness)
        self._navigation = navigation = NavigationWatcher(page, self._harness_origin)
        self._page_stack.callback(navigation.close)
        await agent.invoke("embed", self._target, self._sandbox, self._allow, timeout=self._timeout)
        frame = page.main_frame.child_frames[0]
        while not frame.url:  # Playwright learns the address a little later than the page
            await asyncio.sleep(0.01)
        if navigation.failed.is_set():
            raise await self._not_embedded(navigation)
        self._frame = frame
        await self._server_address.read(navigation.response)
        parts = urlsplit(frame.url)
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        await agent.invoke("setOrigin", self._origin, timeout=self._timeout)
        removed = Disconnected("the embedded app's frame was removed")
        page.on("framedetached", listener(lambda gone: agent.mark_lost(removed) if gone is frame else None))
        self._app = await AppFrame.open(frame, agent, self._effects, timeout=self._timeout)

    def _sender(self, document: Document) -> Sender:
        """Return the sender as :meth:`PageTransport._sender` does: the app in the frame of the harness's document."""
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
        asking = asyncio.ensure_future(super().request(message, timeout=timeout))
        failing = asyncio.ensure_future(navigation.failed.wait())
        try:
            await asyncio.wait((asking, failing), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise await self._not_embedded(navigation)
            reply = asking.result()
        except CallTimeout:
            raise await self._unanswered(navigation.status, timeout) from None
        finally:
            await cancel_and_wait((asking, failing))
        navigation.close()
        return reply

    async def _not_embedded(self, navigation: NavigationWatcher) -> ConnectFailed:
        reason = await navigation.reason(self._target)
        details = {"status": navigation.status} if navigation.response else {}
        return ConnectFailed(f"cannot embed {redact_url(self._target)}: {reason}", details=details)

    async def _unanswered(self, http_status: int | None, timeout: float) -> NotAbpApp:
        page, frame = self._require_agent().page, self._frame
        moved = now_at(frame.url, self._target) if frame else ""
        status = f" (HTTP {http_status})" if http_status else ""
        return not_abp(
            f"the embedded page at {redact_url(self._target)}{moved}{status} answered no message within "
            f"{format_seconds(timeout)}",
            "does it speak ABP over postMessage (abp-embed.js), and may this origin, "
            f"{self._harness_origin}, drive it?",
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
            logger.warning("ignored a message of the unknown type %r", str(payload)[:100])
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
            tall = min(max(A4_HEIGHT, height / _PIXELS_PER_INCH + 2 * _MARGIN), _MAX_PAPER_HEIGHT)
            return await super()._print_page(paper_height=tall)
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
