"""The session: initialize, shutdown, what stands between (PROTOCOL "The page object", "Error codes")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....protocol.messages import PROTOCOL_VERSION
from ..evidence import Evidence, Exchange
from ..rules import NotApplicable, Rules

RULES = Rules()
_SOURCE = "PROTOCOL The page object"


def _greeted(app: Evidence) -> Mapping[str, object]:
    if app.refused is not None:
        raise NotApplicable("the app could not be initialized")
    return app.greeted


def _names(capabilities: object) -> list[str]:
    listed = capabilities if isinstance(capabilities, list) else []
    return [str(entry.get("name") if isinstance(entry, Mapping) else entry) for entry in listed]


@RULES(
    "session.reachable",
    "MUST",
    "The app can be reached and answers initialize",
    source=_SOURCE,
    fix="see what the message says; try it with `abp capabilities TARGET`",
)
def reachable(app: Evidence) -> Iterator[str]:
    if app.refused is not None:
        yield f"{app.refused.message} [{app.refused.code}]"


@RULES(
    "session.initialize",
    "MUST",
    "initialize answers sessionId, protocolVersion, app and capabilities",
    source=_SOURCE,
    fix="answer {sessionId, protocolVersion, app: {id, name, version}, capabilities: [{name, available}], features}",
)
def initialize(app: Evidence) -> Iterator[str]:
    said = _greeted(app)
    for name in ("sessionId", "protocolVersion"):
        if not isinstance(said.get(name), str) or not said[name]:
            yield f"{name} is {said.get(name)!r}, no text"
    about = said.get("app")
    for name in ("id", "name", "version"):
        if not isinstance(about, Mapping) or not isinstance(about.get(name), str) or not about[name]:
            yield f"app.{name} is missing"
    listed = said.get("capabilities")
    if not isinstance(listed, list):
        yield "capabilities is no array"
        return
    for place, entry in enumerate(listed):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            yield f"capabilities[{place}] has no name"
        elif not isinstance(entry.get("available"), bool):
            yield f"capabilities[{place}] ({entry['name']}) does not say whether it is available"


@RULES(
    "session.version",
    "MUST",
    f"protocolVersion is of the same major version as {PROTOCOL_VERSION}",
    source=_SOURCE,
    fix=f"answer {PROTOCOL_VERSION!r}",
)
def version(app: Evidence) -> Iterator[str]:
    said = _greeted(app).get("protocolVersion")
    if isinstance(said, str) and said.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        yield f"the app says {said!r}"


@RULES(
    "session.features",
    "SHOULD",
    "initialize says which features there are",
    source=_SOURCE,
    fix="answer features: {notifications, progress, elicitation, dynamicCapabilities}, each true or false",
)
def features(app: Evidence) -> Iterator[str]:
    said = _greeted(app).get("features")
    for name in ("notifications", "progress", "elicitation"):
        if not isinstance(said, Mapping) or not isinstance(said.get(name), bool):
            yield f"features.{name} is missing"


@RULES(
    "session.list",
    "SHOULD",
    "listCapabilities and initialize name the same capabilities",
    source=_SOURCE,
    fix="make both from the same list",
)
def same_list(app: Evidence) -> Iterator[str]:
    said = set(_names(_greeted(app).get("capabilities")))
    if app.listed is None:
        raise NotApplicable(f"an app reached as {app.kind} has no message for listing")
    if app.listed.error is not None:
        yield app.listed.error.message
        return
    answer = app.listed.answer
    if answer is None:
        raise NotApplicable("the page object has no listCapabilities")
    listed = set(_names(answer.get("data") if isinstance(answer, Mapping) else answer))
    yield from (f"{name} is listed, and not in initialize" for name in sorted(listed - said))
    yield from (f"{name} is in initialize, and not listed" for name in sorted(said - listed))


@RULES(
    "session.early",
    "SHOULD",
    "A call before initialize is refused with NOT_INITIALIZED",
    source="PROTOCOL Error codes",
    fix="answer {success: false, error: {code: 'NOT_INITIALIZED', …, retryable: true}}",
)
def early(app: Evidence) -> Iterator[str]:
    _greeted(app)
    yield from _refused(app.early, ("NOT_INITIALIZED",))


@RULES(
    "session.twice",
    "SHOULD",
    "A second initialize is answered with a session or with ALREADY_INITIALIZED",
    source="PROTOCOL Error codes",
    fix="answer (or throw) an error with the code ALREADY_INITIALIZED, or begin anew",
)
def twice(app: Evidence) -> Iterator[str]:
    _greeted(app)
    error = app.twice.error
    if error is not None and error.code in ("PROTOCOL_ERROR", "ALREADY_INITIALIZED"):
        return  # a page object may throw
    if error is not None:
        yield error.message
    elif app.twice.code != "ALREADY_INITIALIZED" and "sessionId" not in str(app.twice.answer):
        yield f"it answered {str(app.twice.answer)[:80]}"


@RULES(
    "session.shutdown",
    "MUST",
    "shutdown may be said twice, and ends the session",
    source=_SOURCE,
    fix="make shutdown idempotent: without a session it does nothing; afterwards calls get NOT_INITIALIZED",
)
def shutdown(app: Evidence) -> Iterator[str]:
    _greeted(app)
    if not app.farewells:
        raise NotApplicable("the app was not there any more")
    yield from (f"shutdown: {one.error.message}" for one in app.farewells if one.error is not None)
    for name in ("shutdown", "shutdownAgain"):
        step = (app.page or {}).get(name)
        if step is not None and step.threw is not None:
            yield f"{'the second ' * (name != 'shutdown')}shutdown threw: {step.threw}"
    if app.late.succeeded:
        yield "a call after shutdown succeeded"


@RULES(
    "session.again",
    "MUST",
    "After shutdown the app can be initialized again",
    source=_SOURCE,
    fix="let initialize begin a new session once the last one has ended",
)
def again(app: Evidence) -> Iterator[str]:
    _greeted(app)
    if not app.farewells:
        raise NotApplicable("the app was not there any more")
    yield from _begun(app.again)


@RULES(
    "session.reopened",
    "MUST",
    "A new page or connection finds the same app",
    source=_SOURCE,
    fix="keep nothing of a session that has ended where the next one trips over it",
)
def reopened(app: Evidence) -> Iterator[str]:
    before = _greeted(app).get("app")
    yield from _begun(app.reopened)
    after = app.reopened.fields.get("app")
    if after is not None and after != before:
        yield f"it was {before!r} and is {after!r} now"


def _begun(exchange: Exchange) -> Iterator[str]:
    if exchange.error is not None:
        yield f"initialize: {exchange.error.message}"
    elif exchange.fields.get("success") is False or not exchange.fields:
        yield f"initialize answered {str(exchange.answer)[:120]}"


def _refused(exchange: Exchange, codes: tuple[str, ...]) -> Iterator[str]:
    if exchange.error is not None:
        yield exchange.error.message
    elif exchange.succeeded:
        yield "it succeeded"
    elif exchange.code not in codes:
        yield f"it was refused with {exchange.code!r}"
