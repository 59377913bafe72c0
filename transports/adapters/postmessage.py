"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (docs/protocol.md 6.5).

The harness is a page of ours at an origin of its own, answered inside the browser: no server is needed, and none of its
requests reaches a network. Buffers in parameters are transferred, not copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..base import Features
from ..binary import BinaryData, Handle
from ..browser.page.agent import PageAgent
from ..browser.page.navigation import explain_load_failure
from ..browser.page.problems import not_abp, read_problems
from ..browser.process.launch import Browser
from ..browser.server_address import ServerAddress
from ..browser.source import PageSource, StorageState
from ..browser.transport import PageTransport
from ..errors import CallTimeout, ConnectFailed, Disconnected, TransportError, UsageError, format_seconds
from ..protocol.messages import Message
from ..protocol.urls import redact_url

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Frame, Page, Request, Response, Route

__all__ = ["HARNESS_ORIGIN", "PostMessageTransport"]

logger = logging.getLogger("transports.postmessage")

#: The origin of the harness page. ``.localhost`` is a secure context without https, so that http and https apps can
#: both be embedded and keep what secure contexts offer. The name is a site of its own, so that the app gets a process.
HARNESS_ORIGIN = "http://abp-harness.localhost"
_HARNESS = """<!doctype html><meta charset="utf-8"><title>abp-transports harness</title>
<style>html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%}</style><body>"""
#: Runs in every frame before the app's first script: ``print`` becomes a message (docs/protocol.md 11.3), since the
#: browser's own would block the frame.
_PRINT_SCRIPT = f"""if (self !== top) {{
  const post = top.postMessage.bind(top);
  self.print = function print() {{ post({{type: "print"}}, {HARNESS_ORIGIN!r}); }};
}}"""
#: Inches: the height of US Letter and its margins, which are Chromium's defaults, and the tallest page that PDF allows.
_PAPER_HEIGHT, _MARGIN, _MAX_PAPER_HEIGHT = 11.0, 0.4, 200.0
_PIXELS_PER_INCH = 96  # CSS pixels
_PRINTED_WIDTH = 739  # CSS pixels: 8.5 inches without margins
#: No top navigation (the app could leave the harness), no popups, no modal dialogs.
_SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"


