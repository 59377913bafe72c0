"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (PROTOCOL "Envelope").

The harness is a page of ours at an origin of its own, answered inside the browser: no server is needed, and none of its
requests reaches a network. Buffers cross by transfer list, so the app gives its copy away instead of making another.
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
from ..browser.page.navigation import why_not_loaded
from ..browser.process.launch import Browser
from ..browser.source import Source, StorageState
from ..browser.transport import PageTransport
from ..errors import CallTimeout, ConnectFailed, Disconnected, NotAbpApp, TransportError, UsageError
from ..protocol.messages import Message
from ..protocol.urls import redact_url

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Frame, Page, Request, Response, Route

__all__ = ["HARNESS_ORIGIN", "PostMessageTransport"]

logger = logging.getLogger("transports.postmessage")

#: Where the harness page stands. ``.localhost`` is a secure context without https, so that http and https apps can be
#: embedded alike and keep what secure contexts offer; the name is its own site, so that the app gets its own process.
HARNESS_ORIGIN = "http://abp-harness.localhost"
_HARNESS = """<!doctype html><meta charset="utf-8"><title>abp-transports harness</title>
<style>html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%}</style><body>"""
#: In every frame, before the app's first script: ``print`` is a signal (PROTOCOL), and the browser's own one would
#: stop the frame.
_PRINT = f"""if (self !== top) {{
  const post = top.postMessage.bind(top);
  self.print = function print() {{ post({{type: "print"}}, {HARNESS_ORIGIN!r}); }};
}}"""
#: Inches: US Letter and its margins, as Chromium has them by default, and the tallest page that PDF allows.
_PAPER, _MARGIN, _TALLEST = 11.0, 0.4, 200.0
_PER_INCH = 96  # CSS pixels
_PRINTED_WIDTH = 739  # CSS pixels: 8.5 inches without margins
#: No top navigation (the app could leave the harness), no popups, no modal dialogs.
_SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"


