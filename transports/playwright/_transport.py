"""The transports whose app is the page itself: :class:`PlaywrightTransport`, :class:`WebMcpTransport`, and their base.

A page speaks ABP if it has ``window.abp``. Otherwise its WebMCP tools, and those of its frames, can be driven in the
same way: scripts of :mod:`transports.playwright` wrap them in an object like ``window.abp`` (docs/webmcp.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack

from playwright.async_api import Error

from .._internal.arguments import showing_options, validate_arguments
from .._internal.tasks import cancel_and_wait, spawn
from ..base import Features
from ..errors import (
    ConnectFailed,
    ContextLost,
    NotAbpApp,
    OutcomeUnknown,
    PersonRequired,
    TransportError,
    UsageError,
    first_line,
)
from ..protocol._plain_text import origin_of, redact_url
from ..protocol.binary import Handle
from ..protocol.messages import Message, Sender
from ._agent import Document, FrameWatcher, PageAgent, is_closed
from ._diagnosis import (
    advice_for,
    app_fault,
    asks_to_sign_in,
    explain_load_failure,
    location_note,
    not_abp,
    read_problems,
    refused_page,
    same_document,
)
from ._effects import Dialogs
from ._frames import MARK, FrameTools, ToolFrame, own_tools
from ._page_transport import DocumentAccess, PageTransport, addresses_around, cancellation, sender_of
from ._process import playwright_timeout
from ._received import AppState, Effect, parse_json
from ._scripts import Adapter, extension_folder, extension_page_in, failure_of, not_installed, read_adapter
from ._source import PageOptions, PageSource

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

#: Protocol of a page: ``window.abp``, WebMCP tools, or the first of the two that the page has.
PageProtocol: TypeAlias = Literal["abp", "webmcp", "auto"]
#: Seconds for the events of a navigation to arrive.
_NEW_DOCUMENT = 0.1
#: Attempts to send a call that never began, or to find an app.
_MAX_ATTEMPTS = 5


async def _last_status(page: Page) -> int | None:
    """Return the HTTP status of the page's last navigation, or ``None`` if its server has not answered."""
    for request in reversed(await page.requests()):
        if request.is_navigation_request() and request.frame == page.main_frame:
            # response() would wait for a server that has not answered yet.
            response = request.existing_response
            return None if response is None else response.status
    return None


