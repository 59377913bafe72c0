"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (docs/protocol.md 6.5).

Buffers in parameters and answers are transferred, not copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack
from urllib.parse import urlsplit

from playwright.async_api import Error

from .._internal.arguments import showing_options, validate_arguments
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
    format_seconds,
)
from ..playwright._agent import Document, PageAgent
from ..playwright._channels import A4_HEIGHT, A4_WIDTH
from ..playwright._diagnosis import (
    asks_to_sign_in,
    explain_load_failure,
    location_note,
    not_abp,
    read_problems,
    same_document,
    shown_address,
)
from ..playwright._effects import PageEffects
from ..playwright._page_transport import PageTransport, sender_of
from ..playwright._process import listen, listener
from ..playwright._source import PageOptions, PageSource
from ..protocol._plain_text import origin_of, redact_url
from ..protocol.binary import BinaryData, Handle
from ..protocol.messages import Message, Sender

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page, Request, Response, Route

T = TypeVar("T")

logger = logging.getLogger("transports.postmessage")

#: The origin of a harness on another site. ``.localhost`` is a secure context without https, so that http and https
#: apps can both be embedded and keep the features of secure contexts.
HARNESS_ORIGIN = "http://abp-harness.localhost"
_HARNESS_HTML = """<!doctype html><meta charset="utf-8"><title>abp-transports harness</title>
<style>html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%}</style><body>"""
#: Script that runs in every frame before the app's first script: ``print`` becomes a message (docs/protocol.md 11.3),
#: since the browser's ``print`` would block the frame.
_PRINT_SCRIPT = """if (self !== top) {
  const post = top.postMessage.bind(top), type = parent === top ? "print" : "frameprint";
  self.print = function print() { post({type}, %r); };
}"""

#: The app's own site, or another one.
HarnessSite: TypeAlias = Literal["same", "other"]


