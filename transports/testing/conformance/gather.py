"""Talks to an app, step by step, and collects the evidence that the checks judge."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...adapters.playwright import PlaywrightTransport
from ...adapters.postmessage import PostMessageTransport
from ...adapters.webmcp import WebMcpTransport
from ...base import Transport
from ...binary.params import prepare_params
from ...browser.page.adapters import read_adapter
from ...browser.preflight import require_listener
from ...browser.process.extension import extension_folder
from ...browser.process.launch import Browser
from ...browser.source import StorageState
from ...browser.top_page import TopPageTransport
from ...browser.transport import PageTransport
from ...errors import ABPError, CallTimeout, ConnectFailed, ProtocolError, UsageError
from ...http import discover
from ...protocol.capabilities import Capabilities
from ...session.settings import Settings
from ...session.targets import reject_options
from .client import Client
from .content import measured_content
from .evidence import Cancellation, Evidence, Exchange, Kind, Trial
from .inputs import CannotGenerate, generated_params, with_wrong_type, without_required
from .page_probe import UNKNOWN_NAME, probe_page
from .plan import Plan, kind_of
from .strict_websocket import StrictWebSocket

__all__ = ["gather"]

_MAX_CANCELLED = 3
#: Seconds that a call runs before it is cancelled.
_RUNNING = 0.15
#: Seconds for one download, and the least for opening a page or a connection.
_DOWNLOAD, _OPENING = 20.0, 15.0


async def gather(
    target: str,
    plan: Plan,
    *,
    transport: str = "auto",
    browser: Browser | str | None = None,
    storage_state: StorageState | None = None,
    adapter: str | Path | None = None,
    headless: bool | None = None,
    headers: Mapping[str, str] | None = None,
) -> Evidence:
    """Collect the evidence of the app at ``target``. The parameters and errors are those of :func:`.check_app`."""
    evidence = Evidence(target, kind_of(target, transport), plan.timeout)
    page_options: dict[str, Any] = {"adapter": adapter} if adapter is not None else {}
    if evidence.kind not in ("page", "webmcp"):
        reject_options(page_options, "an app that is no page of its own")
    script = read_adapter(adapter, target) if adapter is not None else None
    if evidence.kind == "page" and transport == "auto":
        page_options["protocol"] = "auto"
    async with contextlib.AsyncExitStack() as stack:
        opening = max(plan.timeout, _OPENING)
        if evidence.kind == "websocket":
            noting = partial(StrictWebSocket, findings=evidence.transport_findings)
            await _drive(evidence, plan, lambda: noting(target, timeout=opening, headers=headers))
            return evidence
        reject_options({"headers": headers} if headers else {}, "a page; sign in with storage_state=")
        shared = await _browser(stack, target, browser, headless)
        if evidence.kind != "extension":
            plan.on_step("manifest")
            evidence.discovery = await discover(target, allow_private=plan.allow_private)
        classes: Mapping[Kind, type[PlaywrightTransport | PostMessageTransport | WebMcpTransport]] = {
            "embedded": PostMessageTransport,
            "webmcp": WebMcpTransport,
        }
        transport_class = classes.get(evidence.kind, PlaywrightTransport)
        made: list[PageTransport] = []

        def make_transport() -> Transport:
            made.append(
                transport_class(target, browser=shared, storage_state=storage_state, timeout=opening, **page_options)
            )
            return made[-1]

        address = await _drive(evidence, plan, make_transport)
        embedded = [one for one in made if isinstance(one, PostMessageTransport)]
        foreign = sum(one.counts.get("foreign", 0) for one in embedded)
        evidence.transport_findings = ["a message of another window or origin"] * foreign
        if not embedded and evidence.kind != "webmcp" and address is not None:
            plan.on_step("page object")
            evidence.page_steps = await probe_page(
                shared,
                address,
                storage_state=storage_state,
                timeout=opening,
                long_call=_long_call_of(evidence),
                adapter=script,
            )
    return evidence


async def _browser(
    stack: contextlib.AsyncExitStack, target: str, given: Browser | str | None, headless: bool | None
) -> Browser:
    if isinstance(given, Browser):
        return given
    options: dict[str, Any] = {"headless": Settings.load().headless if headless is None else headless}
    if (folder := extension_folder(target)) is None:
        await require_listener(target)
    else:
        temporary = tempfile.TemporaryDirectory(prefix="abp-conformance-", ignore_cleanup_errors=True)
        options |= {"extensions": [folder], "profile": Path(stack.enter_context(temporary))}
    return await stack.enter_async_context(Browser(name=given, **options))


async def _drive(evidence: Evidence, plan: Plan, make_transport: Callable[[], Transport]) -> str | None:
    """Do everything that goes over a transport. Return the app's address, or ``None`` if it was never reached."""
    async with Client(make_transport, timeout=plan.timeout) as client:
        plan.on_step("session")
        try:
            await client.connect()
        except ABPError as error:
            # A page that loads too slowly, or a server that answers otherwise, is a finding.
            answers = {"timeout", "status"} & error.details.keys()
            if isinstance(error, UsageError) or (isinstance(error, ConnectFailed) and not answers):
                raise
            evidence.open_error = error
            return None
        address = client.transport.url
        if client.transport.name == "webmcp":  # what "auto" has found
            evidence.kind = "webmcp"
        lists = client.transport.features.listing
        evidence.call_before_initialize = await client.call(UNKNOWN_NAME, {}, plan.timeout)
        initialized = await client.initialize()
        evidence.initialize_answer, evidence.open_error = initialized.answer, initialized.error
        if initialized.error is not None:
            return address
        evidence.listed = await client.request("capabilities/list") if lists else None
        evidence.second_initialize = await client.initialize()
        evidence.unknown_call = await client.call(UNKNOWN_NAME, {}, plan.timeout)
        await _try_capabilities(evidence, plan, client)
        plan.on_step("cancellation")
        evidence.unknown_cancel = await client.request(
            "capabilities/cancel", {"callId": UNKNOWN_NAME, "reason": "a check"}
        )
        for trial in _long_calls(evidence.called):
            evidence.cancellations.append(await _cancel_running(client, trial, plan.timeout))
        if evidence.kind == "webmcp":
            plan.on_step("tools")
            if await _reconnected(client) and isinstance(client.transport, TopPageTransport):
                evidence.tool_facts = await client.transport.inspect_tools()
            return address
        plan.on_step("shutdown")
        if await _reconnected(client):
            evidence.shutdowns = [await client.notify("shutdown", {"reason": "a check"}) for _ in range(2)]
            evidence.call_after_shutdown = await client.call(UNKNOWN_NAME, {}, plan.timeout)
            evidence.initialize_after_shutdown = await client.initialize()
        plan.on_step("reload")
        await client.disconnect()
        evidence.initialize_on_new_connection = await client.initialize()
        evidence.effects_outside_calls = client.effects_outside_calls
        return address


