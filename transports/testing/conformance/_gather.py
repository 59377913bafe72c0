"""Collection of evidence from an app, step by step: session, calls, cancellation, shutdown, reload, page object."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error
from websockets.exceptions import ConnectionClosed

from ..._internal.lazy import requiring_extra
from ...base import Transport
from ...errors import ABPError, CallTimeout, ConnectFailed, Disconnected, ProtocolError, UsageError, first_line, spelled
from ...playwright._browser import Browser
from ...playwright._find import require_listener
from ...playwright._scripts import extension_folder, read_adapter
from ...playwright._source import StorageState, close_quietly
from ...playwright._transport import TopPageTransport
from ...postmessage._transport import PostMessageTransport
from ...protocol._capabilities import Capabilities
from ...protocol._strict_json import decode_json, items_of, members_of
from ...protocol.messages import Message, new_id
from ...session._manifest import discover
from ...session._settings import Settings
from ...session._targets import reject_options, transport_for
from ...websocket._transport import WebSocketTransport
from ._client import Client, ContentMeter
from ._evidence import Cancellation, ConnectOptions, Evidence, Exchange, FaultyCall, Plan, ProbeStep, Trial, target_kind
from ._inputs import CannotGenerate, generated_params, with_wrong_type, without_required

if TYPE_CHECKING:
    from playwright.async_api import Page

    from ...playwright._scripts import Adapter

#: Name of a capability, and id of a call, that do not exist in any app.
UNKNOWN_NAME = "abp-conformance.nothing"
#: Timeout in seconds of each step of the probe.
_STEP_TIMEOUT = 2.0
#: Faults of the app for which this side closed the connection, by status code (RFC 6455 §7.4.1).
_CLOSED_BY_US = {
    1002: "it sent frames that break RFC 6455",
    1007: "it sent a text frame that is not UTF-8",
    1009: "it sent a huge message",
    1011: "it did not answer a ping",
}
#: Seconds that a call runs before it is cancelled.
_SECONDS_BEFORE_CANCEL = 0.15


async def probe_page(
    browser: Browser,
    url: str,
    *,
    storage_state: StorageState | None,
    timeout: float,
    adapter: Adapter | None = None,
) -> Mapping[str, ProbeStep]:
    """Return the results of the steps of ``page_probe.js`` by name. Three steps are added here: ``ready``, true if the
    page object existed when the page had loaded; ``reloaded``, the answer of ``initialize`` after a reload; and
    ``broke``, the reason why the probe ended early. Steps that could not be made are missing. ``timeout`` in seconds is
    for loading the page. ``adapter`` runs before the page's first script."""
    state: Any = storage_state
    context = browser.context or await browser.playwright.new_context(storage_state=state)
    page = await context.new_page()
    steps: dict[str, ProbeStep] = {}
    try:
        # Nearly all steps end at once.
        async with asyncio.timeout(timeout + 20 * _STEP_TIMEOUT):
            if adapter is not None:
                await page.add_init_script(adapter.source())
            await _load_and_probe(page, url, steps, timeout=timeout)
    except Exception as error:  # noqa: BLE001 - any failure of the page or of Playwright is a finding
        steps["broke"] = ProbeStep(threw=first_line(error))
    finally:
        await close_quietly(page if context is browser.context else context)
    return steps


async def _load_and_probe(page: Page, url: str, steps: dict[str, ProbeStep], *, timeout: float) -> None:
    """Each result is added to ``steps`` at once, so that results are kept if a later step fails."""
    timeout_in_ms = timeout * 1000
    await page.goto(url, timeout=timeout_in_ms)
    steps["ready"] = ProbeStep(await page.evaluate("() => window.abp != null"))
    steps.update(await _probe_document(page, timeout))

    await page.reload(timeout=timeout_in_ms)
    steps_after_reload = await _probe_document(page, timeout)
    steps["reloaded"] = steps_after_reload["initialize"]


async def _probe_document(page: Page, timeout: float) -> Mapping[str, ProbeStep]:
    """A page may reload while its app begins, as many do once they have installed their service worker."""
    max_reloads = 3
    for _ in range(max_reloads):
        with contextlib.suppress(Error):
            await _wait_for_page_object(page, timeout)
            return await _run_script(page)
    await _wait_for_page_object(page, timeout)
    return await _run_script(page)