class PostMessageTransport(PageTransport):
    """Transport to the app at ``url``, embedded in an iframe.

    ``sandbox`` and ``allow`` are the attributes of the iframe (HTML "The iframe element"); ``sandbox=None`` leaves the
    attribute out. ``allow-same-origin`` is required: a message to an app without an origin cannot be addressed.

    ``harness`` is the site of the page that embeds the app. With ``"same"``, another port of the app's own host, the
    app has the cookies (``SameSite`` ones too) and the storage of a window of its own. Buffers move without a copy,
    since both share a process. With ``"other"``, :data:`HARNESS_ORIGIN`, the app is embedded as by a third party:
    third-party cookies and storage, a separate process, buffers copied between the two. The other options are as for
    :class:`~transports.PlaywrightTransport`.

    Raises :class:`~transports.errors.UsageError` if options contradict each other."""

    name = "postmessage"
    features = Features(reconnects=True, cookies=True, appends=True, page=True)
    _scripts = ("codec.js", "effects.js", "postmessage/js/harness.js")

    @showing_options(PageOptions, headless=True)
    @validate_arguments
    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        # No top navigation (the app could leave the harness), no popups, no modal dialogs.
        sandbox: str | None = "allow-scripts allow-same-origin allow-forms allow-downloads",
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
        self._app: AppFrame | None = None
        self._beginning = asyncio.Lock()
        self._is_loading = False

    @property
    def url(self) -> str | None:
        """Address of the app, not of the harness."""
        if self._frame is None:
            return self._target
        return self._frame.url

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of messages by outcome: ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown``, ``malformed``
        or ``foreign`` (from another window or origin). May be 50 ms old."""
        return self._counts

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        self._harness_origin = await open_harness(page, self._target, self._harness)
        navigation = NavigationWatcher(page, self._harness_origin)
        self._navigation = navigation
        self._page_stack.callback(navigation.close)

        frame = await self._embed_app(page, agent, navigation)
        self._frame = frame
        await self._read_server_address(navigation.response)
        self._origin = origin_of(frame.url) or ""
        await agent.invoke("setOrigin", self._origin, timeout=self._timeout)

        _watch_removal(page, frame, agent)
        self._app = await AppFrame.open(frame, agent, self._effects, timeout=self._timeout)
        # The first document may lead to another document at once.
        self._is_loading = self._app is not None and self._app.was_loading

    async def _embed_app(self, page: Page, agent: PageAgent, navigation: NavigationWatcher) -> Frame:
        """Put the app into an iframe of the harness, and return its frame.

        Raises :class:`~transports.errors.ConnectFailed` if the app's document does not load."""
        embedding: Coroutine[Any, Any, object] = agent.invoke(
            "embed", self._target, self._sandbox, self._allow, timeout=self._timeout
        )
        await self._unless_failed(navigation, embedding)

        frame = page.main_frame.child_frames[0]
        # Playwright learns the address of the frame a little later than the page.
        while not frame.url:
            await asyncio.sleep(0.01)
        if navigation.failed.is_set():
            raise await self._load_error(navigation)
        return frame

    def _sender(self, document: Document) -> Sender:
        assert self._frame is not None
        return sender_of(
            self._frame.url,
            self._origin,
            page_origin=document.origin,
            page_domain=document.domain,
            around=(document.origin,),
            server_address=self._address_of(self._origin),
        )

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request to the embedded app.

        ``initialize`` raises :class:`~transports.errors.ConnectFailed` if the app's address leads to a document that
        cannot be embedded, and :class:`~transports.errors.NotAbpApp` if there is no reply in time."""
        navigation = self._navigation
        if message.type != "initialize" or navigation is None:
            return await super().request(message, timeout=timeout)

        async with self._beginning:
            try:
                reply = await self._unless_failed(navigation, super().request(message, timeout=timeout))
            except CallTimeout:
                raise await self._no_app_error(navigation.status, timeout) from None

            navigation.close()
            await self._follow_document()
        return reply

    async def _follow_document(self) -> None:
        """Watch the current document of the frame, if it is not the one that is watched: the first page may have led to
        another one, or loaded itself again."""
        if self._frame is None or (self._app is not None and not await self._app.is_replaced()):
            return
        self._app = await AppFrame.open(self._frame, self._require_agent(), self._effects, timeout=self._timeout)
        self._is_loading = True

    async def _unless_failed(self, navigation: NavigationWatcher, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``. If the app's document fails to load before, raise the reason."""
        working = asyncio.ensure_future(work)
        failing = asyncio.ensure_future(navigation.failed.wait())
        try:
            await asyncio.wait((working, failing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise await self._load_error(navigation)
            return working.result()
        finally:
            await cancel_and_wait((working, failing))

    async def _load_error(self, navigation: NavigationWatcher) -> ConnectFailed:
        reason = await navigation.reason(self._target)
        details = {"status": navigation.status} if navigation.response else {}
        return ConnectFailed(f"cannot embed {redact_url(self._target)}: {reason}", details=details)

    async def _no_app_error(self, http_status: int | None, timeout: float) -> NotAbpApp:
        page = self._require_agent().page
        frame = self._frame
        assert frame is not None
        app_page = f"the embedded page at {redact_url(self._target)}{location_note(frame.url, self._target)}"
        if http_status:
            app_page += f" (HTTP {http_status})"

        return not_abp(
            f"{app_page} answered no message within {format_seconds(timeout)}",
            "it must include abp-embed.js, with a data-origins that allows "
            f"{self._harness_origin} (docs/embedding.md); a page with window.abp is driven without this transport",
            await read_problems(page, frame),
            sign_in=await asks_to_sign_in(frame, self._target),
        )

    def _on_event(self, kind: str, payload: Any) -> None:
        if kind == "unloaded":
            self._effects.tracker.spawn(self._on_loaded(self._require_agent()))
        elif kind == "counts":
            self._counts = Counter(payload)
        elif kind == "emitted":
            self._effects.on_emitted(payload)
        elif kind == "frameprint" and payload.call is None:
            # Ignore this event: it is of the page's agent, which takes the app for a frame of its page. The harness
            # reports the frames of the app.
            pass
        elif kind == "unknown":
            if not self._has_unknown_types:
                self._has_unknown_types = True
                logger.warning(
                    "ignored a message of the unknown type %r; more of them are ignored quietly", str(payload)[:80]
                )
        else:
            super()._on_event(kind, payload)

    async def _on_loaded(self, agent: PageAgent) -> None:
        """Give the app up after its frame has loaded a document, unless that is the one which answered ``initialize``:
        it may do so before it is loaded."""
        async with self._beginning:
            was_loading, self._is_loading = self._is_loading, False
            with contextlib.suppress(TransportError):
                if was_loading and self._app is not None and not await self._app.is_replaced():
                    return
        agent.mark_lost(Disconnected("the embedded app navigated or reloaded"))

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """Print the app. A browser prints only top pages, and cuts a frame at the end of the paper. So the frame and
        the paper become as tall as the printed app for a moment."""
        agent = self._require_agent()
        app = self._app
        if app is None:
            return await super()._print_page()

        # Inches: Chromium's default margin, and the tallest page that PDF allows.
        margin, max_paper_height = 0.4, 200.0
        pixels_per_inch = 96
        width = int((A4_WIDTH - 2 * margin) * pixels_per_inch)
        try:
            await app.send("Emulation.setEmulatedMedia", {"media": "print"})
            await agent.invoke("resize", width, None, timeout=self._timeout)
            height = await app.height()
            await agent.invoke("resize", width, height, timeout=self._timeout)

            printed_height = height / pixels_per_inch + 2 * margin
            paper_height = min(max(A4_HEIGHT, printed_height), max_paper_height)
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


async def open_harness(page: Page, url: str, site: HarnessSite) -> str:
    """Open the harness in ``page``, on the app's site or another one, and return its origin."""
    origin = HARNESS_ORIGIN
    if site == "same":
        origin = _origin_beside(url)

    # Match https, too: the browser upgrades http for hosts with HSTS (RFC 6797).
    host = urlsplit(origin).netloc
    address = re.compile(rf"^https?://{re.escape(host)}/$", re.IGNORECASE)
    await page.route(address, _serve_harness)
    await page.goto(f"{origin}/")
    # Further interception would slow down the app's own requests.
    await page.unroute(address)

    origin = page.url.removesuffix("/")
    # Older browsers do not know this permission and never ask for it.
    with contextlib.suppress(Error):
        await page.context.grant_permissions(["local-network-access"], origin=origin)
    await page.add_init_script(script=_PRINT_SCRIPT % origin)
    return origin


def _watch_removal(page: Page, frame: Frame, agent: PageAgent) -> None:
    @listener
    def on_detached(detached_frame: Frame) -> None:
        if detached_frame is frame:
            agent.mark_lost(Disconnected("the embedded app's frame was removed"))

    page.on("framedetached", on_detached)


def _origin_beside(url: str) -> str:
    """Return another origin on the site of an address."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}")
    # Another port makes another origin, but not another site (HTML "same site").
    port = 47474
    if parts.port == port:
        port += 1
    return f"{parts.scheme}://{host}:{port}"


async def _serve_harness(route: Route) -> None:
    # Let the harness share the agent cluster of its site, so that a buffer can move between frames without a copy.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-src *"
    headers = {"Content-Security-Policy": policy, "Origin-Agent-Cluster": "?0"}
    await route.fulfill(body=_HARNESS_HTML, content_type="text/html; charset=utf-8", headers=headers)


class AppFrame:
    """The frame of the app, for commands over CDP. An app of another site than the harness has another process, with
    another debugging session. An app of the same site is part of the harness's page: it shares the page's session, and
    its scripts run in one of the page's contexts."""

    def __init__(self, agent: PageAgent, session: CDPSession, timeout: float) -> None:
        self._agent = agent
        self._session = session
        self._timeout = timeout
        self._shares_page = False
        self._frame_id = ""
        self._context: dict[str, Any] = {}
        self._watched: str | None = None
        self.was_loading = False

    @classmethod
    async def open(cls, frame: Frame, agent: PageAgent, effects: PageEffects, *, timeout: float) -> AppFrame | None:
        """Attach to the app's frame and watch its effects. Return ``None`` if the browser cannot do that."""
        if agent.channel.cdp is None:
            return None
        try:
            app = await cls._attach(frame, agent, timeout)
            if app is not None:
                app._watched = await effects.watch_frame(app._session, app._context, shared=app._shares_page)
                app.was_loading = await app._read_state() != "complete"
        except Error:
            return None
        return app

    @classmethod
    async def _attach(cls, frame: Frame, agent: PageAgent, timeout: float) -> AppFrame | None:
        """Attach to the app's frame. Return ``None`` if the app shares the harness's page, but is not there."""
        context = frame.page.context
        try:
            session = await context.new_cdp_session(frame)
        except Error:
            # A frame without a session shares the process of the page.
            app = cls(agent, await context.new_cdp_session(frame.page), timeout)
            return app if await app._find_context() else None

        crashed = Disconnected("the embedded app's process crashed")
        listen(session, "Inspector.targetCrashed", lambda _: agent.mark_lost(crashed))
        await session.send("Inspector.enable")
        return cls(agent, session, timeout)

    async def _find_context(self) -> bool:
        """Look for the context of the app's scripts in the page. Return whether it is there."""
        self._shares_page = True
        tree = await self._session.send("Page.getFrameTree")
        children = tree["frameTree"].get("childFrames", ())
        if not children:
            return False

        self._frame_id = children[0]["frame"]["id"]
        for context in await self._list_contexts():
            owner = context.get("auxData", {})
            if owner.get("isDefault") and owner.get("frameId") == self._frame_id:
                self._context = {"uniqueContextId": context["uniqueId"]}
        return bool(self._context)

    async def is_replaced(self) -> bool:
        """Return whether the frame shows another document than when this was opened."""
        state = await self._agent.with_deadline(self._read_state(), "Runtime.callFunctionOn", timeout=self._timeout)
        return state is None

    async def _read_state(self) -> object:
        """Return the ``readyState`` of the document that is watched, or ``None`` if it is gone."""
        command = {
            "objectId": self._watched,
            "functionDeclaration": "function () { return document.readyState; }",
        }
        try:
            reply = await self._session.send("Runtime.callFunctionOn", command)
        except Error:
            return None
        return reply["result"].get("value")

    async def _list_contexts(self) -> list[dict[str, Any]]:
        contexts: list[dict[str, Any]] = []
        on_context = listener(lambda event: contexts.append(event["context"]))
        self._session.on("Runtime.executionContextCreated", on_context)
        # The browser reports each context before it answers this command.
        await self._session.send("Runtime.enable")
        self._session.remove_listener("Runtime.executionContextCreated", on_context)
        # Disable the domain again, or the browser would send the app's console here, too.
        await self._session.send("Runtime.disable")
        return contexts

    async def send(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        sending = self._session.send(method, params)
        result: dict[str, Any] = await self._agent.with_deadline(sending, method, timeout=self._timeout)
        return result

    async def height(self) -> float:
        """Return the height of the app's document in CSS pixels."""
        if not self._shares_page:
            metrics = await self.send("Page.getLayoutMetrics", {})
            return float(metrics["cssContentSize"]["height"])

        # Read the height in an isolated world, whose functions the app cannot replace.
        world = await self.send("Page.createIsolatedWorld", {"frameId": self._frame_id})
        command = {
            "expression": "document.documentElement.scrollHeight",
            "contextId": world["executionContextId"],
        }
        evaluation = await self.send("Runtime.evaluate", command)
        height = evaluation["result"].get("value")
        if not isinstance(height, (int, float)):
            raise ProtocolError("the embedded app does not report its height")
        return float(height)


class NavigationWatcher:
    """Watcher of the app's frame while its document loads: the last response, and failures."""

    def __init__(self, page: Page, harness_origin: str) -> None:
        self._harness_origin = harness_origin
        self._page = page
        self._failed: Request | None = None
        self.response: Response | None = None
        #: Set once the frame shows an error page of the browser, or nothing.
        self.failed = asyncio.Event()
        self._listeners = {
            "requestfailed": listener(self._on_failed),
            "response": listener(self._on_response),
            "framenavigated": listener(self._on_navigated),
        }
        for event, on_event in self._listeners.items():
            page.on(event, on_event)  # type: ignore[call-overload]

    def close(self) -> None:
        while self._listeners:
            self._page.remove_listener(*self._listeners.popitem())

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request() and self._is_app_frame(request.frame):
            self._failed = request
            # After a download or an answer without content, the frame stays empty, without an error page.
            if request.frame.url in ("", "about:blank"):
                self.failed.set()

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request() and self._is_app_frame(response.frame):
            self.response = response

    def _on_navigated(self, frame: Frame) -> None:
        if self._is_app_frame(frame) and frame.url.startswith("chrome-error:"):
            self.failed.set()

    def _is_app_frame(self, frame: Frame) -> bool:
        # Frames that the app itself embeds are nested deeper.
        return frame.parent_frame == self._page.main_frame

    @property
    def status(self) -> int | None:
        """The HTTP status of the document; ``None`` if it did not come over HTTP."""
        if self.response is None:
            return None
        return self.response.status

    async def reason(self, url: str) -> str:
        """Return why the app at ``url`` could not be loaded, in words for a message."""
        failure = None
        redirect = ""
        if self._failed is not None:
            failure = self._failed.failure
            if not same_document(self._failed.url, url):
                redirect = f"it leads to {shown_address(self._failed.url).partition('?')[0]}: "
        failure = failure or "the browser does not say why"

        if "BLOCKED_BY_RESPONSE" not in failure or self.response is None:
            return redirect + explain_load_failure(failure, url, self.status)
        refusal = await _embedding_refusal(self.response)
        return (
            f"{redirect}it refuses to be embedded ({refusal}); have the app allow {self._harness_origin}, or open it "
            "by itself (transport='playwright')"
        )


async def _embedding_refusal(response: Response) -> str:
    """Return the header by which a server refuses that its page is embedded."""
    headers: dict[str, str] = {}
    # Playwright may raise any error if the page has gone meanwhile.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(5.0):
            headers = await response.all_headers()

    policy = headers.get("content-security-policy", "")
    for directive in policy.split(";"):
        if "frame-ancestors" in directive:
            return directive.strip()
    return f"X-Frame-Options: {headers.get('x-frame-options', '?')}"