class PostMessageTransport(PageTransport):
    """The app at ``url``, embedded in an iframe.

    ``sandbox`` and ``allow`` are the attributes of the iframe (HTML "The iframe element"); ``sandbox=None`` leaves the
    attribute out. ``allow-same-origin`` is required: a message to an app without an origin cannot be addressed. The
    other options are as for :class:`~transports.PlaywrightTransport`.

    Raises :class:`~transports.errors.UsageError` if options contradict each other.
    """

    name = "postmessage"
    features = Features(reconnects=True, cookies=True)
    _scripts = ("codec.js", "effects.js", "harness.js")

    def __init__(
        self,
        url: str,
        *,
        browser: Browser | str | None = None,
        context: BrowserContext | None = None,
        profile: str | Path | None = None,
        storage_state: StorageState | None = None,
        cdp_url: str | None = None,
        headless: bool = True,
        timeout: float = 30.0,
        sandbox: str | None = _SANDBOX,
        allow: str = "",
    ) -> None:
        if sandbox is not None and not {"allow-scripts", "allow-same-origin"} <= set(sandbox.lower().split()):
            raise UsageError("sandbox= needs allow-scripts and allow-same-origin, or the app cannot be spoken with")
        source = PageSource(browser, None, context, profile, storage_state, cdp_url, headless=headless)
        super().__init__(url, source=source, timeout=timeout)
        self._sandbox = sandbox
        self._allow = allow
        self._counts: Counter[str] = Counter()
        self._frame: Frame | None = None
        self._server_address = ServerAddress()
        self._app_session: CDPSession | None = None

    @property
    def url(self) -> str | None:
        """The app's own address, not the harness's."""
        return self._frame.url if self._frame else self._target

    @property
    def server_address(self) -> tuple[str, int] | None:
        """The address that the browser loaded the app from."""
        return self._server_address.of(self.url)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages were ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown``, ``malformed`` or
        ``foreign`` (from another window or origin). May be 50 ms old.
        """
        return self._counts

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # older browsers do not know this permission, and never ask for it
            await page.context.grant_permissions(["local-network-access"], origin=HARNESS_ORIGIN)
        await page.add_init_script(script=_PRINT_SCRIPT)
        await page.route(f"{HARNESS_ORIGIN}/", _serve_harness)
        await page.goto(f"{HARNESS_ORIGIN}/")
        await page.unroute(f"{HARNESS_ORIGIN}/")  # interception would slow down the app's own requests
        navigation = _NavigationWatcher(page)
        try:
            await agent.invoke("embed", self._target, self._sandbox, self._allow, timeout=self._timeout)
            frame = page.main_frame.child_frames[0]
            while not frame.url:  # Playwright learns of the address a little later than the page
                await asyncio.sleep(0.01)
        finally:
            navigation.close()
        if frame.url.startswith("chrome-error:"):
            reason = await navigation.reason(self._target)
            details = {"status": navigation.status} if navigation.response else {}
            raise ConnectFailed(f"cannot embed {redact_url(self._target)}: {reason}", details=details)
        self._frame = frame
        self._status = navigation.status
        await self._server_address.read(navigation.response)
        parts = urlsplit(frame.url)
        await agent.invoke("setOrigin", f"{parts.scheme}://{parts.netloc}", timeout=self._timeout)
        await self._watch(frame, agent)

    async def _watch(self, frame: Frame, agent: PageAgent) -> None:
        """Watch the frame, and its process: an app of another site has a process of its own, which can crash alone."""
        from playwright.async_api import Error

        self._app_session = None
        removed = Disconnected("the embedded app's frame was removed")
        frame.page.on("framedetached", lambda gone: agent.mark_lost(removed) if gone is frame else None)
        with contextlib.suppress(Error):
            self._app_session = process = await frame.page.context.new_cdp_session(frame)
            crashed = Disconnected("the embedded app's process crashed")
            process.on("Inspector.targetCrashed", lambda _: agent.mark_lost(crashed))
            await process.send("Inspector.enable")
            await self._effects.watch_frame(process)

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request to the embedded app.

        Raises :class:`~transports.errors.NotAbpApp` if ``initialize`` gets no reply in time.
        """
        try:
            return await super().request(message, timeout=timeout)
        except CallTimeout:
            if message.type != "initialize":
                raise
            status = f" (HTTP {self._status})" if self._status else ""
            problems = await read_problems(self._require_agent().page, self._frame)
            raise not_abp(
                f"the embedded page at {redact_url(self._target)}{status} answered no message within "
                f"{format_seconds(timeout)}",
                f"does it speak ABP over postMessage (abp-embed.js), and may this origin, {HARNESS_ORIGIN}, drive it?",
                problems,
            ) from None

    def _on_event(self, kind: str, payload: Any) -> None:
        if kind == "unloaded":
            self._require_agent().mark_lost(Disconnected("the embedded app navigated or reloaded"))
        elif kind == "counts":
            self._counts = Counter(payload)
        elif kind == "unknown":
            logger.warning("ignored a message of the unknown type %r", str(payload)[:100])
        else:
            super()._on_event(kind, payload)

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """Print the app. A browser prints top pages only, and cuts a frame where its paper ends.

        So the frame and the paper become as tall as the printed app for a moment.
        """
        agent = self._require_agent()
        if self._app_session is None:
            return await super()._print_page()
        try:
            await self._send_to_app("Emulation.setEmulatedMedia", {"media": "print"})
            await agent.invoke("resize", _PRINTED_WIDTH, None, timeout=self._timeout)
            metrics = await self._send_to_app("Page.getLayoutMetrics", {})
            height = metrics["cssContentSize"]["height"]
            await agent.invoke("resize", _PRINTED_WIDTH, height, timeout=self._timeout)
            tall = min(max(_PAPER_HEIGHT, height / _PIXELS_PER_INCH + 2 * _MARGIN), _MAX_PAPER_HEIGHT)
            return await super()._print_page(paper_height=tall)
        finally:
            await self._send_to_app("Emulation.setEmulatedMedia", {"media": ""})
            await agent.invoke("resize", None, None, timeout=self._timeout)

    async def _send_to_app(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        assert self._app_session is not None
        sent = self._app_session.send(method, params)
        reply: dict[str, Any] = await self._require_agent().with_deadline(sent, method, timeout=self._timeout)
        return reply

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Write content of the app to ``path``. A ``blob:`` URL of the app cannot be read from the harness."""
        if handle.id.startswith("blob:"):
            raise TransportError(
                "a blob: URL of an embedded app can be read by that app only; have it answer with the Blob itself"
            )
        await super().save(handle, path, timeout=timeout)


async def _serve_harness(route: Route) -> None:
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-src *"}
    await route.fulfill(body=_HARNESS, content_type="text/html; charset=utf-8", headers=headers)


class _NavigationWatcher:
    """Records what became of the requests for the frame's document."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._failed: Request | None = None
        self.response: Response | None = None
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)

    def close(self) -> None:
        self._page.remove_listener("requestfailed", self._on_failed)
        self._page.remove_listener("response", self._on_response)

    def _on_failed(self, request: Request) -> None:
        if request.is_navigation_request():
            self._failed = request

    def _on_response(self, response: Response) -> None:
        if response.request.is_navigation_request():
            self.response = response

    @property
    def status(self) -> int | None:
        return self.response.status if self.response else None

    async def reason(self, url: str) -> str:
        """Return why the frame shows an error page, for ``url``."""
        failure = (self._failed.failure if self._failed else None) or "the browser does not say why"
        if "BLOCKED_BY_RESPONSE" not in failure or self.response is None:
            return explain_load_failure(failure, url)
        async with asyncio.timeout(5.0):
            headers = await self.response.all_headers()
        policy = headers.get("content-security-policy", "")
        directive = next((part.strip() for part in policy.split(";") if "frame-ancestors" in part), None)
        refusal = directive or f"X-Frame-Options: {headers.get('x-frame-options', '?')}"
        return (
            f"it refuses to be embedded ({refusal}); have the app allow {HARNESS_ORIGIN}, or open it by itself "
            "(transport='playwright')"
        )
