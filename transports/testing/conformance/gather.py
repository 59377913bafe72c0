"""Looking at an app, step by step, so that the checks have something to judge."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...adapters.playwright import PlaywrightTransport
from ...adapters.postmessage import PostMessageTransport
from ...base import Transport
from ...binary.params import outgoing
from ...browser.process.extension import extension_folder
from ...browser.process.launch import Browser
from ...browser.source import StorageState
from ...browser.transport import PageTransport
from ...errors import ABPError, ProtocolError, UsageError
from ...http import discover
from ...protocol.capabilities import Capabilities
from ...session.settings import Settings
from .contents import pieces_of
from .evidence import Cancelling, Evidence, Exchange, Kind, Trial
from .inputs import Unmade, made_params, without_required, wrong_type
from .line import Line
from .probe import NONSENSE, look_at_page
from .wire import Wire

__all__ = ["Plan", "gather", "kind_of"]

_MOST_CANCELLED = 3
#: Seconds that a call runs before it is cancelled.
_RUNNING = 0.15
_DOWNLOAD, _OPENING = 20.0, 15.0


class Plan:
    """What is done: ``only`` and ``skip`` are patterns (``export.*``) of the capabilities that are called, ``calls``
    whether any is. ``timeout`` in seconds is what each call is given; ``told`` hears what is looked at now."""

    def __init__(
        self,
        *,
        timeout: float = 5.0,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        calls: bool = True,
        told: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.timeout, self.only, self.skip, self.calls, self.told = timeout, only, skip, calls, told
        self.allow_private = Settings.load().allow_private_addresses

    def excluded(self, name: str) -> str:
        """Why a capability is not called; empty if it is."""
        if not self.calls:
            return "no capability was to be called"
        if self.only and not _fits(name, self.only):
            return "only others were to be called"
        return "it was to be skipped" if _fits(name, self.skip) else ""


def kind_of(target: str, transport: str) -> Kind:
    """How ``target`` is reached. Raises :class:`~transports.errors.UsageError`."""
    if extension_folder(target) is not None:
        found: Kind = "extension"
    elif target.lower().startswith(("ws://", "wss://")):
        found = "websocket"
    elif target.lower().startswith(("http://", "https://")):
        found = "embedded" if transport == "postmessage" else "page"
    else:
        raise UsageError(f"{target!r} is no app; give http(s)://…, ws(s)://… or extension:FOLDER")
    names = {"page": "playwright", "extension": "playwright", "embedded": "postmessage", "websocket": "websocket"}
    if transport not in ("auto", names[found]):
        raise UsageError(
            f"{target!r} cannot be reached by {transport!r}; leave --transport out, or say {names[found]!r}"
        )
    return found


async def gather(
    target: str,
    plan: Plan,
    *,
    transport: str = "auto",
    browser: Browser | str | None = None,
    storage_state: StorageState | None = None,
) -> Evidence:
    """Look at the app at ``target``. An app that cannot be reached is evidence, too; raises
    :class:`~transports.errors.UsageError` and :class:`~transports.errors.BrowserNotFound`."""
    evidence = Evidence(target, kind_of(target, transport), plan.timeout)
    async with contextlib.AsyncExitStack() as stack:
        if evidence.kind == "websocket":
            oddities = evidence.oddities
            await _drive(evidence, plan, lambda: Wire(target, timeout=plan.timeout, oddities=oddities))
            return evidence
        shared = await _browser(stack, target, browser)
        if evidence.kind != "extension":
            plan.told("manifest")
            evidence.discovery = await discover(target, allow_private=plan.allow_private)
        opening = max(plan.timeout, _OPENING)
        reached = PostMessageTransport if evidence.kind == "embedded" else PlaywrightTransport
        made: list[PageTransport] = []

        def make() -> Transport:
            made.append(reached(target, browser=shared, storage_state=storage_state, timeout=opening))
            return made[-1]

        address = await _drive(evidence, plan, make)
        embeddings = [one for one in made if isinstance(one, PostMessageTransport)]
        strangers = sum(one.counts.get("foreign", 0) for one in embeddings)
        evidence.oddities = ["a message of another window or origin"] * strangers
        if not embeddings and address is not None:
            plan.told("page object")
            evidence.page = await look_at_page(
                shared, address, storage_state=storage_state, timeout=opening, lasting=_lasting_call(evidence)
            )
    return evidence


async def _browser(stack: contextlib.AsyncExitStack, target: str, given: Browser | str | None) -> Browser:
    folder = extension_folder(target)
    if isinstance(given, Browser):
        return given
    profile: Mapping[str, Any] = {}
    if folder is not None:
        temporary = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="abp-conformance-", ignore_cleanup_errors=True)
        )
        profile = {"extensions": [folder], "profile": Path(temporary)}
    return await stack.enter_async_context(Browser(name=given, **profile))


async def _drive(evidence: Evidence, plan: Plan, make: Callable[[], Transport]) -> str | None:
    """Everything that goes over a transport; the app's address once it was reached."""
    async with Line(make, timeout=plan.timeout) as line:
        plan.told("session")
        try:
            await line.dial()
        except UsageError:
            raise
        except ABPError as error:
            evidence.refused = error
            return None
        address = line.transport.url
        lists = line.transport.features.listing
        evidence.early = await line.call(NONSENSE, {}, plan.timeout)
        greeting = await line.greet()
        evidence.greeting, evidence.refused = greeting.answer, greeting.error
        if greeting.error is not None:
            return address
        evidence.listed = await line.ask("capabilities/list") if lists else None
        evidence.twice = await line.greet()
        evidence.unknown = await line.call(NONSENSE, {}, plan.timeout)
        await _try_all(evidence, plan, line)
        plan.told("cancellation")
        evidence.stray_cancel = await line.ask("capabilities/cancel", {"callId": NONSENSE, "reason": "a check"})
        for trial in _lasting(evidence.called):
            evidence.cancellings.append(await _cancelled(line, trial, plan.timeout))
        plan.told("shutdown")
        if await _ready(line):
            evidence.farewells = [await line.tell("shutdown", {"reason": "a check"}) for _ in range(2)]
            evidence.late = await line.call(NONSENSE, {}, plan.timeout)
            evidence.again = await line.greet()
        plan.told("reload")
        await line.hang_up()
        evidence.reopened = await line.greet()
        evidence.outside = line.outside
        return address