async def _wait_for_page_object(page: Page, timeout: float) -> None:
    async with asyncio.timeout(timeout):
        while not await page.evaluate("() => typeof window.abp?.initialize === 'function'"):
            await asyncio.sleep(0.05)


async def _run_script(page: Page) -> dict[str, ProbeStep]:
    script = (files(__package__) / "page_probe.js").read_text(encoding="utf-8")
    options = {"unknownName": UNKNOWN_NAME, "stepTimeout": _STEP_TIMEOUT * 1000}
    running = asyncio.ensure_future(page.evaluate(script, options))
    try:
        await asyncio.wait((running,), timeout=_STEP_TIMEOUT)
        while not running.done():
            # A page that spins in a step answers nothing, and its own timers do not end the step.
            async with asyncio.timeout(_STEP_TIMEOUT):
                await page.evaluate("() => 0")
            await asyncio.wait((running,), timeout=_STEP_TIMEOUT)
        steps: Any = decode_json(running.result())
    finally:
        running.cancel()
    return {name: ProbeStep(step.get("value"), step.get("threw")) for name, step in steps.items()}


class StrictWebSocket(WebSocketTransport):
    """Transport over one connection, without reconnection. Descriptions of breaches of docs/protocol.md 6.1 to 6.4 are
    appended to ``findings``, and the types of messages without a timestamp to ``untimed``. Pass the same lists to
    several connections to collect the findings of all. ``timeout`` in seconds is for connecting."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        findings: list[str],
        untimed: list[str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # Content may be large: a large answer is a finding, and must be read to be measured.
        super().__init__(url, headers=headers, timeout=timeout, close_timeout=1.0, max_bytes=192 << 20, reconnect=False)
        self._findings = findings
        self._untimed = untimed
        self._end_noted = False

    def _close_error(self, closed: ConnectionClosed) -> ABPError:
        fault = _fault_of_app(closed)
        if fault is not None:
            self._note_end(fault)
            return Disconnected(f"the connection ended: {fault}")
        if closed.rcvd is None:
            self._note_end("the connection broke off without a closing frame")
            return Disconnected("the connection ended: without a closing frame")
        reason = f"the app closed it with {closed.rcvd.code} {closed.rcvd.reason[:80]}"
        return Disconnected(f"the connection ended: {reason}")

    def _note_end(self, finding: str) -> None:
        if not self._end_noted:
            self._findings.append(finding)
            self._end_noted = True

    def _on_message(self, data: bytes, text: bool) -> bool:
        if text:
            data.decode()  # raises UnicodeDecodeError, which closes the connection, for text that is not UTF-8
        else:
            self._findings.append("it sent a binary frame")

        envelope = self._read_envelope(data)
        if envelope is not None:
            self._check_timestamp(envelope)
            self._deliver(_message_of(envelope))
        return True

    def _read_envelope(self, data: bytes) -> dict[str, Any] | None:
        """Return ``None``, with the fault recorded, if the message is no envelope."""
        try:
            envelope = decode_json(data)
        except ProtocolError as error:
            _, _, reason = error.message.partition(": ")
            self._findings.append(f"it sent text that is not JSON ({reason[:80]})")
            return None

        if isinstance(envelope, dict) and isinstance(envelope.get("type"), str):
            return envelope
        self._findings.append("it sent JSON that is not an envelope: {type, id?, timestamp, payload}")
        return None

    def _check_timestamp(self, envelope: Mapping[str, Any]) -> None:
        kind = envelope["type"][:40]
        timestamp = envelope.get("timestamp")
        if timestamp is None:
            self._untimed.append(kind)
        elif isinstance(timestamp, bool) or not isinstance(timestamp, int | float):
            self._findings.append(f"the timestamp of a {kind} is not a number (Unix milliseconds)")

    def _deliver(self, message: Message) -> None:
        note = self._findings.append
        kind = message.type
        outcome = self._pending.deliver(message)
        if outcome == "duplicate":
            note(f"it answered the same {kind} twice")
        elif outcome == "unknown":
            note(f"a {kind} has an id that no request had")
        elif outcome == "event" and kind in ("notification", "progress", "elicitation/request"):
            self._events.put_nowait(message)
        elif outcome == "event":
            note(f"it sent a message of the type {kind[:40]!r}, which ABP does not know")


def _fault_of_app(closed: ConnectionClosed) -> str | None:
    """Return the fault of the app for which this side closed the connection; ``None`` if it did not."""
    if closed.sent is None or closed.rcvd_then_sent:
        return None
    return _CLOSED_BY_US.get(closed.sent.code)


def _message_of(envelope: Mapping[str, Any]) -> Message:
    message = Message(envelope["type"], envelope.get("payload"))
    message_id = envelope.get("id")
    if isinstance(message_id, str | int):
        message.id = str(message_id)
    return message


async def gather(target: str, plan: Plan, options: ConnectOptions) -> Evidence:
    """Collect the evidence about the app at ``target``. The errors are those of :func:`.check_app`."""
    evidence = Evidence(target, target_kind(target, options.transport), plan.timeout)
    if options.adapter is not None and evidence.kind not in ("page", "webmcp"):
        reject_options({"adapter": options.adapter}, "an app that is not a top page")

    if evidence.kind == "mcp":
        await _gather_from_server(evidence, plan, options)
    elif evidence.kind == "websocket":
        await _gather_from_websocket(evidence, plan, options)
    else:
        await _gather_from_page(evidence, plan, options)
    return evidence


async def _gather_from_server(evidence: Evidence, plan: Plan, options: ConnectOptions) -> None:
    if options.storage_state:
        reject_options({"storage_state": options.storage_state}, f"an MCP server; give {spelled('headers=')}")
    try:
        with requiring_extra("the MCP SDK", "mcp"):
            from ._gather_views import gather_views
    except ImportError as error:
        raise UsageError(f"an MCP server: {error}") from error
    await gather_views(evidence, plan, options)


async def _gather_from_websocket(evidence: Evidence, plan: Plan, options: ConnectOptions) -> None:
    make_transport = partial(
        StrictWebSocket,
        evidence.target,
        timeout=plan.open_timeout,
        headers=options.headers,
        findings=evidence.transport_findings,
        untimed=evidence.untimed,
    )
    await _run_steps(evidence, plan, make_transport)


async def _gather_from_page(evidence: Evidence, plan: Plan, options: ConnectOptions) -> None:
    if options.headers:
        reject_options({"headers": options.headers}, f"a page; sign in with {spelled('storage_state=')}")
    script: Adapter | None = None
    if options.adapter is not None:
        script = read_adapter(options.adapter, evidence.target)

    async with contextlib.AsyncExitStack() as stack:
        browser = await _open_browser(stack, evidence.target, options.browser, options.headless)
        # The page of an adapter does not know the app, so it has no manifest.
        if evidence.kind != "extension" and script is None:
            plan.on_step("manifest")
            evidence.discovery = await discover(evidence.target, allow_private=plan.allow_private)

        transports: list[Transport] = []
        make_transport = _transport_factory(evidence, plan, options, browser, transports)
        address = await _run_steps(evidence, plan, make_transport)

        embedded = [transport for transport in transports if isinstance(transport, PostMessageTransport)]
        foreign_messages = sum(transport.counts.get("foreign", 0) for transport in embedded)
        evidence.transport_findings = ["a message of another window or origin"] * foreign_messages

        has_page_object = not embedded and evidence.kind != "webmcp"
        if has_page_object and address is not None:
            await _inspect_page_object(evidence, plan, options, browser, address, script)


async def _inspect_page_object(
    evidence: Evidence, plan: Plan, options: ConnectOptions, browser: Browser, address: str, script: Adapter | None
) -> None:
    plan.on_step("page object")
    evidence.page_steps = await probe_page(
        browser,
        address,
        storage_state=options.storage_state,
        timeout=plan.open_timeout,
        adapter=script,
    )
    if script is not None and "adapter" in evidence.page_steps:
        evidence.is_adapted = evidence.page_steps["adapter"].value == script.name


def _transport_factory(
    evidence: Evidence, plan: Plan, options: ConnectOptions, browser: Browser, made: list[Transport]
) -> Callable[[], Transport]:
    """Each transport is added to ``made``."""
    browser_options: dict[str, Any] = {"browser": browser, "storage_state": options.storage_state}
    if options.adapter is not None:
        browser_options["adapter"] = options.adapter
    # "auto" would take the tools of a page, too.
    name = "playwright" if evidence.kind == "extension" else options.transport

    def make_transport() -> Transport:
        transport = transport_for(
            evidence.target,
            name,
            settings=Settings.load(),
            timeout=plan.open_timeout,
            headless=None,
            sampling=False,
            browser_options=browser_options,
            request_options={},
        )
        made.append(transport)
        return transport

    return make_transport


async def _open_browser(
    stack: contextlib.AsyncExitStack, target: str, browser: Browser | str | None, headless: bool | None
) -> Browser:
    """A browser that is started ends with ``stack``."""
    if isinstance(browser, Browser):
        return browser
    if headless is None:
        headless = Settings.load().headless
    folder = extension_folder(target)
    if folder is None:
        await require_listener(target)
    extensions = [] if folder is None else [folder]
    return await stack.enter_async_context(Browser(name=browser, headless=headless, extensions=extensions))


async def _run_steps(evidence: Evidence, plan: Plan, make_transport: Callable[[], Transport]) -> str | None:
    """Return the app's address, or ``None`` if it was never reached."""
    async with Client(make_transport, timeout=plan.timeout) as client:
        plan.on_step("session")
        failure = await _connect_client(client)
        if failure is not None:
            evidence.open_error = failure
            return None
        address = client.transport.url
        # The tools of the page were chosen by "auto".
        if client.transport.name == "webmcp":
            evidence.kind = "webmcp"

        await _begin_session(evidence, plan, client)
        if evidence.open_error is not None:
            return address
        await _try_capabilities(evidence, plan, client)
        await _cancel_calls(evidence, plan, client)
        if evidence.kind == "webmcp":
            await _inspect_tools(evidence, plan, client)
        else:
            await _end_and_reload(evidence, plan, client)
        return address