class TopPageTransport(PageTransport):
    """The app at ``url``, or in a Chrome extension (``extension:FOLDER``, or a folder with a ``manifest.json``; its
    page is ``extension_page``).

    ``browser`` is the name of a browser to start (see :class:`~transports.Browser`), a running one to share, or a
    ``Pool``. Otherwise one of these options gives the page:

    - ``page``: the caller's own page of ``playwright.async_api``. An app that is loaded there already is driven as it
      is; a page at another address than ``url`` navigates there. It stays open.
    - ``context``: the caller's own context. A page is opened there, and closed again.
    - ``cdp_url``: a running Chromium. A tab is opened there, and closed again.
    - ``browser_server``: a Playwright server, which starts a browser. ``headers`` are sent to it, or to ``cdp_url``,
      and are never shown.

    ``profile`` is a folder that keeps the user's sign-ins; ``storage_state`` is a value or a file of
    ``context.storage_state()``. ``timeout`` in seconds covers starting and loading; ``grace`` is the time in seconds
    for the app to appear after the page has loaded.

    ``dialogs`` is the answer to ``confirm`` and ``prompt``: ``"dismiss"``, or ``"accept"`` (a prompt with the text it
    suggests). ``permissions`` are granted as if a user had agreed (``"clipboard-read"``, ``"geolocation"``, …); all
    other permissions are denied. Neither applies to a caller's own page.

    ``protocol`` is ``"abp"``, ``"webmcp"`` or ``"auto"``. With ``"auto"`` the transport is called ``webmcp`` once it
    has found tools and no ``window.abp``.

    ``adapter`` is the file of a script that makes an app of a page without a protocol (docs/adapters.md). It runs
    before the page's first script, in every document of the page (not of its frames) at the origin of ``url``.

    Raises :class:`~transports.errors.UsageError` for contradicting options and for an unreadable adapter.
    """

    features = Features(listing=True, reconnects=True, cookies=True, appends=True, page=True)
    _default_protocol: ClassVar[PageProtocol] = "abp"
    _default_grace: ClassVar[float] = 5.0

    @showing_options(PageOptions, headless=True)
    @validate_arguments
    def __init__(
        self,
        url: str,
        *,
        page: Page | None = None,
        extension_page: str | None = None,
        timeout: float = 30.0,
        grace: float | None = None,
        dialogs: Dialogs = "dismiss",
        permissions: Collection[str] = (),
        protocol: PageProtocol | None = None,
        adapter: str | Path | None = None,
        **options: Unpack[PageOptions],
    ) -> None:
        folder = extension_folder(url)
        self._extension_page = ""
        if folder is not None:
            self._extension_page = extension_page_in(folder, extension_page)
        elif extension_page is not None:
            raise UsageError("extension_page= is for a Chrome extension; give extension:FOLDER as the target")

        source = PageSource(page=page, extension=folder, **options)
        super().__init__(url, source=source, timeout=timeout, dialogs=dialogs, permissions=permissions)
        self._grace = self._default_grace if grace is None else grace
        self._submitting: set[str] = set()
        self._frames: FrameTools | None = None
        self._accesses: dict[ToolFrame, DocumentAccess] = {}
        self._greeted = False
        # Tasks that announce the tools of a new document.
        self._announcements: set[asyncio.Task[None]] = set()
        self._adapter = None if adapter is None else read_adapter(adapter, url)
        self.features = replace(self.features, undeclared=adapter is not None)

        protocol = protocol or self._default_protocol
        if protocol != "abp":
            self._scripts = (*PageTransport._scripts, "webmcp.js", "webmcp_tools.js", "webmcp_answers.js")
            self._script_options = {"protocol": protocol}

    async def _install_adapter(self, page: Page, agent: PageAgent) -> None:
        if self._adapter is None:
            return
        await self._check_adapter(agent, self._adapter)
        await self._add_script(page, agent, self._adapter.source())
        # A page of the caller has loaded its document already.
        if page is self._source.page:
            running = agent.channel.run(self._adapter.source(late=True))
            await agent.with_deadline(running, "running the adapter", timeout=self._timeout)

    async def _add_script(self, page: Page, agent: PageAgent, source: str) -> None:
        script = await page.add_init_script(source)

        async def remove() -> None:
            with contextlib.suppress(TransportError):
                await agent.with_deadline(script.close(), "leaving the page", timeout=2.0)

        if page is self._source.page:
            self._page_stack.push_async_callback(remove)

    async def _check_adapter(self, agent: PageAgent, adapter: Adapter) -> None:
        """Let the browser compile the adapter, and raise its error of syntax. Without CDP, nothing is checked."""
        if agent.channel.cdp is None:
            return
        script = {"expression": f"(abp) => {{\n{adapter.script}\n}}", "sourceURL": "", "persistScript": False}
        reply = await agent.send("Runtime.compileScript", script, timeout=self._timeout)
        fault = reply.get("exceptionDetails")
        if fault:
            reason = first_line(str(fault.get("exception", {}).get("description", "it cannot be compiled")))
            # lineNumber counts from 0, but our wrapper adds a line before the script.
            line = fault["lineNumber"]
            raise UsageError(f"the adapter {adapter.name} is not valid JavaScript: line {line}: {reason}")

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        if self._source.extension is not None and self._browser is not None:
            extension = await self._browser.load_extension(self._source.extension)
            self._target = f"chrome-extension://{extension}/{self._extension_page}"
        await self._install_adapter(page, agent)

        status = None
        is_loaded = page is self._source.page and same_document(page.url, self._target)
        if is_loaded:
            app, waited = await self._find_app(agent)
        else:
            response = await self._navigate(page)
            status = None if response is None else response.status
            (app, waited), _ = await asyncio.gather(self._find_app(agent), self._read_server_address(response))

        if app.protocol == "webmcp":
            self.name = "webmcp"
            self.features = replace(self.features, undeclared=True)
            agent.survive_navigation(lambda: spawn(self._announce_tools(agent), self._announcements))
            return

        if self._frames is not None:
            self._frames.stop_driving()
        fault = app_fault(app, self._script_options.get("protocol", "abp"), waited)
        if fault:
            raise await self._fault_error(page, app, fault, status)

    async def _fault_error(self, page: Page, app: AppState, fault: str, status: int | None) -> NotAbpApp:
        # The steps that explain the fault have other time limits.
        self._time_limit.reschedule(None)
        sign_in = not app.present and await asks_to_sign_in(page.main_frame, self._target)
        explanation, advice = self._explain_fault(app, fault, page.url, status)
        return not_abp(explanation, advice, await read_problems(page), sign_in=sign_in)

    async def _navigate(self, page: Page) -> Response | None:
        try:
            return await page.goto(
                self._target, wait_until="domcontentloaded", timeout=playwright_timeout(self._timeout)
            )
        except Error as error:
            if is_closed(error):
                raise
            reason = explain_load_failure(str(error), self._target, await _last_status(page))
            raise ConnectFailed(f"cannot open {redact_url(self._target)}: {reason}") from None

    def _explain_fault(self, app: AppState, fault: str, url: str, status: int | None) -> tuple[str, str]:
        """Return the explanation of a page without a usable app, and advice, which may be empty."""
        title = f"title {app.title[:200]!r}"
        moved = location_note(url, self._target)
        failure = "" if self._adapter is None else failure_of(self._adapter, app.threw)
        if failure:
            return f"{failure}; it ran in the page at {redact_url(self._target)}{moved} ({title})", ""

        refusal = refused_page(app, status, self._target)
        if refusal:
            return f"{refusal} (the page{moved.removesuffix(',')}, {title}, {fault})", ""

        page_facts = f"{title}, HTTP {status}" if status else title
        return f"the page at {redact_url(self._target)}{moved} ({page_facts}) {fault}", self._advice(app, status)

    async def _find_app(self, agent: PageAgent) -> tuple[AppState, float]:
        """Look for the app, again in each document that the page navigates to. Returns as :meth:`_look_for_app`."""
        time_limit = self._time_limit.when()
        assert time_limit is not None
        # Give up a little before the time limit, whose error would not say what is wrong with the page.
        until = time_limit - 0.1
        for _ in range(_MAX_ATTEMPTS - 1):
            with contextlib.suppress(ContextLost):
                return await self._look_for_app(agent, until)
            await asyncio.sleep(_NEW_DOCUMENT)
        return await self._look_for_app(agent, until)

    async def _look_for_app(self, agent: PageAgent, until: float = math.inf) -> tuple[AppState, float]:
        """Wait until the app is complete, for ``grace`` seconds after the page loaded, or until ``until`` (loop time).

        Return what was seen, and the seconds since the page loaded. They are measured here, because a page may stop its
        clock."""
        wait_for_abp = 0.3
        now = asyncio.get_running_loop().time
        loaded_at: float | None = None
        while True:
            in_frames = self._frames is not None and self._frames.have_had_tools
            since_load = 0.0 if loaded_at is None else now() - loaded_at
            # The page may still define window.abp for a moment, which is preferred to its tools.
            takes_tools = since_load >= wait_for_abp
            state = await agent.invoke("look", in_frames, takes_tools, timeout=self._timeout, returns=str)
            app = parse_json(state, AppState, "the app found in the page")
            gives_up = loaded_at is not None and (since_load >= self._grace or now() >= until)
            if app.is_app or gives_up:
                return app, min(since_load, self._grace)
            if app.state == "complete" and loaded_at is None:
                loaded_at = now()
            await asyncio.sleep(0.01)

    def _advice(self, app: AppState, status: int | None) -> str:
        if app.present or app.threw:
            return ""
        if self._adapter is not None and origin_of(self.url) != self._adapter.origin:
            return not_installed(self._adapter, self._target, self.url or "")
        if self._adapter is not None:
            return (
                f"the adapter {self._adapter.name} ran and registered nothing: call abp.capability(name, schema, run) "
                "in it, at once or as soon as the page is ready"
            )
        return advice_for(app, self._script_options.get("protocol", "abp"), status)

    # --- the tools of a page: it may navigate while the session goes on -----------------------------------------------

    async def _announce_tools(self, agent: PageAgent) -> None:
        """Send an event for the tools of a new document once they are registered."""
        with contextlib.suppress(TransportError):
            await self._look_for_app(agent)
            await agent.invoke("initialize", "{}", timeout=self._timeout)
            self._events.put_nowait(Message("capabilities/changed", {}))

    async def _settle_navigation(self, page: Page) -> None:
        """Wait for the tools of a new document, but not for long: tools that are registered later are announced."""
        if not self._announcements:
            return

        async def wait_for_load() -> None:
            with contextlib.suppress(Error):
                await page.wait_for_load_state("load", timeout=0)
            time_to_register = 0.3
            await asyncio.sleep(time_to_register)

        announcements = asyncio.wait({*self._announcements})
        waits = asyncio.ensure_future(wait_for_load()), asyncio.ensure_future(announcements)
        try:
            await asyncio.wait(waits, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(waits)

    async def _wait_for_new_document(self, agent: PageAgent) -> bool:
        """Wait until the page shows its new document. Return false if the page itself is lost."""
        await asyncio.sleep(_NEW_DOCUMENT)
        if not agent.is_lost:
            await self._settle_navigation(agent.page)
        return not agent.is_lost

    async def inspect_tools(self) -> Mapping[str, object]:
        """Return ``{tools, forms, api, secure}`` of the page, for ``abp conformance``."""
        facts = await self._require_agent().invoke("inspectTools", timeout=self._timeout, returns=str)
        return parse_json(facts, dict[str, object], "the facts about the tools of the page")

    # --- the tools of its frames --------------------------------------------------------------------------------------

    def _watch_frames(self, agent: PageAgent) -> FrameWatcher | None:
        """Watch the tools of the page's frames. Return ``None`` if tools are not wanted."""
        if not self._script_options:
            return None
        self._frames = frames = FrameTools(agent, self._on_frames_changed, self._on_frame_effect)
        self._accesses.clear()
        self._page_stack.push_async_callback(frames.aclose)
        if agent.page is self._source.page:
            self._page_stack.push_async_callback(frames.uninstall)
        return frames

    def _on_frames_changed(self, removed: list[str]) -> None:
        if self.name == "webmcp" and self._greeted:
            self._events.put_nowait(Message("capabilities/changed", {"removed": removed}))

    def _on_frame_effect(self, frame: ToolFrame, kind: str, effect: Effect) -> None:
        if kind == "submitting":
            self._submitting.add(effect.call or "")
        elif kind == "frameprint":
            self._effects.on_event(kind, effect)
        else:
            self._effects.on_event(kind, effect, handle_prefix=frame.handle_prefix)

    def _access_to(self, frame: ToolFrame) -> DocumentAccess:
        if frame not in self._accesses:
            self._accesses[frame] = self._make_access(frame.agent, frame.handle_prefix)
        return self._accesses[frame]

    async def _list_tools(self, message: Message, *, timeout: float) -> Message:
        """Send ``initialize`` or ``capabilities/list``, and add the tools of frames to the reply."""
        reply = await super().request(message, timeout=timeout)
        frames = self._frames
        if frames is None:
            return reply

        await frames.wait_until_listed()
        payload: Any = reply.payload
        if message.type == "capabilities/list":
            reply.payload = [*own_tools(payload), *frames.listed()]
        elif isinstance(payload, dict) and isinstance(payload.get("capabilities"), list):
            payload["capabilities"] = [*own_tools(payload["capabilities"]), *frames.listed()]
            self._greeted = True
        return reply

    async def _call_in_frame(self, frames: FrameTools, message: Message, *, timeout: float) -> Message:
        """Call a tool of a frame. Only the document that listed it may answer."""
        payload: Any = message.payload
        tool, call_id = payload["capability"], payload["options"]["callId"]
        tool_of_frame = await frames.find(tool, patience=1.0)
        if tool_of_frame is None:
            return _not_sent(message, tool)

        frame, name_in_frame = tool_of_frame
        page_document = await self._require_agent().document(timeout=timeout)
        frames.register_call(frame, call_id)
        message_to_frame = replace(message, payload={**payload, "capability": name_in_frame})
        try:
            access = self._access_to(frame)
            reply = await self._send_call(message_to_frame, access, timeout)
            document = await access.agent.document(timeout=timeout)
            reply.sender = self._sender_in(frame, page_document, document.base)
            return reply
        except ContextLost as lost:
            if lost.sent is False:
                return _not_sent(message, tool)
            raise
        finally:
            frame.calls.pop(call_id, None)

    def _sender_in(self, frame: ToolFrame, page_document: Document, base: str) -> Sender:
        """Return the sender for a document in a frame. Frames of one origin cannot be distinguished, so the sender
        counts as being in all of their places. A document whose frame is unknown counts as a third party's."""
        same_origin = [other for other in self._require_agent().page.frames[1:] if origin_of(other.url) == frame.origin]
        return sender_of(
            frame.url,
            frame.origin,
            page_origin=page_document.origin,
            page_domain=page_document.domain,
            base=base,
            around=tuple(addresses_around(same_origin)) or ("",),
            server_address=self._address_of(frame.origin),
        )

    def receiver(self, message: Message) -> str | None:
        """Return the address that a message goes to: of the page, or of a tool's frame. If a frame has another origin
        than its address, return the origin."""
        payload: Any = message.payload
        frame = None
        if message.type == "capabilities/call" and self._frames is not None:
            frame = self._frames.frame_of_tool(payload["capability"])
        if frame is None:
            return self.url
        if origin_of(frame.url) != frame.origin:
            return frame.origin
        return frame.url

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        kind, _, name = handle.id.partition(":")
        if kind != "frame" or self._frames is None:
            await super().save(handle, path, timeout=timeout)
            return
        frame, held_id = self._frames.frame_of_handle(name)
        if frame is None:
            raise ContextLost("the frame that holds this content navigated or went away")
        await self._access_to(frame).ladder.save(Handle(held_id, handle.size), path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        kind, _, name = handle.id.partition(":")
        if kind != "frame" or self._frames is None:
            await super().release(handle)
            return
        frame, held_id = self._frames.frame_of_handle(name)
        if frame is not None:
            with contextlib.suppress(TransportError):
                await frame.agent.invoke("release", held_id, timeout=2.0)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request to the page, or to a frame with the tool that is called.

        The call of a tool also raises :class:`~transports.errors.PersonRequired` and
        :class:`~transports.errors.OutcomeUnknown`."""
        if self.name != "webmcp":
            return await super().request(message, timeout=timeout)
        if message.type in ("initialize", "capabilities/list"):
            return await self._list_tools(message, timeout=timeout)
        if message.type == "capabilities/call":
            return await self._call_tool(message, timeout)

        payload: Any = message.payload
        if message.type == "capabilities/cancel" and self._frames is not None:
            frame = self._frames.frame_of_call(payload["callId"])
            if frame is not None:
                access = self._access_to(frame)
                return await self._invoke(message, "cancel", *cancellation(payload), timeout=timeout, access=access)
        return await super().request(message, timeout=timeout)

    async def _call_tool(self, message: Message, timeout: float) -> Message:
        """Call a tool. A call that was lost with its document before it began is sent again to the next document."""
        payload: Any = message.payload
        tool, call_id = payload["capability"], payload["options"]["callId"]
        agent = self._require_agent()
        place = "page"
        send = super().request
        if self._frames is not None and MARK in tool and not agent.is_lost:
            place = "frame"
            send = partial(self._call_in_frame, self._frames)

        for attempt in count(1):
            try:
                reply = await send(message, timeout=timeout)
                break
            except ContextLost as lost:
                has_new_document = await self._wait_for_new_document(agent)
                may_repeat = lost.sent is False and attempt < _MAX_ATTEMPTS
                if has_new_document and may_repeat:
                    continue
                # A form without respondWith() answers by navigating to another page.
                if has_new_document and call_id in self._submitting:
                    return _form_sent(message, tool)
                raise OutcomeUnknown(
                    f"the {place} of {tool} navigated or went away during the call: its outcome is unknown"
                ) from lost
            finally:
                self._submitting.discard(call_id)

        # The page navigated although the tool answered.
        if self._announcements:
            await self._settle_navigation(agent.page)
            reply.relists = True
        _raise_for_code(reply)
        return reply

    def _on_event(self, kind: str, payload: Any) -> None:
        if kind == "submitting":
            self._submitting.add(payload.call or "")
        else:
            super()._on_event(kind, payload)

    async def aclose(self) -> None:
        try:
            await cancel_and_wait(self._announcements)
        finally:
            await super().aclose()


def _not_sent(message: Message, tool: str) -> Message:
    """Return the reply to a call of a tool that does not exist any more."""
    reason = "no frame of the page has it, or its frame navigated or went away; nothing was sent"
    error = {"code": "UNKNOWN_CAPABILITY", "message": f"unknown tool {tool}: {reason}"}
    return Message(f"{message.type}-result", {"success": False, "error": error}, id=message.id)


def _raise_for_code(reply: Message) -> None:
    """Raise an error of a page's tools that has a class of its own."""
    match reply.payload:
        case {"error": {"code": OutcomeUnknown.code} as error}:
            raise OutcomeUnknown(str(error.get("message", "")))
        case {"error": {"code": PersonRequired.code} as error}:
            raise PersonRequired(str(error.get("message", "")))


def _form_sent(message: Message, tool: str) -> Message:
    """Return the reply to a call that sent a form, whose answer is the page that it led to."""
    note = f"the form {tool} was sent and the page navigated; look at the page for the result"
    empty = {"success": True, "data": None}
    return Message(f"{message.type}-result", empty, id=message.id, warnings=(note,), relists=True)


class PlaywrightTransport(TopPageTransport):
    """Transport to a page with ``window.abp``.

    All options are those of :class:`~transports.playwright._transport.TopPageTransport`: ``browser``, or ``page``,
    ``context`` or ``cdp_url`` for a page of the caller's, or ``browser_server``, with ``headers``; ``profile`` and
    ``storage_state``; ``timeout`` and ``grace``; ``dialogs`` and ``permissions``; ``adapter``. With
    ``protocol="auto"`` a page without ``window.abp`` is driven by its WebMCP tools, if it registers any."""

    name = "playwright"


class WebMcpTransport(TopPageTransport):
    """Transport to the WebMCP tools of a page, even if the page also has ``window.abp``.

    The options are those of :class:`~transports.playwright._transport.TopPageTransport`. The first tool may appear up
    to 15 s after the page has loaded (``grace=``): large applications need several seconds."""

    name = "webmcp"
    _default_protocol = "webmcp"
    _default_grace = 15.0
