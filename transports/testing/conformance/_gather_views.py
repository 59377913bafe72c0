"""Collection of evidence from an MCP server: lists, documents, then each tool with a view, and its view."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from playwright.async_api import Error as PlaywrightError

from ...errors import ABPError, NotAbpApp, ProtocolError
from ...mcp._transport import MCPTransport
from ...mcp.views._diagnosis import is_blank
from ...mcp.views._document import read_document
from ...mcp.views._host import HostContext, ViewHandlers, read_profile
from ...mcp.views._transport import OpenedTool, ViewTransport
from ...playwright._browser import Browser
from ...playwright._received import ViewMessage
from ...playwright._source import PageSource
from ...protocol._declarations import Capability
from ...protocol._strict_json import decode_json, items_of, members_of
from ...protocol.messages import Message, ServerCall
from ...session._settings import Settings
from ...session._targets import transport_for
from ._client import Client
from ._evidence import ConnectOptions, Evidence, Exchange, Finding, Plan, ServerViews, Trial, ViewTrial, view_addresses
from ._inputs import CannotGenerate, generated_params

if TYPE_CHECKING:
    from playwright.async_api import Page

    from ...playwright._agent import PageAgent

#: Notes messages that are not JSON-RPC in the host's page, where the view cannot reach them.
_NOTE_MALFORMED = """if (window === top) {
  const seen = [];
  Object.defineProperty(window, "__abpMalformed", { value: seen });
  addEventListener("message", ({ data, source }) => {
    if (source === window || source === null || seen.length >= 8) return;
    const isObject = (value) => typeof value === "object" && value !== null;
    const isAnswer = data?.id !== undefined && (isObject(data.result) || isObject(data.error));
    if (data?.jsonrpc === "2.0" && (typeof data.method === "string" || isAnswer)) return;
    let text;
    try { text = JSON.stringify(data); } catch { /* such as a cycle */ }
    seen.push((text ?? String(data)).slice(0, 200));
  });
}"""


class StrictView(ViewTransport):
    """Record into ``trial`` what the view sends and what goes wrong."""

    def __init__(self, trial: ViewTrial, *args: Any, **options: Any) -> None:
        super().__init__(trial.uri, *args, **options)
        self._trial = trial
        self._heard = asyncio.Event()

    def _on_event(self, kind: str, payload: Any) -> None:
        if isinstance(payload, ViewMessage):
            self._heard.set()
            max_messages = 1000  # a view may send any number
            if len(self._trial.messages) < max_messages:
                self._trial.messages.append((payload.method, _params_of(payload.params)))
        super()._on_event(kind, payload)

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        self._trial.opened = True
        await page.add_init_script(_NOTE_MALFORMED)
        try:
            await super()._load_app(page, agent)
        finally:
            await self._note_faults(page)

    async def _note_faults(self, page: Page) -> None:
        with contextlib.suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(1):
                self._trial.malformed = [str(text) for text in await page.evaluate("window.__abpMalformed")]
        seen = self.diagnosis
        self._trial.violations = [Finding(violation, seen.remedy_of(violation)) for violation in seen.violations]
        self._trial.script_errors = [*seen.script_errors]
        self._trial.why_blank = Finding(*seen.why_blank)
        self._trial.is_cut_off = seen.why_blank.reason in seen.missing_inputs

    async def observe(self, timeout: float) -> None:
        trial = self._trial
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout, 3.0)):
                # It is ready when it has told its size and sends no more.
                has_settled = False
                while not has_settled:
                    is_silent = not await self._heard_something()
                    has_settled = is_silent and bool(trial.asked("ui/notifications/size-changed"))
        if self.host.app_capabilities.get("tools") is not None:
            trial.tools_answer = await self._ask_for_tools(timeout)
        trial.blank = await is_blank(self.frame)
        await self._note_faults(self.frame.page)

    async def _heard_something(self) -> bool:
        """Wait half a second at most."""
        self._heard.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self._heard.wait()
        return self._heard.is_set()

    async def _ask_for_tools(self, timeout: float) -> Exchange:
        request = Message("capabilities/list", id=str(uuid.uuid4()))
        try:
            reply = await super(ViewTransport, self).request(request, timeout=timeout)
            return Exchange(answer=reply.payload)
        except ABPError as error:
            return Exchange(error=error)


def _params_of(text: str) -> Mapping[str, Any]:
    with contextlib.suppress(ProtocolError):
        return members_of(decode_json(text))
    return {}


async def gather_views(evidence: Evidence, plan: Plan, options: ConnectOptions) -> None:
    settings = Settings.load()
    headless = settings.headless if options.headless is None else options.headless
    make_transport = partial(
        transport_for,
        evidence.target,
        "mcp",
        settings=settings,
        timeout=plan.open_timeout,
        headless=headless,
        sampling=False,
        browser_options={},
        request_options={"headers": options.headers} if options.headers else {},
    )
    async with contextlib.AsyncExitStack() as stack, Client(make_transport, timeout=plan.timeout) as client:
        plan.on_step("tools")
        await client.connect()
        initialized = await client.initialize()
        if initialized.error is not None:
            raise initialized.error
        evidence.initialize_answer = initialized.answer

        views = evidence.views
        addresses = await _gather_documents(_mcp_server(client), views, plan)
        trials = _prepare_trials(evidence, plan, addresses)
        shows_views = any(views.documents[addresses[trial.name]].error is None for trial in trials)
        browser = options.browser
        if shows_views and not isinstance(browser, Browser):
            browser = await stack.enter_async_context(Browser(name=browser, headless=headless))
        for trial in trials:
            plan.on_step(trial.name)
            await _try_tool(client, trial, views, addresses[trial.name], plan.timeout, browser)


async def _try_tool(
    client: Client, trial: Trial, views: ServerViews, uri: str, timeout: float, browser: Browser | str | None
) -> None:
    call = await _call_tool(client, trial, views.tools[trial.name], timeout)
    if not call.result.get("isError"):
        views.results[trial.name] = call.result

    is_tried_already = any(view.uri == uri for view in views.trials)
    if is_tried_already:
        return
    view = ViewTrial(trial.name, uri)
    views.trials.append(view)

    source = PageSource(browser=browser)
    await _open_view(view, views.documents[uri], call, _mcp_server(client), timeout, source)


async def _request_document(server: MCPTransport, uri: str, timeout: float) -> Exchange:
    try:
        answer = await _relay(server, "resources/read", {"uri": uri}, timeout=timeout)
        return Exchange(answer=answer)
    except ABPError as error:
        return Exchange(error=error)


def _mcp_server(client: Client) -> MCPTransport:
    assert isinstance(client.transport, MCPTransport)
    return client.transport


async def _listed_resources(server: MCPTransport, timeout: float) -> list[Mapping[str, Any]]:
    """A server may leave the resources of views out, or have no list at all."""
    resources: list[Mapping[str, Any]] = []
    if not server.features.resources:
        return resources
    cursor: str | None = None
    max_pages = 50  # a server may answer a next page for ever
    with contextlib.suppress(ABPError):
        for _ in range(max_pages):
            page = await _request_payload(server, "resources/list", {"cursor": cursor}, timeout)
            resources += [entry for entry in items_of(page.get("resources")) if isinstance(entry, Mapping)]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
    return resources


async def _request_payload(
    server: MCPTransport, method: str, params: Mapping[str, object], timeout: float
) -> Mapping[str, Any]:
    reply = await server.request(Message(method, params), timeout=timeout)
    return members_of(reply.payload)


async def _relay(
    server: MCPTransport, method: str, params: Mapping[str, object], *, timeout: float
) -> Mapping[str, object]:
    return await _request_payload(server, "view/request", {"method": method, "params": params}, timeout)


async def _gather_documents(server: MCPTransport, views: ServerViews, plan: Plan) -> dict[str, str]:
    """Return the address of the view of each tool."""
    views.tools = server.tools
    plan.on_step("resources")
    views.resources = await _listed_resources(server, plan.timeout)
    addresses = {name: uri for name, uri in view_addresses(views.tools).items() if isinstance(uri, str)}
    for uri in dict.fromkeys(addresses.values()):
        views.documents[uri] = await _request_document(server, uri, plan.timeout)
    return addresses


def _prepare_trials(evidence: Evidence, plan: Plan, with_views: Container[str]) -> list[Trial]:
    """Return trials that can be called. Those of all tools ``with_views`` are added to ``evidence``, the others as
    skipped."""
    callable_trials: list[Trial] = []
    for entry in items_of(evidence.session_info.get("capabilities")):
        name = entry.get("name")
        if name not in with_views:
            continue
        trial = Trial(Capability.model_validate(entry), entry, plan.excluded(name))
        evidence.trials.append(trial)
        if not trial.skipped:
            try:
                trial.params = generated_params(name, trial.capability.input_schema)[0]
                callable_trials.append(trial)
            except CannotGenerate as reason:
                trial.skipped = str(reason)
    return callable_trials


async def _call_tool(client: Client, trial: Trial, tool: Mapping[str, object], timeout: float) -> ServerCall:
    trial.call = await client.call(trial.name, trial.params, timeout)
    server_call = trial.call.server_call
    if server_call is None:
        return ServerCall(tool, dict(trial.params), _failed_result(trial.call))
    return ServerCall(tool, server_call.arguments, server_call.result)


def _failed_result(call: Exchange) -> Mapping[str, object]:
    error = call.fields.get("error")
    if isinstance(error, Mapping):
        message = str(error.get("message"))
    elif call.error is not None:
        message = call.error.message
    else:
        message = "no answer"
    return {"isError": True, "content": [{"type": "text", "text": message}]}


async def _open_view(
    view: ViewTrial,
    read: Exchange,
    call: ServerCall,
    server: MCPTransport,
    timeout: float,
    source: PageSource,
) -> None:
    """``read`` is the answer with the view's document, ``call`` the call of its tool."""
    transport = StrictView(
        view,
        partial(_tool_with_document, view.uri, read, call, server, timeout),
        source=source,
        relay=partial(_relay, server, timeout=timeout),
        context=HostContext(),
        profile=msgspec.structs.replace(read_profile("spec"), display_modes=("inline",)),
        handlers=ViewHandlers(on_display_mode=lambda mode: mode == "inline"),
        timeout=max(2 * timeout, 6.0),
    )
    try:
        async with transport:
            await transport.observe(timeout)
    except ABPError as error:
        view.error = error
        if not isinstance(error, NotAbpApp):
            # The report names the view itself.
            _, _, reason = error.message.partition(f"the view {view.uri} ")
            view.why_blank = Finding(reason or error.message)


async def _tool_with_document(
    uri: str, read: Exchange, call: ServerCall, server: MCPTransport, timeout: float
) -> OpenedTool:
    if read.error is not None:
        raise read.error
    payload = await _request_payload(server, "view/listed", {"uri": uri, "read": read.fields}, timeout)
    document = read_document(uri, read.fields, payload["listed"])
    return OpenedTool(call.tool, call.arguments, call.result, document)