async def _connect_client(client: Client) -> ABPError | None:
    """Return an error that is a finding about the app, and raise any other."""
    try:
        await client.connect()
    except ABPError as error:
        # A page that loads too slowly, or a server with another status, is a finding.
        has_answered = bool({"timeout", "status"} & error.details.keys())
        is_unreachable = isinstance(error, ConnectFailed) and not has_answered
        if is_unreachable or isinstance(error, UsageError):
            raise
        return error
    return None


async def _cancel_calls(evidence: Evidence, plan: Plan, client: Client) -> None:
    plan.on_step("cancellation")
    evidence.unknown_cancel = await _cancel_call(client, UNKNOWN_NAME)
    for trial in _long_calls(evidence.called):
        evidence.cancellations.append(await _cancel_running(client, trial, plan.timeout))


async def _inspect_tools(evidence: Evidence, plan: Plan, client: Client) -> None:
    plan.on_step("tools")
    if await _ensure_session(client) and isinstance(client.transport, TopPageTransport):
        evidence.tool_facts = await client.transport.inspect_tools()


async def _end_and_reload(evidence: Evidence, plan: Plan, client: Client) -> None:
    plan.on_step("shutdown")
    if await _ensure_session(client):
        await _end_session(evidence, plan, client)
    plan.on_step("reload")
    await client.disconnect()
    evidence.initialize_on_new_connection = await client.initialize()
    evidence.effects_outside_calls = client.effects_outside_calls