async def _ready(line: Line) -> bool:
    """Whether there is a connection to an app that knows us, made again where it has broken."""
    return (await line.ask("capabilities/cancel", {"callId": NONSENSE, "reason": "a check"})).error is None


async def _try_all(evidence: Evidence, plan: Plan, line: Line) -> None:
    listed = evidence.listed.answer if evidence.listed is not None else None
    declared = evidence.discovery.manifest.capabilities if evidence.discovery and evidence.discovery.manifest else ()
    said = evidence.greeted.get("capabilities")
    known = Capabilities().merge(said).merge(listed).with_manifest(declared)
    raw = {str(entry.get("name")): entry for source in (said, listed) for entry in _objects(source)}
    for name in known:
        trial = Trial(known[name], raw.get(name, {}), plan.excluded(name))
        if not trial.skipped and not known[name].available:
            trial.skipped = "it is not available now"
        if not trial.skipped:
            plan.told(name)
        evidence.trials += [trial] if trial.skipped else await _try(trial, plan, line)


def _objects(source: object) -> Iterable[Mapping[str, object]]:
    if isinstance(source, Mapping):
        source = source.get("data", source.get("capabilities"))
    return [entry for entry in source if isinstance(entry, Mapping)] if isinstance(source, list) else []


async def _try(trial: Trial, plan: Plan, line: Line) -> list[Trial]:
    """The trial, made; one more for each further example of parameters."""
    schema = trial.capability.input_schema
    try:
        first, *others = made_params(trial.name, schema)
    except Unmade as reason:
        trial.skipped = str(reason)
        return [trial]
    await _call(trial, first, plan, line)
    if (less := without_required(schema, first)) is not None:
        trial.missing = less[0], await line.call(trial.name, less[1], plan.timeout)
    if (other := wrong_type(schema, first)) is not None:
        trial.wrong = other[0], await line.call(trial.name, other[1], plan.timeout)
    more = [Trial(trial.capability, trial.entry) for _ in others]
    for one, params in zip(more, others, strict=True):
        await _call(one, params, plan, line)
    return [trial, *more]


async def _call(trial: Trial, params: Mapping[str, object], plan: Plan, line: Line) -> None:
    trial.params = params
    trial.call = await line.call(trial.name, params, plan.timeout)
    transport = line.transport if trial.call.error is None else None
    try:
        trial.pieces = await pieces_of(
            trial.call.fields.get("data"), transport, timeout=_DOWNLOAD, allow_private=plan.allow_private
        )
    except ProtocolError as error:
        trial.call.error = error


def _lasting(called: Sequence[tuple[Trial, Exchange]]) -> list[Trial]:
    """Calls that run long enough to be cancelled: those that ended by their timeout, those that say they can be."""

    def told(trial: Trial) -> bool:
        features = trial.entry.get("features")
        return isinstance(features, Mapping) and features.get("cancel") is True

    late = [trial for trial, call in called if call.error is not None or call.code == "TIMEOUT"]
    slow = sorted((pair for pair in called if pair[1].seconds > 2 * _RUNNING), key=lambda pair: -pair[1].seconds)
    able = [trial for trial, _ in called if told(trial)]
    chosen = {trial.name: trial for trial in (*late, *able, *(trial for trial, _ in slow))}
    return list(chosen.values())[:_MOST_CANCELLED]


def _lasting_call(evidence: Evidence) -> Mapping[str, object] | None:
    """One of those calls, for a look at the page object itself."""
    for trial in _lasting(evidence.called):
        _, content = outgoing(dict(trial.params))
        if not content:
            milliseconds = {"timeout": evidence.timeout * 1000, "after": _RUNNING * 1000}
            return {"name": trial.name, "params": dict(trial.params), **milliseconds}
    return None


async def _cancelled(line: Line, trial: Trial, timeout: float) -> Cancelling:
    call_id = str(uuid.uuid4())
    await _ready(line)
    call = asyncio.ensure_future(line.call(trial.name, trial.params, timeout, call_id))
    await asyncio.wait((call,), timeout=_RUNNING)
    first, again, answered = Exchange(), Exchange(), time.perf_counter()
    if not call.done():
        cancel = {"callId": call_id, "reason": "a check"}
        first = await line.ask("capabilities/cancel", cancel)
        answered = time.perf_counter()
        again = await line.ask("capabilities/cancel", cancel)
    ended = await call
    return Cancelling(trial.name, first, again, ended, time.perf_counter() - answered)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
