"""Checks of the page object (docs/protocol.md 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .._evidence import Evidence, NotApplicable, ProbeStep, Rules, as_mapping

RULES = Rules()


def _steps(app: Evidence) -> Mapping[str, ProbeStep]:
    if app.page_steps is None:
        reason = (
            "the page could not be opened" if app.open_error else f"an app reached as {app.kind} shows no page object"
        )
        raise NotApplicable(reason)
    return app.page_steps


def _inspected(app: Evidence) -> Mapping[str, ProbeStep]:
    steps = _steps(app)
    if "members" not in steps:
        raise NotApplicable("the page object could not be inspected")
    return steps


def _step(app: Evidence, name: str, missing: str) -> ProbeStep:
    step = _steps(app).get(name)
    if step is None:
        raise NotApplicable(missing)
    return step


@RULES(
    "page.ready",
    "SHOULD",
    "window.abp is there when the page has loaded",
    source="docs/protocol.md 2.1",
    fix="assign window.abp in a script of the page, before anything that waits",
)
def _ready(app: Evidence) -> Iterator[str]:
    if _step(app, "ready", "the page could not be opened").value is not True:
        yield "it appeared after the load event only"


@RULES(
    "page.members",
    "MUST",
    "window.abp has initialize, shutdown, call, protocolVersion and app",
    source="docs/protocol.md 2.1",
    fix="give the page object every member that the protocol requires",
)
def _members(app: Evidence) -> Iterator[str]:
    steps = _steps(app)
    if "members" not in steps:
        broke = steps.get("broke", ProbeStep(threw="the probe did not run")).threw
        yield f"the page object could not be inspected: {broke}"
        return
    kinds = as_mapping(steps["members"].value)
    for name in ("initialize", "shutdown", "call"):
        if kinds.get(name) != "function":
            yield f"{name} is {kinds.get(name)}, not a function"
    version = steps["protocolVersion"]
    if not isinstance(version.value, str) or not version.value:
        yield f"protocolVersion is {version.threw or repr(version.value)}, not text"
    identity = as_mapping(steps["app"].value)
    for name in ("id", "name", "version"):
        if not isinstance(identity.get(name), str):
            yield f"app.{name} is missing"


@RULES(
    "page.describe",
    "SHOULD",
    "describeCapability answers a capability, and null for an unknown name",
    source="docs/protocol.md 2.4",
    fix="answer the listed entry of that name, or null; do not throw",
)
def _describe(app: Evidence) -> Iterator[str]:
    unknown = _step(app, "describeUnknown", "the page object has no describeCapability")
    if unknown.threw is not None or unknown.value is not None:
        yield f"an unknown name: {unknown.threw or f'answered {str(unknown.value)[:80]}'}"
    step = _steps(app).get("describeKnown")
    if step is not None and not isinstance(as_mapping(step.value).get("name"), str):
        yield f"a known name: {step.threw or f'answered {str(step.value)[:80]}'}"


@RULES(
    "page.supports",
    "SHOULD",
    "supports answers {supported, available, …} for every name",
    source="docs/protocol.md 2.4",
    fix="answer {supported: true, available: true}, and {supported: false, available: false} for an unknown name",
)
def _supports(app: Evidence) -> Iterator[str]:
    steps = _inspected(app)
    if "supportsUnknown" not in steps:
        yield "the page object has no supports"
    for step_name, expected in (("supportsUnknown", False), ("supportsKnown", True)):
        step = steps.get(step_name)
        if step is None:
            continue
        name = "a known name" if expected else "an unknown name"
        answer = step.value
        if step.threw is not None:
            yield f"{name}: {step.threw}"
        elif isinstance(answer, bool):
            yield f"{name}: answered {answer!r}, not an object"
        elif not isinstance(answer, Mapping) or answer.get("supported") is not expected:
            yield f"{name}: answered {str(answer)[:120]}"
        elif not isinstance(answer.get("available"), bool):
            yield f"{name}: it does not say available: true or false"
        elif answer["available"] and not expected:
            yield f"{name}: it is available, though not supported"


@RULES(
    "page.list",
    "SHOULD",
    "listCapabilities answers a plain array",
    source="docs/protocol.md 2.4",
    fix="answer the array itself, not {success, data}",
)
def _plain_list(app: Evidence) -> Iterator[str]:
    step = _inspected(app).get("list")
    if step is None:
        yield "the page object has no listCapabilities"
    elif step.threw is not None:
        yield f"it threw: {step.threw}"
    elif not isinstance(step.value, list):
        answer = "an object" if isinstance(step.value, Mapping) else repr(step.value)
        yield f"it answered {answer}"


@RULES(
    "page.call",
    "MUST",
    "call answers, and never throws",
    source="docs/protocol.md 3.3",
    fix="catch exceptions of handlers and answer {success: false, error}",
)
def _call_by_name(app: Evidence) -> Iterator[str]:
    step = _step(app, "unknown", "the page object could not be called")
    if step.threw is not None:
        yield f"a call of an unknown capability threw: {step.threw}"


@RULES(
    "page.reload",
    "MUST",
    "After a reload the app can be initialized again",
    source="docs/protocol.md 2.3",
    fix="keep the session in the page object, not in storage that outlives the page",
)
def _reload(app: Evidence) -> Iterator[str]:
    steps = _inspected(app)
    step = steps.get("reloaded") or steps.get("broke") or ProbeStep(threw="it did not come back")
    if step.threw is not None or not isinstance(step.value, Mapping):
        yield f"initialize after a reload: {step.threw or f'answered {step.value!r}'}"