async def _reconnected(client: Client) -> bool:
    """Whether there is a connection with a session, made again where it has broken: a harmless request tells."""
    return (await client.request("capabilities/cancel", {"callId": UNKNOWN_NAME, "reason": "a check"})).error is None


async def _try_capabilities(evidence: Evidence, plan: Plan, client: Client) -> None:
    listed = evidence.listed.answer if evidence.listed is not None else None
    declared = evidence.discovery.manifest.capabilities if evidence.discovery and evidence.discovery.manifest else ()
    initial = evidence.session_info.get("capabilities")
    known = Capabilities().merge(initial).merge(listed).with_manifest(declared)
    entries = {str(entry.get("name")): entry for source in (initial, listed) for entry in _objects(source)}
    for name in known:
        trial = Trial(known[name], entries.get(name, {}), plan.excluded(name))
        if not trial.skipped and not known[name].available:
            trial.skipped = "it is not available now"
        if not trial.skipped:
            plan.on_step(name)
        evidence.trials += [trial] if trial.skipped else await _try(trial, plan, client)


def _objects(source: object) -> Iterable[Mapping[str, object]]:
    if isinstance(source, Mapping):
        source = source.get("data", source.get("capabilities"))
    return [entry for entry in source if isinstance(entry, Mapping)] if isinstance(source, list) else []