async def _begin_session(evidence: Evidence, plan: Plan, client: Client) -> None:
    can_list = client.transport.features.listing
    evidence.call_before_initialize = await client.call(UNKNOWN_NAME, {}, plan.timeout)
    initialized = await client.initialize()
    evidence.initialize_answer = initialized.answer
    evidence.open_error = initialized.error
    if initialized.error is not None:
        return
    if can_list:
        evidence.listed = await client.request("capabilities/list")
    evidence.second_initialize = await client.initialize()
    evidence.unknown_call = await client.call(UNKNOWN_NAME, {}, plan.timeout)


async def _end_session(evidence: Evidence, plan: Plan, client: Client) -> None:
    evidence.shutdowns = [await client.notify("shutdown", {"reason": "a check"}) for _ in range(2)]
    evidence.call_after_shutdown = await client.call(UNKNOWN_NAME, {}, plan.timeout)
    evidence.cancel_after_shutdown = await _cancel_call(client, UNKNOWN_NAME)
    evidence.initialize_after_shutdown = await client.initialize()


async def _ensure_session(client: Client) -> bool:
    """Return whether there is a connection with a session, after reconnecting if it was broken. A harmless request is
    the test."""
    return (await _cancel_call(client, UNKNOWN_NAME)).error is None


async def _cancel_call(client: Client, call_id: str) -> Exchange:
    return await client.request("capabilities/cancel", {"callId": call_id, "reason": "a check"})


