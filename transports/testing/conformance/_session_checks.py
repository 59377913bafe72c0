"""Checks of the manifest, the page object and the session (docs/protocol.md 1.4, 2, 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...protocol._capabilities import Discovery
from ...protocol._declarations import Manifest
from ...protocol._strict_json import items_of, members_of
from ...protocol.messages import PROTOCOL_VERSION
from ...routing.http._headers import is_json
from ._evidence import Evidence, Exchange, NotApplicable, ProbeStep, Rules

RULES = Rules()


def _require_discovery(app: Evidence) -> Discovery:
    if app.discovery is None:
        raise NotApplicable("an app without a page of its own has no manifest")
    return app.discovery


def _require_manifest(app: Evidence) -> Manifest:
    manifest = _require_discovery(app).manifest
    if manifest is None:
        raise NotApplicable("there is no readable manifest")
    return manifest


@RULES.must(
    "manifest.link",
    "The page names its manifest in its head",
    source="docs/protocol.md 7.1",
    fix='add <link rel="abp-manifest" href="/abp-manifest.json"> to the first 50 KB of the page',
)
def _judge_link(app: Evidence) -> Iterator[str]:
    discovery = _require_discovery(app)
    if discovery.manifest_url is None:
        yield discovery.reason.message if discovery.reason else "no link"


@RULES.must(
    "manifest.readable",
    "A linked manifest can be fetched and read",
    source="docs/protocol.md 7.2",
    fix="serve JSON of at most 1 MB there: {abp, app: {id, name, version}, capabilities: [{name}]}",
)
def _judge_readable(app: Evidence) -> Iterator[str]:
    if app.discovery is None or app.discovery.manifest_url is None:
        raise NotApplicable("no manifest is linked")
    if app.discovery.reason is not None:
        yield app.discovery.reason.message
    if app.discovery.manifest and app.discovery.manifest.abp == "":
        yield from app.discovery.warnings


@RULES.must(
    "manifest.fields",
    "The manifest declares its protocol version, the identity of the app, and its capabilities",
    source="docs/protocol.md 7.2, 1.4",
    fix="give abp, app.id, app.name and app.version as text, and capabilities as an array",
)
def _judge_fields(app: Evidence) -> Iterator[str]:
    manifest = _require_manifest(app)
    declared = {"abp": manifest.abp, "app.id": manifest.app.id, "app.name": manifest.app.name}
    declared["app.version"] = manifest.app.version
    yield from (f"{name} is missing" for name, value in declared.items() if not value)
    if "capabilities" not in manifest.model_fields_set:
        yield "capabilities is missing"
    if manifest.abp and manifest.abp.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        yield f"abp is {manifest.abp!r}, another major version than {PROTOCOL_VERSION}"


@RULES.should(
    "manifest.type",
    "The manifest is served as application/json",
    source="docs/protocol.md 7.2",
    fix="send Content-Type: application/json with it",
)
def _judge_type(app: Evidence) -> Iterator[str]:
    _require_manifest(app)
    kind = _require_discovery(app).manifest_type
    if not kind:
        yield "it is served without a Content-Type"
    elif not is_json(kind):
        yield f"it is served as {kind[:80]}"


@RULES.should(
    "manifest.agrees",
    "The manifest agrees with the running app",
    source="docs/protocol.md 7.5",
    fix="generate both from the same definitions",
)
def _judge_agrees(app: Evidence) -> Iterator[str]:
    manifest = _require_manifest(app)
    running = members_of(app.require_session().get("app"))
    for name in ("id", "name", "version"):
        declared = getattr(manifest.app, name)
        if declared and running.get(name) not in (None, declared):
            yield f"app.{name} is {declared!r} in the manifest and {running.get(name)!r} in the app"
    offered = {trial.name for trial in app.trials}
    for capability in manifest.capabilities:
        if capability.name not in offered:
            yield f"{capability.name} is in the manifest only"


def _page_steps(app: Evidence) -> Mapping[str, ProbeStep]:
    if app.page_steps is None:
        if app.open_error:
            raise NotApplicable("the page could not be opened")
        raise NotApplicable(f"an app reached as {app.kind} shows no page object")
    return app.page_steps


def _inspected_steps(app: Evidence) -> Mapping[str, ProbeStep]:
    steps = _page_steps(app)
    if "members" not in steps:
        raise NotApplicable("the page object could not be inspected")
    return steps


def _required_step(app: Evidence, name: str, missing: str) -> ProbeStep:
    step = _page_steps(app).get(name)
    if step is None:
        raise NotApplicable(missing)
    return step


@RULES.should(
    "page.ready",
    "window.abp is there when the page has loaded",
    source="docs/protocol.md 2.1",
    fix="assign window.abp in a script of the page, before anything that waits",
)
def _judge_ready(app: Evidence) -> Iterator[str]:
    if _required_step(app, "ready", "the page could not be opened").value is not True:
        yield "it appeared after the load event only"


@RULES.must(
    "page.members",
    "window.abp has initialize, shutdown, call, protocolVersion and app",
    source="docs/protocol.md 2.1",
    fix="give the page object every member that the protocol requires",
)
def _judge_members(app: Evidence) -> Iterator[str]:
    steps = _page_steps(app)
    if "members" not in steps:
        broke = steps.get("broke", ProbeStep(threw="the probe did not run")).threw
        yield f"the page object could not be inspected: {broke}"
        return

    kinds = members_of(steps["members"].value)
    for name in ("initialize", "shutdown", "call"):
        if kinds.get(name) != "function":
            yield f"{name} is {kinds.get(name)}, not a function"

    version = steps["protocolVersion"]
    if not isinstance(version.value, str) or not version.value:
        yield f"protocolVersion is {version.threw or repr(version.value)}, not text"

    identity = members_of(steps["app"].value)
    for name in ("id", "name", "version"):
        if not isinstance(identity.get(name), str):
            yield f"app.{name} is missing"


@RULES.should(
    "page.describe",
    "describeCapability returns a capability, and null for an unknown name",
    source="docs/protocol.md 2.4",
    fix="return the listed entry of that name, or null; do not throw",
)
def _judge_describe(app: Evidence) -> Iterator[str]:
    unknown = _required_step(app, "describeUnknown", "the page object has no describeCapability")
    if unknown.threw is not None or unknown.value is not None:
        yield f"an unknown name: {unknown.threw or f'answered {str(unknown.value)[:80]}'}"
    step = _page_steps(app).get("describeKnown")
    if step is not None and not isinstance(members_of(step.value).get("name"), str):
        yield f"a known name: {step.threw or f'answered {str(step.value)[:80]}'}"


@RULES.should(
    "page.supports",
    "supports returns {supported, available, …} for every name",
    source="docs/protocol.md 2.4",
    fix="return {supported: true, available: true}, and {supported: false, available: false} for an unknown name",
)
def _judge_supports(app: Evidence) -> Iterator[str]:
    steps = _inspected_steps(app)
    if "supportsUnknown" not in steps:
        yield "the page object has no supports"
    probed = (
        ("an unknown name", steps.get("supportsUnknown"), False),
        ("a known name", steps.get("supportsKnown"), True),
    )
    for name, step, is_supported in probed:
        if step is None:
            continue
        fault = _support_fault(step, is_supported)
        if fault is not None:
            yield f"{name}: {fault}"


def _support_fault(step: ProbeStep, is_supported: bool) -> str | None:
    answer = step.value
    if step.threw is not None:
        return step.threw
    if isinstance(answer, bool):
        return f"returned {answer!r}, not an object"
    if not isinstance(answer, Mapping) or answer.get("supported") is not is_supported:
        return f"answered {str(answer)[:120]}"
    if not isinstance(answer.get("available"), bool):
        return "it does not say available: true or false"
    if answer["available"] and not is_supported:
        return "it is available, though not supported"
    return None


@RULES.should(
    "page.list",
    "listCapabilities returns a plain array",
    source="docs/protocol.md 2.4",
    fix="return the array itself, not {success, data}",
)
def _judge_plain_list(app: Evidence) -> Iterator[str]:
    step = _inspected_steps(app).get("list")
    if step is None:
        yield "the page object has no listCapabilities"
    elif step.threw is not None:
        yield f"it threw: {step.threw}"
    elif not isinstance(step.value, list):
        answer = "an object" if isinstance(step.value, Mapping) else repr(step.value)
        yield f"it answered {answer}"


@RULES.must(
    "page.call",
    "call answers, and never throws",
    source="docs/protocol.md 3.3",
    fix="catch exceptions of handlers and return {success: false, error}",
)
def _judge_call_by_name(app: Evidence) -> Iterator[str]:
    step = _required_step(app, "unknown", "the page object could not be called")
    if step.threw is not None:
        yield f"a call of an unknown capability threw: {step.threw}"


@RULES.must(
    "page.reload",
    "After a reload the app can be initialized again",
    source="docs/protocol.md 2.3",
    fix="keep the session in the page object, not in storage that outlives the page",
)
def _judge_reload(app: Evidence) -> Iterator[str]:
    steps = _inspected_steps(app)
    step = steps.get("reloaded") or steps["broke"]
    if step.threw is not None or not isinstance(step.value, Mapping):
        yield f"initialize after a reload: {step.threw or f'answered {step.value!r}'}"


def _capability_names(capabilities: object) -> list[str]:
    names: list[str] = []
    for entry in items_of(capabilities):
        if isinstance(entry, Mapping):
            entry = entry.get("name")
        names.append(str(entry))
    return names


@RULES.must(
    "session.reachable",
    "The app can be reached and answers initialize",
    source="docs/protocol.md 2.2",
    fix="follow the message; try `abp capabilities TARGET`",
)
def _judge_reachable(app: Evidence) -> Iterator[str]:
    if app.open_error is not None:
        yield f"{app.open_error.message} [{app.open_error.code}]"


@RULES.must(
    "session.initialize",
    "initialize returns sessionId, protocolVersion, app and capabilities",
    source="docs/protocol.md 2.2",
    fix="return {sessionId, protocolVersion, app: {id, name, version}, capabilities: [{name, available}], features}",
)
def _judge_initialize(app: Evidence) -> Iterator[str]:
    info = app.require_session()
    for name in ("sessionId", "protocolVersion"):
        if not isinstance(info.get(name), str) or not info[name]:
            yield f"{name} is {info.get(name)!r}, not text"

    identity = members_of(info.get("app"))
    for name in ("id", "name", "version"):
        if not isinstance(identity.get(name), str) or not identity[name]:
            yield f"app.{name} is missing"

    listed = info.get("capabilities")
    if not isinstance(listed, list):
        yield "capabilities is not an array"
        return
    for position, entry in enumerate(listed):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            yield f"capabilities[{position}] has no name"
        elif not isinstance(entry.get("available"), bool):
            yield f"capabilities[{position}] ({entry['name']}) does not say whether it is available"


@RULES.must(
    "session.version",
    f"protocolVersion has the major version of {PROTOCOL_VERSION}",
    source="docs/protocol.md 1.4",
    fix=f"return {PROTOCOL_VERSION!r}",
)
def _judge_version(app: Evidence) -> Iterator[str]:
    version = app.require_session().get("protocolVersion")
    if isinstance(version, str) and version.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        yield f"the app says {version!r}"


@RULES.should(
    "session.features",
    "initialize returns the features that the app has",
    source="docs/protocol.md 2.2",
    fix="answer features: {notifications, progress, elicitation, dynamicCapabilities}, each true or false",
)
def _judge_features(app: Evidence) -> Iterator[str]:
    features = members_of(app.require_session().get("features"))
    for name in ("notifications", "progress", "elicitation"):
        if not isinstance(features.get(name), bool):
            yield f"features.{name} is missing"


@RULES.should(
    "session.list",
    "listCapabilities and initialize name the same capabilities",
    source="docs/protocol.md 2.4",
    fix="generate both from the same list",
)
def _judge_same_list(app: Evidence) -> Iterator[str]:
    initial = set(_capability_names(app.require_session().get("capabilities")))
    if app.listed is None:
        raise NotApplicable(f"an app reached as {app.kind} has no message for listing")
    if app.listed.error is not None:
        yield app.listed.error.message
        return
    answer = app.listed.answer
    if answer is None:
        raise NotApplicable("the page object has no listCapabilities")
    if isinstance(answer, Mapping):
        answer = answer.get("data")
    listed = set(_capability_names(answer))
    yield from (f"{name} is listed but not in initialize" for name in sorted(listed - initial))
    yield from (f"{name} is in initialize but not listed" for name in sorted(initial - listed))


@RULES.must(
    "session.delivery",
    "No capability stands for the clipboard or a share sheet",
    source="docs/protocol.md 11.1",
    fix="offer the content itself (convert.markdownToHtml instead of clipboard.copyHtml); the client delivers it",
)
def _judge_delivery(app: Evidence) -> Iterator[str]:
    app.require_session()
    for name in dict.fromkeys(trial.name for trial in app.trials):
        parts = name.lower().split(".")
        # In a name such as "app.clipboard.copy", the namespace is the last part but one.
        namespaces = {parts[0], *parts[-2:-1]}
        if namespaces & {"clipboard", "share"}:
            yield f"{name} is declared"


@RULES.should(
    "session.early",
    "A call without a session is refused with NOT_INITIALIZED",
    source="docs/protocol.md 2.2, 8.1",
    fix="return {success: false, error: {code: 'NOT_INITIALIZED', …, retryable: true}}",
)
def _judge_early(app: Evidence) -> Iterator[str]:
    app.require_session()
    for finding in _wrong_refusal(app.call_before_initialize):
        yield f"before initialize {finding}"
    if app.shutdowns:
        for finding in _wrong_refusal(app.call_after_shutdown):
            yield f"after shutdown {finding}"


@RULES.should(
    "session.twice",
    "A second initialize is answered with a session or with ALREADY_INITIALIZED",
    source="docs/protocol.md 2.2",
    fix="return (or throw) an error with the code ALREADY_INITIALIZED, or start over",
)
def _judge_twice(app: Evidence) -> Iterator[str]:
    app.require_session()
    error = app.second_initialize.error
    if error is not None:
        # A page object may throw its refusal.
        if error.code not in ("PROTOCOL_ERROR", "ALREADY_INITIALIZED"):
            yield error.message
    elif app.second_initialize.code != "ALREADY_INITIALIZED" and "sessionId" not in str(app.second_initialize.answer):
        yield f"it answered {str(app.second_initialize.answer)[:80]}"


@RULES.must(
    "session.shutdown",
    "shutdown ends the session, and may be sent twice",
    source="docs/protocol.md 2.3",
    fix="make shutdown idempotent: without a session it does nothing; afterwards calls get NOT_INITIALIZED",
)
def _judge_shutdown(app: Evidence) -> Iterator[str]:
    app.require_session()
    if not app.shutdowns:
        raise NotApplicable("the connection to the app was lost")

    for exchange in app.shutdowns:
        if exchange.error is not None:
            yield f"shutdown: {exchange.error.message}"

    steps = app.page_steps or {}
    for name, label in (("shutdown", "shutdown"), ("shutdownAgain", "the second shutdown")):
        step = steps.get(name)
        if step is not None and step.threw is not None:
            yield f"{label} threw: {step.threw}"

    if app.call_after_shutdown.succeeded:
        yield "a call after shutdown succeeded"


@RULES.must(
    "session.again",
    "After shutdown the app can be initialized again",
    source="docs/protocol.md 2.3",
    fix="let initialize begin a new session once the last one has ended",
)
def _judge_again(app: Evidence) -> Iterator[str]:
    app.require_session()
    if not app.shutdowns:
        raise NotApplicable("the connection to the app was lost")
    yield from _initialize_faults(app.initialize_after_shutdown)


@RULES.must(
    "session.reopened",
    "A new page or connection finds the same app",
    source="docs/protocol.md 2.3",
    fix="do not let state of an ended session affect the next one",
)
def _judge_reopened(app: Evidence) -> Iterator[str]:
    before = app.require_session().get("app")
    yield from _initialize_faults(app.initialize_on_new_connection)
    after = app.initialize_on_new_connection.fields.get("app")
    if after is not None and after != before:
        yield f"it was {before!r} and is {after!r} now"


def _initialize_faults(exchange: Exchange) -> Iterator[str]:
    if exchange.error is not None:
        yield f"initialize: {exchange.error.message}"
    elif exchange.fields.get("success") is False or not exchange.fields:
        yield f"initialize answered {str(exchange.answer)[:120]}"


def _wrong_refusal(exchange: Exchange) -> Iterator[str]:
    if exchange.error is not None:
        yield exchange.error.message
    elif exchange.succeeded:
        yield "it succeeded"
    elif exchange.code != "NOT_INITIALIZED":
        yield f"it was refused with {exchange.code!r}"


@RULES.must(
    "wire.frames",
    "Every frame is an envelope that the protocol knows, and every request has one reply",
    source="docs/protocol.md 6.1, 6.2, 6.3, 6.4; RFC 6455; RFC 8259",
    fix="send JSON text frames {type, id?, timestamp, payload}; one reply per request, with its id; close with 1000",
)
def _judge_frames(app: Evidence) -> Iterator[str]:
    if app.kind != "websocket":
        raise NotApplicable("only a WebSocket has frames")
    yield from dict.fromkeys(app.transport_findings)


@RULES.should(
    "wire.timestamp",
    "Every message has a timestamp",
    source="docs/protocol.md 6.1",
    fix="add timestamp: Date.now() to the envelope",
)
def _judge_timestamp(app: Evidence) -> Iterator[str]:
    if app.kind != "websocket":
        raise NotApplicable("only messages of a WebSocket are seen as they are sent")
    yield from (f"{kind} has none" for kind in dict.fromkeys(app.untimed))


@RULES.should(
    "wire.window",
    "Only the app itself posts to the embedding page",
    source="docs/protocol.md 6.5",
    fix="do not load frames that post to window.top",
)
def _judge_window(app: Evidence) -> Iterator[str]:
    if app.kind != "embedded":
        raise NotApplicable("only an embedded app shares a window with others")
    yield from dict.fromkeys(app.transport_findings)