async def _try(trial: Trial, plan: Plan, client: Client) -> list[Trial]:
    """Call the trial's capability. Return the trial, and one more for each further example of parameters."""
    schema = trial.capability.input_schema
    try:
        first, *others = generated_params(trial.name, schema)
    except CannotGenerate as reason:
        trial.skipped = str(reason)
        return [trial]
    await _call(trial, first, plan, client)
    if (faulty := without_required(schema, first)) is not None:
        trial.without_required = faulty[0], await client.call(trial.name, faulty[1], plan.timeout)
    if (faulty := with_wrong_type(schema, first)) is not None:
        trial.with_wrong_type = faulty[0], await client.call(trial.name, faulty[1], plan.timeout)
    more = [Trial(trial.capability, trial.entry) for _ in others]
    for one, params in zip(more, others, strict=True):
        await _call(one, params, plan, client)
    return [trial, *more]


async def _call(trial: Trial, params: Mapping[str, object], plan: Plan, client: Client) -> None:
    trial.params = params
    trial.call = await client.call(trial.name, params, plan.timeout)
    transport = client.transport if trial.call.error is None else None
    try:
        trial.contents = await measured_content(
            trial.call.fields.get("data"),
            transport,
            trial.call.sender,
            timeout=_DOWNLOAD,
            allow_private=plan.allow_private,
        )
    except ProtocolError as error:
        trial.call.error = error


def _long_calls(called: Sequence[tuple[Trial, Exchange]]) -> list[Trial]:
    """Return calls that may run long enough to be cancelled: first those that met their timeout, then those whose
    capability has ``features.cancel``, then the slowest."""

    def declares_cancel(trial: Trial) -> bool:
        features = trial.entry.get("features")
        return isinstance(features, Mapping) and features.get("cancel") is True

    late = [trial for trial, call in called if isinstance(call.error, CallTimeout) or call.code == "TIMEOUT"]
    slow = sorted((pair for pair in called if pair[1].seconds > 2 * _RUNNING), key=lambda pair: -pair[1].seconds)
    cancellable = [trial for trial, _ in called if declares_cancel(trial)]
    chosen = {trial.name: trial for trial in (*late, *cancellable, *(trial for trial, _ in slow))}
    return list(chosen.values())[:_MAX_CANCELLED]


def _long_call_of(evidence: Evidence) -> Mapping[str, object] | None:
    """Return one of those calls for the page probe: one without content in its parameters."""
    for trial in _long_calls(evidence.called):
        _, content = prepare_params(dict(trial.params))
        if not content:
            milliseconds = {"timeout": evidence.timeout * 1000, "after": _RUNNING * 1000}
            return {"name": trial.name, "params": dict(trial.params), **milliseconds}
    return None


async def _cancel_running(client: Client, trial: Trial, timeout: float) -> Cancellation:
    call_id = str(uuid.uuid4())
    await _reconnected(client)
    call = asyncio.ensure_future(client.call(trial.name, trial.params, timeout, call_id))
    await asyncio.wait((call,), timeout=_RUNNING)
    first, again, answered = Exchange(), Exchange(), time.perf_counter()
    if not call.done():
        cancel = {"callId": call_id, "reason": "a check"}
        first = await client.request("capabilities/cancel", cancel)
        answered = time.perf_counter()
        again = await client.request("capabilities/cancel", cancel)
    ended = await call
    return Cancellation(trial.name, first, again, ended, time.perf_counter() - answered)