class PostMessageTransport(PageTransport):
    """The app at ``url``, embedded.

    ``sandbox`` and ``allow`` are the attributes of the iframe (HTML "The iframe element"); ``sandbox=None`` leaves the
    attribute out. ``allow-same-origin`` is needed: messages to an app without an origin could not be addressed.
    The other options are as for :class:`~transports.PlaywrightTransport`.
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
        source = Source(browser, None, context, profile, storage_state, cdp_url, headless=headless)
        super().__init__(url, source=source, timeout=timeout)
        self._sandbox = sandbox
        self._allow = allow
        self._counts: Counter[str] = Counter()
        self._frame: Frame | None = None
        self._process: CDPSession | None = None

    @property
    def url(self) -> str | None:
        """The app's own address, not the harness's."""
        return self._frame.url if self._frame else self._target

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages were ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown``, ``malformed`` or
        ``foreign`` (from another window or origin); may be a moment old."""
        return self._counts

    async def _enter(self, page: Page, agent: PageAgent) -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # a browser without that permission asks for none
            await page.context.grant_permissions(["local-network-access"], origin=HARNESS_ORIGIN)
        await page.add_init_script(script=_PRINT)
        await page.route(f"{HARNESS_ORIGIN}/", _answer)
        await page.goto(f"{HARNESS_ORIGIN}/")
        await page.unroute(f"{HARNESS_ORIGIN}/")  # interception would slow down the app's own requests
        seen = _Navigation(page)
        try:
            await agent.invoke("embed", self._target, self._sandbox, self._allow, timeout=self._timeout)
            frame = page.main_frame.child_frames[0]
            while not frame.url:  # Playwright hears of it a little later than the page
                await asyncio.sleep(0.01)
        finally:
            seen.close()
        if frame.url.startswith("chrome-error:"):
            raise ConnectFailed(f"cannot embed {redact_url(self._target)}: {await seen.reason(self._target)}")
        self._frame = frame
        self._status = seen.status
        parts = urlsplit(frame.url)
        await agent.invoke("talkTo", f"{parts.scheme}://{parts.netloc}", timeout=self._timeout)
        await self._watch(frame, agent)

    async def _watch(self, frame: Frame, agent: PageAgent) -> None:
        """An app of another site runs in a process of its own, which can die alone."""
        from playwright.async_api import Error

        self._process = None
        removed = Disconnected("the embedded app's frame was removed; call again")
        frame.page.on("framedetached", lambda gone: agent.lose(removed) if gone is frame else None)
        with contextlib.suppress(Error):
            self._process = process = await frame.page.context.new_cdp_session(frame)
            crashed = Disconnected("the embedded app's process crashed; call again")
            process.on("Inspector.targetCrashed", lambda _: agent.lose(crashed))
            await process.send("Inspector.enable")
            await self._effects.embedded(process)

    async def request(self, message: Message, *, timeout: float) -> Message:
        try:
            return await super().request(message, timeout=timeout)
        except CallTimeout as error:
            if message.type != "initialize":
                raise
            status = f" (HTTP {self._status})" if self._status else ""
            raise NotAbpApp(
                f"the embedded page at {redact_url(self._target)}{status} answered no message within {timeout:g} s; "
                "does it speak ABP over postMessage (abp-embed.js), and may this origin, "
                f"{HARNESS_ORIGIN}, drive it?"
            ) from error

    def _on_event(self, kind: str, payload: Any) -> None:
        if kind == "gone":
            self._page_agent().lose(Disconnected("the embedded app navigated or reloaded; call again"))
        elif kind == "counts":
            self._counts = Counter(payload)
        elif kind == "unknown":
            logger.warning("ignored a message of the unknown type %r", str(payload)[:100])
        else:
            super()._on_event(kind, payload)

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """The browser prints top pages only, and cuts frames where its paper ends: for a moment the frame is as tall as
        the printed app, and so is the paper."""
        agent = self._page_agent()
        if self._process is None:
            return await super()._print_page()
        try:
            await self._in_app("Emulation.setEmulatedMedia", {"media": "print"})
            await agent.invoke("resize", _PRINTED_WIDTH, None, timeout=self._timeout)
            metrics = await self._in_app("Page.getLayoutMetrics", {})
            height = metrics["cssContentSize"]["height"]
            await agent.invoke("resize", _PRINTED_WIDTH, height, timeout=self._timeout)
            tall = min(max(_PAPER, height / _PER_INCH + 2 * _MARGIN), _TALLEST)
            return await super()._print_page(paper_height=tall)
        finally:
            await self._in_app("Emulation.setEmulatedMedia", {"media": ""})
            await agent.invoke("resize", None, None, timeout=self._timeout)

    async def _in_app(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        assert self._process is not None
        sent = self._process.send(method, params)
        reply: dict[str, Any] = await self._page_agent().bounded(sent, method, timeout=self._timeout)
        return reply

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        if handle.id.startswith("blob:"):
            raise TransportError(
                "a blob: URL of an embedded app can be read by that app only; have it answer with the Blob itself"
            )
        await super().save(handle, path, timeout=timeout)


async def _answer(route: Route) -> None:
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-src *"}
    await route.fulfill(body=_HARNESS, content_type="text/html; charset=utf-8", headers=headers)


class _Navigation:
    """What became of the requests for the frame's document."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._failed: Request | None = None
        self._response: Response | None = None
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
            self._response = response

    @property
    def status(self) -> int | None:
        return self._response.status if self._response else None

    async def reason(self, url: str) -> str:
        """Why the frame shows an error page."""
        failure = (self._failed.failure if self._failed else None) or "the browser does not say why"
        if "BLOCKED_BY_RESPONSE" not in failure or self._response is None:
            return why_not_loaded(failure, url)
        async with asyncio.timeout(5.0):
            headers = await self._response.all_headers()
        policy = headers.get("content-security-policy", "")
        directive = next((part.strip() for part in policy.split(";") if "frame-ancestors" in part), None)
        refusal = directive or f"X-Frame-Options: {headers.get('x-frame-options', '?')}"
        return (
            f"it refuses to be embedded ({refusal}); have the app allow {HARNESS_ORIGIN}, or open it by itself "
            "(transport='playwright')"
        )