async def _try_capabilities(evidence: Evidence, plan: Plan, client: Client) -> None:
    initial = evidence.session_info.get("capabilities")
    listed = evidence.listed.answer if evidence.listed is not None else None
    capabilities = Capabilities().merge(initial).merge(listed)
    if evidence.discovery and evidence.discovery.manifest:
        capabilities = capabilities.with_manifest(evidence.discovery.manifest.capabilities)

    entries: dict[str, Mapping[str, object]] = {}
    for entry in (*_listed_entries(initial), *_listed_entries(listed)):
        entries[str(entry.get("name"))] = entry

    for name in capabilities:
        trial = Trial(capabilities[name], entries.get(name, {}), plan.excluded(name))
        if not trial.skipped and not capabilities[name].available:
            trial.skipped = "it is not available now"
        if trial.skipped:
            evidence.trials.append(trial)
            continue
        plan.on_step(name)
        evidence.trials += await _try_capability(trial, plan, client)


def _listed_entries(source: object) -> Iterable[Mapping[str, object]]:
    if isinstance(source, Mapping):
        source = source.get("data", source.get("capabilities"))
    return [entry for entry in items_of(source) if isinstance(entry, Mapping)]


async def _try_capability(trial: Trial, plan: Plan, client: Client) -> list[Trial]:
    """Return the trial, and another one for each further example of parameters."""
    schema = trial.capability.input_schema
    try:
        first, *others = generated_params(trial.name, schema)
    except CannotGenerate as reason:
        trial.skipped = str(reason)
        return [trial]
    await _call_trial(trial, first, plan, client)

    incomplete = without_required(schema, first)
    if incomplete is not None:
        name, params = incomplete
        trial.without_required = FaultyCall(name, await client.call(trial.name, params, plan.timeout))
    mistyped = with_wrong_type(schema, first)
    if mistyped is not None:
        name, params = mistyped
        trial.with_wrong_type = FaultyCall(name, await client.call(trial.name, params, plan.timeout))

    trials = [trial]
    for other_params in others:
        other = Trial(trial.capability, trial.entry)
        await _call_trial(other, other_params, plan, client)
        trials.append(other)
    return trials


async def _call_trial(trial: Trial, params: Mapping[str, object], plan: Plan, client: Client) -> None:
    trial.params = params
    trial.call = await client.call(trial.name, params, plan.timeout)
    transport: Transport | None = None
    if trial.call.error is None:
        transport = client.transport
    try:
        meter = ContentMeter(transport, trial.call.sender, plan.allow_private)
        trial.contents = await meter.measure(trial.call.fields.get("data"))
    except ProtocolError as error:
        trial.call.error = error


def _long_calls(called: Sequence[tuple[Trial, Exchange]]) -> list[Trial]:
    """Return at most three calls that may run long enough to be cancelled. First come calls that timed out, then those
    whose capability has ``features.cancel``, then the slowest."""
    timed_out = [trial for trial, call in called if isinstance(call.error, CallTimeout) or call.code == "TIMEOUT"]
    cancellable = [trial for trial, _ in called if members_of(trial.entry.get("features")).get("cancel") is True]
    slowest_first = sorted(called, key=lambda item: item[1].seconds, reverse=True)
    slow = [trial for trial, call in slowest_first if call.seconds > 2 * _SECONDS_BEFORE_CANCEL]
    chosen = {trial.name: trial for trial in (*timed_out, *cancellable, *slow)}
    return list(chosen.values())[:3]


async def _cancel_running(client: Client, trial: Trial, timeout: float) -> Cancellation:
    call_id = new_id()
    await _ensure_session(client)
    call = asyncio.ensure_future(client.call(trial.name, trial.params, timeout, call_id))
    await asyncio.wait((call,), timeout=_SECONDS_BEFORE_CANCEL)

    first = Exchange()
    again = Exchange()
    cancelled_at = time.perf_counter()
    if not call.done():
        first = await _cancel_call(client, call_id)
        cancelled_at = time.perf_counter()
        again = await _cancel_call(client, call_id)

    exchange = await call
    return Cancellation(trial.name, first, again, exchange, time.perf_counter() - cancelled_at)
