"""The transport of views: the HTML of an MCP server's tool, shown in a frame, as an app.

The host is a page of ours, the view a frame in it. Each has an origin of its own that exists in this page only: its
documents are answered by the transport itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_types import INTERNAL_ERROR
from playwright.async_api import Error as PlaywrightError

from ..._internal.tasks import in_thread, spawn
from ...base import Features
from ...errors import (
    ABPError,
    CapabilityError,
    Disconnected,
    NotAbpApp,
    ProtocolError,
    TransportError,
    first_line,
    format_seconds,
)
from ...playwright._agent import PageAgent
from ...playwright._page_tools import NO_WEBRTC
from ...playwright._page_transport import PageTransport
from ...playwright._received import ViewMessage
from ...playwright._source import PageSource
from ...protocol._strict_json import encode_json, items_of, members_of
from ...protocol.binary import BinaryData
from ...protocol.messages import PROTOCOL_VERSION as ABP_VERSION, Message
from .._wire import error_answer, result_warnings, to_answer, to_arguments
from ._diagnosis import Diagnosis
from ._document import CspMode, ViewDocument
from ._host import Host, HostContext, HostProfile, Relay, ViewHandlers, with_openai

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Route

logger = logging.getLogger("transports.views")

_HOST_HTML = """<!doctype html><meta charset="utf-8"><title>abp-transports view</title>
<style>html,body{margin:0;height:100%}iframe{display:block;border:0;width:100%;height:100%}</style><body>"""


@dataclass(frozen=True, slots=True)
class OpenedTool:
    """A call of a tool, and the view for its result. ``arguments`` and ``result`` are JSON values of MCP."""

    tool: Mapping[str, object]
    arguments: Mapping[str, object]
    result: Mapping[str, object]
    document: ViewDocument


class ViewTransport(PageTransport):
    """Transport to a view in a page. ``call_tool`` calls the tool and reads its view; it is called once, when this
    opens. ``relay`` sends requests of the view to its server."""

    name = "view"
    features = Features(listing=True, reconnects=True, appends=True, page=True)
    _scripts = ("codec.js", "effects.js", "mcp/views/js/view.js")

    def __init__(
        self,
        uri: str,
        call_tool: Callable[[], Awaitable[OpenedTool]],
        *,
        source: PageSource,
        relay: Relay,
        context: HostContext,
        handlers: ViewHandlers,
        csp: CspMode = "declared",
        profile: HostProfile,
        timeout: float = 30.0,
    ) -> None:
        super().__init__(uri, source=source, timeout=timeout)
        self._call_tool = call_tool
        self._relay = relay
        self._context = context
        self._handlers = handlers
        self._csp = csp
        self._profile = profile
        self._opened: OpenedTool | None = None
        self._host: Host | None = None
        self._frame: Frame | None = None
        self._address = ""
        self._deadline = 0.0
        self._answering: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        #: Number of files by the call that was under way.
        self._file_counts: Counter[str | None] = Counter()
        self._tools: dict[str, Mapping[str, object]] = {}
        #: Takes a file that the view hands out while no call is under way.
        self.on_file: Callable[[BinaryData], Awaitable[None]] | None = None
        self._shown_mode = context.display_mode
        # Used again when the session lists the capabilities after initialize.
        self._initial_tools: list[Mapping[str, object]] | None = None
        self._diagnosis: Diagnosis | None = None
        self._reloads = 0

    @property
    def url(self) -> str | None:
        """``None``: the origin of a view exists in its page only."""
        return None

    @property
    def frame(self) -> Frame:
        if self._frame is None or self._agent is None or self._agent.is_lost:
            raise Disconnected("the view is not open: it was closed, or it navigated away")
        return self._frame

    @property
    def document(self) -> ViewDocument | None:
        return self._opened.document if self._opened is not None else None

    @property
    def host(self) -> Host:
        if self._host is None:
            raise Disconnected("the view is not open")
        return self._host

    @property
    def diagnosis(self) -> Diagnosis:
        """Diagnosis of the document that the view shows now, or showed last."""
        if self._diagnosis is None:
            raise Disconnected("the view is not open")
        return self._diagnosis

    @property
    def counts(self) -> Mapping[str, int]:
        """As :attr:`transports.PostMessageTransport.counts`."""
        return self._counts

    async def open(self) -> None:
        self._opened = await self._call_tool()
        await super().open()

    async def aclose(self) -> None:
        try:
            await self._tear_down()
        finally:
            for task in tuple(self._answering):
                task.cancel()
            await super().aclose()

    async def _tear_down(self) -> None:
        agent = self._agent
        is_initialized = self._host is not None and self._host.initialized.is_set()
        if agent is None or agent.is_lost or not is_initialized:
            return
        timeout = 2.0
        # Many views do not know this request, and answer it with an error.
        with contextlib.suppress(ABPError):
            await agent.invoke("ask", "ui/resource-teardown", "{}", timeout=timeout)
        # The view may send its last requests during its teardown.
        if self._answering:
            await asyncio.wait(self._answering, timeout=timeout)

    async def _open_page(self) -> PageAgent:
        self._deadline = time.monotonic() + self._timeout
        return await super()._open_page()

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        opened_tool = self._opened
        assert opened_tool is not None
        self._host = host = self._new_host(opened_tool.tool)
        host_origin = f"http://abp-{secrets.token_hex(8)}.localhost"
        # The view has another origin of the same site. In a frame of another site, browsers would deny it its storage.
        view_origin = host_origin.replace("://", "://view.")
        self._address = f"{view_origin}/"
        self._diagnosis = diagnosis = Diagnosis(host, self._csp, self._address, self._answering)
        self._reloads = 0
        self._frame = None

        await self._serve_documents(page, opened_tool, host_origin, view_origin)
        diagnosis.listen(page, self._page_stack)
        await page.goto(f"{host_origin}/")
        allow = "; ".join(opened_tool.document.permissions)
        sandbox = "allow-scripts allow-same-origin allow-forms"
        await agent.invoke("show", self._address, view_origin, sandbox, allow, timeout=self._timeout)
        self._frame = page.main_frame.child_frames[0]

        # This must end before the timeout of the opening, whose error would not say why the view stays blank.
        patience = min(self._timeout / 2, 0.9 * (self._deadline - time.monotonic()))
        try:
            async with asyncio.timeout(patience):
                await asyncio.gather(
                    diagnosis.watch_policy(page, self._frame, self._page_stack), self._wait_for_handshake(host)
                )
        except TimeoutError:
            raise self._blank_error(patience, diagnosis, opened_tool.document) from None
        await self._send_result(agent, opened_tool)

    def _new_host(self, tool: Mapping[str, object]) -> Host:
        return Host(
            self._context,
            tool,
            self._handlers,
            relay=self._relay,
            save_file=self._save_file,
            discard=self.release,
            profile=self._profile,
            current_call=lambda: self._effects.current_call,
        )

    async def _serve_documents(self, page: Page, opened: OpenedTool, host_origin: str, view_origin: str) -> None:
        """Let the page answer requests for the documents of the host and the view, and set its size and theme."""
        host_headers = {
            "Content-Security-Policy": f"default-src 'none'; style-src 'unsafe-inline'; frame-src {view_origin}"
        }
        granted_sources = self._profile.csp_sources if self._csp == "declared" else None
        view_headers = opened.document.policy_headers(self._csp, granted_sources)
        # Browsers without Connection-Allowlist need a script against WebRTC.
        if self._csp != "loose":
            await page.add_init_script(NO_WEBRTC)

        width, height = self._context.size
        await asyncio.gather(
            page.set_viewport_size({"width": width, "height": height}),
            page.emulate_media(color_scheme=self._context.theme),
            page.route(f"{host_origin}/**", _serve_document(_HOST_HTML, host_headers)),
            page.route(f"{view_origin}/**", _serve_document(self._view_html(opened), view_headers)),
        )

    def _blank_error(self, blank_seconds: float, diagnosis: Diagnosis, document: ViewDocument) -> NotAbpApp:
        reason, remedy = diagnosis.why_blank
        sentences = [f"the view {self._target} stayed blank for {format_seconds(blank_seconds)}: {reason}"]
        if remedy:
            sentences.append(remedy)
        sentences += document.warnings[:1]
        return NotAbpApp("; ".join(sentences))

    async def _send_result(self, agent: PageAgent, opened: OpenedTool) -> None:
        """Send the view the arguments and the result of the call that it shows."""
        await agent.invoke(
            "tell",
            "ui/notifications/tool-input",
            await _encode_text({"arguments": opened.arguments}),
            "ui/notifications/tool-result",
            await _encode_text(opened.result),
            timeout=self._timeout,
        )

    async def _repeat_handshake(self, agent: PageAgent, host: Host, opened: OpenedTool) -> None:
        """Answer the handshake of a view that has reloaded itself. The view is lost if it does this again and again."""
        self._reloads += 1
        max_reloads = 10
        if self._reloads > max_reloads or self.frame.url != self._address:
            agent.mark_lost(Disconnected("the view navigated away, or reloads again and again"))
            return
        try:
            async with asyncio.timeout(self._timeout / 2):
                await self._wait_for_handshake(host)
        except TimeoutError:
            agent.mark_lost(Disconnected("the view reloaded and did not begin its handshake again"))
            return
        host.warn("the view reloaded itself; its handshake was answered again")
        with contextlib.suppress(TransportError):
            await self._send_result(agent, opened)

    def _view_html(self, opened: OpenedTool) -> str:
        if not self._profile.openai:
            return opened.document.html
        context = self._context
        properties = {
            "theme": context.theme,
            "locale": context.locale,
            "displayMode": context.display_mode,
            "maxHeight": context.size[1],
            "safeArea": {"insets": {"top": 0, "right": 0, "bottom": 0, "left": 0}},
            "userAgent": {"device": {"type": "desktop"}, "capabilities": {"hover": True, "touch": False}},
            "toolInput": opened.arguments,
            "toolOutput": opened.result.get("structuredContent"),
            "toolResponseMetadata": opened.result.get("_meta"),
            "widgetState": None,
        }
        return with_openai(opened.document.html, properties)

    async def _wait_for_handshake(self, host: Host) -> None:
        """Wait until the view has finished its handshake, or uses ``window.openai``, which needs none."""
        if not self._profile.openai:
            await host.initialized.wait()
            return
        handshake = asyncio.ensure_future(host.initialized.wait())
        openai_used = asyncio.ensure_future(host.openai_used.wait())
        try:
            await asyncio.wait((handshake, openai_used), return_when=asyncio.FIRST_COMPLETED)
            # Most views use both, so a handshake may still follow.
            await asyncio.wait((handshake,), timeout=1.0)
        finally:
            handshake.cancel()
            openai_used.cancel()

    async def _save_file(self, content: BinaryData) -> None:
        """Keep a file that the view hands out: as an effect of the call under way, or without a call with ``on_file``.
        Each call, and the time between calls, has its limit for the number of files."""
        call = self._effects.current_call
        # When a new call begins, only the count of the files without a call (None) is kept.
        if call not in self._file_counts:
            self._file_counts = Counter({None: self._file_counts[None]})
        self._file_counts[call] += 1
        max_files = 1000 if call is None else 64
        if self._file_counts[call] > max_files:
            raise ProtocolError("the view hands out too many files (docs/security.md)")
        if call is None and self.on_file is not None:
            await self.on_file(content)
        else:
            self._effects.add_file(content, "a file of the view")

    # --- messages of the view -----------------------------------------------------------------------------------------

    async def notify_view(self, method: str, params: Mapping[str, object]) -> None:
        text = await _encode_text(params)
        if self._frame is None:
            raise Disconnected("the view is not open now; it is being opened again")
        await self._require_agent().invoke("tell", method, text, timeout=self._timeout)

    async def update(self, context: HostContext, changed: Mapping[str, object]) -> None:
        """Change the view's surroundings. The view is notified of the ``changed`` members."""
        self.host.context = self._context = context
        self._shown_mode = context.display_mode
        page = self.frame.page
        try:
            await page.emulate_media(color_scheme=context.theme)
            await page.set_viewport_size({"width": context.size[0], "height": context.size[1]})
        except PlaywrightError as error:
            reason = first_line(error)
            raise Disconnected(f"the view's page was closed, or the view navigated away ({reason})") from None
        await self.notify_view("ui/notifications/host-context-changed", changed)

    def _on_event(self, kind: str, payload: Any) -> None:
        if isinstance(payload, ViewMessage):
            self._on_view_message(payload)
        elif kind == "reloaded":
            agent = self._require_agent()
            self.host.forget_document()
            if self._opened is not None:
                spawn(self._repeat_handshake(agent, self.host, self._opened), self._answering)
        elif kind == "counts":
            self._counts = Counter(payload)
        else:
            super()._on_event(kind, payload)

    def _on_view_message(self, message: ViewMessage) -> None:
        is_notification = message.key is None
        if is_notification and message.method == "notifications/tools/list_changed":
            self._events.put_nowait(Message("capabilities/changed", {}))
            return
        agent = self._require_agent()
        refuse = partial(self._refuse, agent, message)
        spawn(self._answer(agent, self.host, message), self._answering, refuse)

    async def _answer(self, agent: PageAgent, host: Host, message: ViewMessage) -> None:
        """Answer a message of the view. If the answer changes the display mode, the view is notified."""
        answer = await host.answer(message.method, message.params, is_request=message.key is not None)
        if answer is not None:
            await self._respond(agent, message, answer)
        if host.context.display_mode != self._shown_mode:
            self._shown_mode = host.context.display_mode
            with contextlib.suppress(TransportError):
                await self.notify_view("ui/notifications/host-context-changed", {"displayMode": self._shown_mode})

    async def _respond(self, agent: PageAgent, message: ViewMessage, answer: Mapping[str, object]) -> None:
        with contextlib.suppress(TransportError):  # the view has gone
            await agent.invoke("respond", message.key, await _encode_text(answer), timeout=self._timeout)

    def _refuse(self, agent: PageAgent, message: ViewMessage, error: BaseException) -> None:
        """Answer a request that failed in this process with an error, since the view waits for an answer."""
        if message.key is not None:
            answer = {"error": {"code": INTERNAL_ERROR, "message": f"the host failed ({type(error).__name__})"}}
            spawn(self._respond(agent, message, answer), self._answering)

    # --- calls of the view's tools ------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        match message.type:
            case "initialize":
                return await self._initialize(message, timeout)
            case "capabilities/list":
                tools = self._initial_tools
                self._initial_tools = None
                if tools is None:
                    tools = await self._list_tools(message, timeout)
                return Message("capabilities/list-result", tools, id=message.id)
            case "capabilities/call":
                return await self._call_view(message, timeout)
        return await super().request(message, timeout=timeout)

    async def _initialize(self, message: Message, timeout: float) -> Message:
        self._initial_tools = tools = await self._list_tools(message, timeout)
        info = self.host.app_info
        name = str(info.get("name") or self._target)[:200]
        payload = {
            "sessionId": secrets.token_hex(16),
            "protocolVersion": ABP_VERSION,
            "app": {"id": name, "name": name, "version": str(info.get("version") or "")[:100]},
            "capabilities": tools,
        }
        return Message("initialize-result", payload, id=message.id)

    async def _list_tools(self, message: Message, timeout: float) -> list[Mapping[str, object]]:
        """Return the tools that the view registers, 500 at most; none if the host does not call tools of views."""
        if not self._profile.app_tools or not isinstance(self.host.app_capabilities.get("tools"), dict):
            return []
        request = Message("capabilities/list", id=message.id)
        answer: Any = (await super().request(request, timeout=timeout)).payload
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            logger.warning("the view could not list its tools: %.500r", answer)
            return []

        tools = items_of(answer["result"].get("tools"))
        usable: list[Mapping[str, object]] = [tool for tool in tools if isinstance(tool, dict)]
        max_tools = 500
        if len(usable) > max_tools:
            logger.warning("the view has more than %s tools; the rest is left out", max_tools)
            del usable[max_tools:]
        self._tools = {str(tool.get("name")): tool for tool in usable}
        return usable

    async def _call_view(self, message: Message, timeout: float) -> Message:
        """Call a tool of the view, and convert its result of MCP into an answer of ABP."""
        payload: Any = message.payload
        tool = self._tools.get(payload["capability"], {})
        if message.content:
            schema = members_of(tool.get("inputSchema"))
            arguments = await asyncio.to_thread(to_arguments, payload["params"], message.content, schema)
            message = replace(message, payload={**payload, "params": arguments}, content=())

        reply = await super().request(message, timeout=timeout)
        answer: Any = reply.payload
        match answer:
            case {"result": dict(result)}:
                reply.payload = to_answer(result)
                reply.warnings = (*reply.warnings, *result_warnings(result, tool.get("outputSchema")))
                reply.is_checked = True
            case {"cancelled": True}:
                reply.payload = {"success": False, "cancelled": True}
            case {"error": {"code": code, "message": str(text)}}:
                reply.payload = error_answer(CapabilityError(text[:2000], details={"code": code}))
            case {"success": False}:
                pass
            case _:
                raise ProtocolError("the answer of the view's tool is not MCP's")
        return reply


def _serve_document(html: str, policy_headers: Mapping[str, str]) -> Callable[[Route], Awaitable[None]]:
    headers = {**policy_headers, "Origin-Agent-Cluster": "?1", "Referrer-Policy": "no-referrer"}

    async def serve(route: Route) -> None:
        if route.request.is_navigation_request() and route.request.url.endswith(".localhost/"):
            await route.fulfill(body=html, content_type="text/html; charset=utf-8", headers=headers)
        else:
            await route.fulfill(status=404, body="", headers=headers)

    return serve


async def _encode_text(value: object) -> str:
    return await in_thread(lambda: encode_json(value).decode())
