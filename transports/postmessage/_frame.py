"""The harness, a page of the kit that embeds an app in an iframe, and the frame of the app.

* :func:`open_harness` loads the harness.
* :class:`AppFrame` — the frame, in the harness's process or its own.
* :class:`NavigationWatcher` — the outcome of loading the app's document.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from playwright.async_api import Error

from ..errors import Disconnected, ProtocolError
from ..playwright._agent import PageAgent
from ..playwright._diagnosis import explain_load_failure, same_document, shown_address
from ..playwright._effects import PageEffects
from ..playwright._listeners import listen, listener

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page, Request, Response, Route

#: The origin of a harness on another site. ``.localhost`` is a secure context without https, so that http and https
#: apps can both be embedded and keep the features of secure contexts.
HARNESS_ORIGIN = "http://abp-harness.localhost"
_HTML = """<!doctype html><meta charset="utf-8"><title>abp-transports harness</title>
<style>html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%}</style><body>"""
#: Runs in every frame before the app's first script: ``print`` becomes a message (docs/protocol.md 11.3), since the
#: browser's own would block the frame.
_PRINT_SCRIPT = """if (self !== top) {
  const post = top.postMessage.bind(top);
  self.print = function print() { post({type: "print"}, %r); };
}"""

#: Site of the harness: the app's own, or another one.
HarnessSite: TypeAlias = Literal["same", "other"]


async def open_harness(page: Page, url: str, site: HarnessSite) -> str:
    """Open the harness for the app at ``url``, and return the harness's origin."""
    origin = HARNESS_ORIGIN
    if site == "same":
        origin = _origin_beside(url)

    # https too: the browser upgrades http for hosts with HSTS (RFC 6797).
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


def _origin_beside(url: str) -> str:
    """Return another origin on the site of ``url``."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}")
    # Another port makes another origin, but not another site (HTML "same site").
    port = 47474
    if parts.port == port:
        port += 1
    return f"{parts.scheme}://{host}:{port}"


async def _serve_harness(route: Route) -> None:
    # The agent cluster of the site, not of the origin, so that a buffer can move between frames without a copy.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-src *"
    headers = {"Content-Security-Policy": policy, "Origin-Agent-Cluster": "?0"}
    await route.fulfill(body=_HTML, content_type="text/html; charset=utf-8", headers=headers)


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
        try:
            app = await cls._attach(frame, agent, timeout)
            if app is not None:
                await effects.watch_frame(app._session, app._context, shared=app._shared)
        except Error:
            return None
        return app

    @classmethod
    async def _attach(cls, frame: Frame, agent: PageAgent, timeout: float) -> AppFrame | None:
        """Open a debugging session for the frame. Return ``None`` if it shares the harness's page and is not found."""
        context = frame.page.context
        try:
            session = await context.new_cdp_session(frame)
        except Error:
            # The frame has no session of its own: it shares the process of the page.
            app = cls(agent, await context.new_cdp_session(frame.page), timeout)
            return app if await app._find_context() else None

        crashed = Disconnected("the embedded app's process crashed")
        listen(session, "Inspector.targetCrashed", lambda _: agent.mark_lost(crashed))
        await session.send("Inspector.enable")
        return cls(agent, session, timeout)

    async def _find_context(self) -> bool:
        """Find the context of the app in the harness's process. Returns false if there is none."""
        self._shared = True
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

    async def _list_contexts(self) -> list[dict[str, Any]]:
        """Return the JavaScript contexts of the harness's page and of its frames."""
        contexts: list[dict[str, Any]] = []
        on_context = listener(lambda event: contexts.append(event["context"]))
        self._session.on("Runtime.executionContextCreated", on_context)
        # The browser reports each context before it answers this command.
        await self._session.send("Runtime.enable")
        self._session.remove_listener("Runtime.executionContextCreated", on_context)
        # Otherwise the console of the app would be sent here, too.
        await self._session.send("Runtime.disable")
        return contexts

    async def send(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        sending = self._session.send(method, params)
        result: dict[str, Any] = await self._agent.with_deadline(sending, method, timeout=self._timeout)
        return result

    async def height(self) -> float:
        """Return the height of the app's content in CSS pixels. Raises :class:`~transports.errors.ProtocolError`."""
        if not self._shared:
            metrics = await self.send("Page.getLayoutMetrics", {})
            return float(metrics["cssContentSize"]["height"])

        # The height is read in a world of its own, whose functions the app cannot replace.
        world = await self.send("Page.createIsolatedWorld", {"frameId": self._frame_id, "worldName": "abp-transports"})
        command = {
            "expression": "document.documentElement.scrollHeight",
            "returnByValue": True,
            "contextId": world["executionContextId"],
        }
        evaluation = await self.send("Runtime.evaluate", command)
        height = evaluation["result"].get("value")
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
            "framenavigated": listener(self._on_navigated),
        }
        for event, on_event in self._listeners.items():
            page.on(event, on_event)  # type: ignore[call-overload]

    def close(self) -> None:
        while self._listeners:
            self._page.remove_listener(*self._listeners.popitem())

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request() and self._is_app(request.frame):
            self._failed = request

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request() and self._is_app(response.frame):
            self.response = response

    def _on_navigated(self, frame: Frame) -> None:
        if self._is_app(frame) and frame.url.startswith("chrome-error:"):
            self.failed.set()

    def _is_app(self, frame: Frame) -> bool:
        # Frames that the app itself embeds are nested deeper.
        return frame.parent_frame == self._page.main_frame

    @property
    def status(self) -> int | None:
        """HTTP status of the document, if it came over HTTP."""
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
            return redirect + explain_load_failure(failure, url)
        refusal = await _embedding_refusal(self.response)
        return (
            f"{redirect}it refuses to be embedded ({refusal}); have the app allow {self._harness_origin}, or open it "
            "by itself (transport='playwright')"
        )


async def _embedding_refusal(response: Response) -> str:
    """Return the header of a response that forbids to embed its document."""
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
