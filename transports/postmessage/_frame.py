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
    origin = _origin_beside(url) if site == "same" else HARNESS_ORIGIN
    # https too: the browser upgrades http for hosts with HSTS (RFC 6797)
    address = re.compile(rf"^https?://{re.escape(origin.partition('//')[2])}/$", re.IGNORECASE)
    await page.route(address, _serve_harness)
    await page.goto(f"{origin}/")
    await page.unroute(address)  # interception would slow down the app's own requests
    origin = page.url.removesuffix("/")
    with contextlib.suppress(Error):  # older browsers do not know this permission and never ask for it
        await page.context.grant_permissions(["local-network-access"], origin=origin)
    await page.add_init_script(script=_PRINT_SCRIPT % origin)
    return origin


def _origin_beside(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}")
    # another port is another origin on the same site (HTML "same site")
    port = 47475 if parts.port == 47474 else 47474
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
        context = frame.page.context
        with contextlib.suppress(Error):
            try:
                app = cls(agent, await context.new_cdp_session(frame), timeout)
            except Error:  # the frame shares the page's process
                app = cls(agent, await context.new_cdp_session(frame.page), timeout)
                if not await app._find_context():
                    return None
            else:
                crashed = Disconnected("the embedded app's process crashed")
                listen(app._session, "Inspector.targetCrashed", lambda _: agent.mark_lost(crashed))
                await app._session.send("Inspector.enable")
            await effects.watch_frame(app._session, app._context, shared=app._shared)
            return app
        return None

    async def _find_context(self) -> bool:
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
        while self._listeners:
            self._page.remove_listener(*self._listeners.popitem())

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request() and self._is_app(request.frame):
            self._failed = request

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request() and self._is_app(response.frame):
            self.response = response

    def _on_document(self, frame: Frame) -> None:
        if self._is_app(frame) and frame.url.startswith("chrome-error:"):
            self.failed.set()

    def _is_app(self, frame: Frame) -> bool:
        return frame.parent_frame == self._page.main_frame  # frames that the app embeds are nested deeper

    @property
    def status(self) -> int | None:
        """HTTP status of the document, if it came over HTTP."""
        return None if self.response is None else self.response.status

    async def reason(self, url: str) -> str:
        leads = ""
        failure = None
        if self._failed is not None:
            failure = self._failed.failure
            if not same_document(self._failed.url, url):
                leads = f"it leads to {shown_address(self._failed.url).partition('?')[0]}: "
        failure = failure or "the browser does not say why"
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
