"""Checks of the session (initialize, shutdown, answers) and of envelopes (docs/protocol.md 1.4, 2.2 to 2.4, 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ....protocol.messages import PROTOCOL_VERSION
from .._evidence import Evidence, Exchange, NotApplicable, Rules, as_list

RULES = Rules()
#: Namespaces of capabilities that wrap ways of the browser to deliver content.
_DELIVERY = {"clipboard", "share"}


def _session_info(app: Evidence) -> Mapping[str, object]:
    if app.open_error is not None:
        raise NotApplicable("the app could not be initialized")
    return app.session_info


def _names(capabilities: object) -> list[str]:
    names: list[str] = []
    for entry in as_list(capabilities):
        if isinstance(entry, Mapping):
            entry = entry.get("name")
        names.append(str(entry))
    return names


@RULES(
    "session.reachable",
    "MUST",
    "The app can be reached and answers initialize",
    source="docs/protocol.md 2.2",
    fix="follow the message; try `abp capabilities TARGET`",
)
def _reachable(app: Evidence) -> Iterator[str]:
    if app.open_error is not None:
        yield f"{app.open_error.message} [{app.open_error.code}]"


@RULES(
    "session.initialize",
    "MUST",
    "initialize answers sessionId, protocolVersion, app and capabilities",
    source="docs/protocol.md 2.2",
    fix="answer {sessionId, protocolVersion, app: {id, name, version}, capabilities: [{name, available}], features}",
)
def _initialize(app: Evidence) -> Iterator[str]:
    info = _session_info(app)
    for name in ("sessionId", "protocolVersion"):
        if not isinstance(info.get(name), str) or not info[name]:
            yield f"{name} is {info.get(name)!r}, not text"
    identity = info.get("app")
    for name in ("id", "name", "version"):
        if not isinstance(identity, Mapping) or not isinstance(identity.get(name), str) or not identity[name]:
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


@RULES(
    "session.version",
    "MUST",
    f"protocolVersion has the major version of {PROTOCOL_VERSION}",
    source="docs/protocol.md 1.4",
    fix=f"answer {PROTOCOL_VERSION!r}",
)
def _version(app: Evidence) -> Iterator[str]:
    version = _session_info(app).get("protocolVersion")
    if isinstance(version, str) and version.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        yield f"the app says {version!r}"


@RULES(
    "session.features",
    "SHOULD",
    "initialize answers the features that the app has",
    source="docs/protocol.md 2.2",
    fix="answer features: {notifications, progress, elicitation, dynamicCapabilities}, each true or false",
)
def _features(app: Evidence) -> Iterator[str]:
    features = _session_info(app).get("features")
    for name in ("notifications", "progress", "elicitation"):
        if not isinstance(features, Mapping) or not isinstance(features.get(name), bool):
            yield f"features.{name} is missing"


@RULES(
    "session.list",
    "SHOULD",
    "listCapabilities and initialize name the same capabilities",
    source="docs/protocol.md 2.4",
    fix="generate both from the same list",
)
def _same_list(app: Evidence) -> Iterator[str]:
    initial = set(_names(_session_info(app).get("capabilities")))
    if app.listed is None:
        raise NotApplicable(f"an app reached as {app.kind} has no message for listing")
    if app.listed.error is not None:
        yield app.listed.error.message
        return
    answer = app.listed.answer
    if answer is None:
        raise NotApplicable("the page object has no listCapabilities")
    listed = set(_names(answer.get("data") if isinstance(answer, Mapping) else answer))
    yield from (f"{name} is listed but not in initialize" for name in sorted(listed - initial))
    yield from (f"{name} is in initialize but not listed" for name in sorted(initial - listed))


@RULES(
    "session.delivery",
    "MUST",
    "No capability stands for the clipboard or a share sheet",
    source="docs/protocol.md 11.1",
    fix="offer the content itself (convert.markdownToHtml instead of clipboard.copyHtml); the client delivers it",
)
def _delivery(app: Evidence) -> Iterator[str]:
    _session_info(app)
    for name in dict.fromkeys(trial.name for trial in app.trials):
        namespace, *actions = name.lower().split(".")[-2:]
        if (actions and namespace in _DELIVERY) or name.lower().partition(".")[0] in _DELIVERY:
            yield f"{name} is declared"


@RULES(
    "session.early",
    "SHOULD",
    "A call without a session is refused with NOT_INITIALIZED",
    source="docs/protocol.md 2.2, 8.1",
    fix="answer {success: false, error: {code: 'NOT_INITIALIZED', …, retryable: true}}",
)
def _early(app: Evidence) -> Iterator[str]:
    _session_info(app)
    for finding in _wrong_refusal(app.call_before_initialize):
        yield f"before initialize {finding}"
    if app.shutdowns:
        for finding in _wrong_refusal(app.call_after_shutdown):
            yield f"after shutdown {finding}"


@RULES(
    "session.twice",
    "SHOULD",
    "A second initialize is answered with a session or with ALREADY_INITIALIZED",
    source="docs/protocol.md 2.2",
    fix="answer (or throw) an error with the code ALREADY_INITIALIZED, or begin anew",
)
def _twice(app: Evidence) -> Iterator[str]:
    _session_info(app)
    error = app.second_initialize.error
    if error is not None and error.code in ("PROTOCOL_ERROR", "ALREADY_INITIALIZED"):
        return  # a page object may throw
    if error is not None:
        yield error.message
    elif app.second_initialize.code != "ALREADY_INITIALIZED" and "sessionId" not in str(app.second_initialize.answer):
        yield f"it answered {str(app.second_initialize.answer)[:80]}"


@RULES(
    "session.shutdown",
    "MUST",
    "shutdown ends the session, and may be sent twice",
    source="docs/protocol.md 2.3",
    fix="make shutdown idempotent: without a session it does nothing; afterwards calls get NOT_INITIALIZED",
)
def _shutdown(app: Evidence) -> Iterator[str]:
    _session_info(app)
    if not app.shutdowns:
        raise NotApplicable("the connection to the app was lost")
    for exchange in app.shutdowns:
        if exchange.error is not None:
            yield f"shutdown: {exchange.error.message}"
    for name in ("shutdown", "shutdownAgain"):
        step = (app.page_steps or {}).get(name)
        if step is not None and step.threw is not None:
            yield f"{'the second ' * (name != 'shutdown')}shutdown threw: {step.threw}"
    if app.call_after_shutdown.succeeded:
        yield "a call after shutdown succeeded"


@RULES(
    "session.again",
    "MUST",
    "After shutdown the app can be initialized again",
    source="docs/protocol.md 2.3",
    fix="let initialize begin a new session once the last one has ended",
)
def _again(app: Evidence) -> Iterator[str]:
    _session_info(app)
    if not app.shutdowns:
        raise NotApplicable("the connection to the app was lost")
    yield from _initialize_faults(app.initialize_after_shutdown)


@RULES(
    "session.reopened",
    "MUST",
    "A new page or connection finds the same app",
    source="docs/protocol.md 2.3",
    fix="do not let state of an ended session affect the next one",
)
def _reopened(app: Evidence) -> Iterator[str]:
    before = _session_info(app).get("app")
    yield from _initialize_faults(app.initialize_on_new_connection)
    after = app.initialize_on_new_connection.fields.get("app")
    if after is not None and after != before:
        yield f"it was {before!r} and is {after!r} now"


def _initialize_faults(exchange: Exchange) -> Iterator[str]:
    if exchange.error is not None:
        yield f"initialize: {exchange.error.message}"
    elif exchange.fields.get("success") is False or not exchange.fields:
        yield f"initialize answered {str(exchange.answer)[:120]}"


def _counted(findings: Iterable[str]) -> Iterator[str]:
    """Yield each finding once, with the number of times if there are several."""
    for finding, count in Counter(findings).items():
        yield f"{finding} ({count} times)" if count > 1 else finding


def _wrong_refusal(exchange: Exchange) -> Iterator[str]:
    if exchange.error is not None:
        yield exchange.error.message
    elif exchange.succeeded:
        yield "it succeeded"
    elif exchange.code != "NOT_INITIALIZED":
        yield f"it was refused with {exchange.code!r}"


@RULES(
    "wire.frames",
    "MUST",
    "Every frame is an envelope that the protocol knows, and every request has one reply",
    source="docs/protocol.md 6.1, 6.2, 6.3, 6.4; RFC 6455; RFC 8259",
    fix="send JSON text frames {type, id?, timestamp, payload}; one reply per request, with its id; close with 1000",
)
def _frames(app: Evidence) -> Iterator[str]:
    if app.kind != "websocket":
        raise NotApplicable("only a WebSocket has frames")
    yield from _counted(app.transport_findings)


@RULES(
    "wire.timestamp",
    "SHOULD",
    "Every message has a timestamp",
    source="docs/protocol.md 6.1",
    fix="add timestamp: Date.now() to the envelope",
)
def _timestamp(app: Evidence) -> Iterator[str]:
    if app.kind != "websocket":
        raise NotApplicable("only messages of a WebSocket are seen as they are sent")
    yield from _counted(f"{kind} has none" for kind in app.untimed)


@RULES(
    "wire.window",
    "SHOULD",
    "Only the app itself posts to the embedding page",
    source="docs/protocol.md 6.5",
    fix="do not load frames that post to window.top",
)
def _window(app: Evidence) -> Iterator[str]:
    if app.kind != "embedded":
        raise NotApplicable("only an embedded app shares a window with others")
    yield from (f"{what} ({count})" for what, count in Counter(app.transport_findings).items())
