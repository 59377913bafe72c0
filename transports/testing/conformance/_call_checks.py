"""Checks of schemas, errors and cancellation (docs/protocol.md 2.5, 3.2, 3.5, 3.6 and 8.1), and of WebMCP tools
(docs/webmcp.md, "What makes a good tool")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import jsonschema_rs

from ...errors import ProtocolError, first_line
from ...protocol._find_content import find
from ...protocol._strict_json import items_of, members_of
from ...protocol.schema import check_output
from ._evidence import Cancellation, Evidence, Exchange, NotApplicable, Rules, Trial

SCHEMAS = Rules()
ERRORS = Rules()
#: Keywords that describe a place indirectly. They are not followed here.
_INDIRECT = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")


def _require_capability(app: Evidence) -> None:
    if not app.trials:
        raise NotApplicable("no capability is known")


def _schema_error(schema: object) -> str | None:
    if not isinstance(schema, dict | bool):
        return "it is not an object"
    try:
        jsonschema_rs.meta.validate(schema)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        return first_line(error)
    return None


@SCHEMAS.must(
    "schema.valid",
    "inputSchema and outputSchema are JSON Schema",
    source="docs/protocol.md 2.5; JSON Schema 2020-12",
    fix="correct the schema; {} allows any value",
)
def _judge_valid(app: Evidence) -> Iterator[str]:
    _require_capability(app)
    for trial in app.trials:
        for key in ("inputSchema", "outputSchema"):
            schema = trial.entry.get(key)
            if schema is None:
                continue
            reason = _schema_error(schema)
            if reason is not None:
                yield f"{trial.name}: {key}: {reason}"


@SCHEMAS.should(
    "schema.described",
    "Every capability has a description and an inputSchema",
    source="docs/protocol.md 2.5",
    fix="list both: agents choose by the description and fill in by the schema",
)
def _judge_parameters_described(app: Evidence) -> Iterator[str]:
    _require_capability(app)
    for trial in app.trials:
        if not trial.capability.description:
            yield f"{trial.name} has no description"
        if not trial.capability.input_schema:
            yield f"{trial.name} has no inputSchema"


@SCHEMAS.should(
    "schema.alternatives",
    "A deprecated capability names its alternatives",
    source="docs/protocol.md 2.5",
    fix="list alternatives: ['export.document'] beside deprecated: true",
)
def _judge_alternatives(app: Evidence) -> Iterator[str]:
    deprecated = [trial.capability for trial in app.trials if trial.capability.deprecated]
    if not deprecated:
        raise NotApplicable("no capability is deprecated")
    yield from (f"{capability.name} names none" for capability in deprecated if not capability.alternatives)


@SCHEMAS.should(
    "schema.params",
    "Parameters that fit inputSchema are accepted",
    source="docs/protocol.md 3.6",
    fix="declare all requirements in the schema (oneOf, pattern, enum, …), or give `examples` that work",
)
def _judge_params(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        if call.code in ("INVALID_PARAMS", "MISSING_PARAM", "INVALID_TYPE"):
            error: Any = call.fields["error"]
            yield f"{trial.name}: {trial.params!r:.120} was refused: {error.get('message')} [{call.code}]"


@SCHEMAS.should(
    "schema.result",
    "An answer fits outputSchema",
    source="docs/protocol.md 3.6",
    fix="correct the schema, or the answer",
)
def _judge_result(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        schema = trial.capability.output_schema
        has_valid_schema = bool(schema) and _schema_error(schema) is None
        if not call.succeeded or not has_valid_schema:
            continue

        data = call.fields.get("data")
        try:
            places = [content.path for content in find(data)]
        except ProtocolError:
            # The check answers.readable reports it.
            continue
        yield from (f"{trial.name}: {text}" for text in check_output(schema, data, places))


@SCHEMAS.should(
    "schema.content",
    "A capability that returns content declares it in outputSchema",
    source="docs/protocol.md 9.14",
    fix="describe the place as an object with content, mimeType, encoding, size and downloadUrl; require mimeType",
)
def _judge_declared_content(app: Evidence) -> Iterator[str]:
    app.require_contents()
    for trial, call in app.called:
        schema = trial.capability.output_schema
        is_invalid_schema = bool(schema) and _schema_error(schema) is not None
        keys_by_place = _keys_to_declare(trial)
        if not keys_by_place or not call.succeeded or is_invalid_schema:
            continue

        for content in find(call.fields.get("data")):
            keys = keys_by_place.get(content.field)
            if keys is not None and not _describes_content(schema, content.path, keys):
                place = content.field or "the answer"
                listed = " and ".join(sorted(keys))
                yield f"{trial.name}: outputSchema does not say that {place} is content with {listed}"


def _keys_to_declare(trial: Trial) -> dict[str, set[str]]:
    """Return the keys by place. Content without fields of its own, such as an ArrayBuffer, has none."""
    keys_by_place: dict[str, set[str]] = {}
    for item in trial.contents:
        if "downloadUrl" in item.node:
            keys_by_place[item.place] = {"mimeType", "downloadUrl"}
        elif "content" in item.node:
            keys_by_place[item.place] = {"mimeType"}
    return keys_by_place


def _describes_content(schema: object, path: Sequence[str | int], keys: Set[str]) -> bool:
    """Return whether a schema has ``keys`` and requires ``mimeType`` at a place, or describes the place indirectly."""
    if not isinstance(schema, Mapping):
        return False
    if any(key in schema for key in _INDIRECT):
        return True

    properties = members_of(schema.get("properties"))
    if not path:
        return keys <= properties.keys() and "mimeType" in items_of(schema.get("required"))

    step = path[0]
    if isinstance(step, str):
        inner = properties.get(step, schema.get("additionalProperties"))
    else:
        prefix = items_of(schema.get("prefixItems"))
        inner = prefix[step] if step < len(prefix) else schema.get("items")
    return _describes_content(inner, path[1:], keys)


def _all_calls(app: Evidence) -> Iterator[tuple[str, Exchange]]:
    yield "an unknown capability", app.unknown_call
    for trial in app.trials:
        if trial.call is not None:
            yield trial.name, trial.call
        for faulty_call in (trial.without_required, trial.with_wrong_type):
            if faulty_call is not None:
                yield trial.name, faulty_call.exchange


@ERRORS.must(
    "errors.shape",
    "An error is {code, message, retryable, …}",
    source="docs/protocol.md 3.5",
    fix="answer error: {code: 'UPPER_CASE', message: 'what to do', retryable: false}",
)
def _judge_shape(app: Evidence) -> Iterator[str]:
    app.require_session()
    for name, exchange in _all_calls(app):
        answer = exchange.fields
        has_failed = answer.get("success") is False
        is_cancelled_without_error = answer.get("cancelled") is True and answer.get("error") is None
        if not has_failed or is_cancelled_without_error:
            continue

        yield from (f"{name}: {fault}" for fault in _error_faults(answer.get("error")))


def _error_faults(error: object) -> Iterator[str]:
    if not isinstance(error, Mapping):
        yield f"error is {str(error)[:60]!r}, not an object"
        return

    code = error.get("code")
    message = error.get("message")
    if not isinstance(code, str) or not re.fullmatch(r"[A-Z][A-Z0-9_]*", code):
        yield f"code is {code!r}, not UPPER_CASE text"
    if not isinstance(message, str) or not message:
        yield "it has no message"
    if "retryable" not in error:
        yield f"{str(message)[:100]} [{code}]: it does not say retryable: true or false"
    elif not isinstance(error["retryable"], bool):
        yield f"retryable is {error['retryable']!r}, not a boolean"


@ERRORS.must(
    "errors.unknown",
    "An unknown capability is refused with UNKNOWN_CAPABILITY",
    source="docs/protocol.md 8.1",
    fix="return {success: false, error: {code: 'UNKNOWN_CAPABILITY', …, alternatives}}",
)
def _judge_unknown(app: Evidence) -> Iterator[str]:
    app.require_session()
    if app.unknown_call.error is not None:
        yield app.unknown_call.error.message
    elif app.unknown_call.succeeded:
        yield "the call succeeded"
    elif app.unknown_call.code != "UNKNOWN_CAPABILITY":
        yield f"it was refused with {app.unknown_call.code!r}"


@ERRORS.should(
    "errors.missing",
    "A call without a required parameter is refused with MISSING_PARAM",
    source="docs/protocol.md 3.6, 8.1",
    fix="check the parameters against inputSchema before anything else",
)
def _judge_missing(app: Evidence) -> Iterator[str]:
    tried = [(trial, trial.without_required) for trial in app.trials if trial.without_required is not None]
    if not tried:
        raise NotApplicable("no capability that was called has a required parameter")
    codes = ("MISSING_PARAM", "INVALID_PARAMS")
    for trial, faulty in tried:
        yield from _wrong_refusal(trial, f"{trial.name} without {faulty.param}", faulty.exchange, codes)


@ERRORS.should(
    "errors.type",
    "A parameter of a wrong type is refused with INVALID_TYPE",
    source="docs/protocol.md 3.6, 8.1",
    fix="check the parameters against inputSchema before anything else",
)
def _judge_wrong_type(app: Evidence) -> Iterator[str]:
    tried = [(trial, trial.with_wrong_type) for trial in app.trials if trial.with_wrong_type is not None]
    if not tried:
        raise NotApplicable("no capability that was called has a parameter with a type")
    codes = ("INVALID_TYPE", "INVALID_PARAMS")
    for trial, faulty in tried:
        yield from _wrong_refusal(trial, f"{trial.name} with a wrong {faulty.param}", faulty.exchange, codes)


def _wrong_refusal(trial: Trial, description: str, exchange: Exchange, codes: tuple[str, ...]) -> Iterator[str]:
    """The call should be refused with one of ``codes``. ``description`` says which call it is."""
    if exchange.error is not None:
        # The app threw, or did not answer. If it does that with valid parameters too, the checks answers.* report it.
        # A ProtocolError then concerns only the content of its answer.
        answers_valid_call = trial.call is not None and isinstance(trial.call.error, ProtocolError | None)
        if answers_valid_call:
            yield f"{description} was not refused: {exchange.error.message}"
    elif exchange.succeeded:
        yield f"{description} succeeded"
    elif exchange.code is not None and exchange.code not in codes:
        yield f"{description} was refused with {exchange.code!r}"


@ERRORS.should(
    "errors.clear",
    "A call that fits its inputSchema succeeds, or the error names the unmet condition",
    source="docs/protocol.md 8.1",
    fix="catch exceptions of the handler; refuse with INVALID_PARAMS, PRECONDITION_FAILED or a code of your own",
)
def _judge_clear(app: Evidence) -> Iterator[str]:
    codes_without_reason = ("OPERATION_FAILED", "INTERNAL_ERROR", "BROWSER_ERROR")
    codes_of_permissions = ("PERMISSION_DENIED", "PERMISSION_REQUIRED")
    for trial, call in app.require_calls():
        if call.code in codes_without_reason:
            message = members_of(call.fields.get("error")).get("message")
            yield f"{trial.name}: {message} [{call.code}]"
        if call.code in codes_of_permissions and not trial.capability.requirements:
            yield f"{trial.name} needs a permission [{call.code}] and declares no requirements"


@ERRORS.must(
    "errors.deprecated",
    "A deprecated capability still works",
    source="docs/protocol.md 2.5",
    fix="keep its handler until the next major version of the app, then remove it from the list",
)
def _judge_deprecated(app: Evidence) -> Iterator[str]:
    deprecated = [(trial, call) for trial, call in app.called if trial.capability.deprecated]
    if not deprecated:
        raise NotApplicable("no capability that was called is deprecated")
    codes_of_missing_functions = (
        "UNKNOWN_CAPABILITY",
        "CAPABILITY_UNAVAILABLE",
        "NOT_SUPPORTED",
        "NOT_IMPLEMENTED",
        "DEPRECATED",
    )
    for trial, call in deprecated:
        if call.code in codes_of_missing_functions:
            yield f"{trial.name} was refused with {call.code}"


@ERRORS.must(
    "cancel.unknown",
    "Cancelling an unknown call answers cancelled: false",
    source="docs/protocol.md 3.2",
    fix="return {callId, cancelled: false} for calls that are unknown or have ended",
)
def _judge_cancel_unknown(app: Evidence) -> Iterator[str]:
    app.require_session()
    if app.unknown_cancel.error is not None:
        yield app.unknown_cancel.error.message
    elif app.unknown_cancel.fields.get("cancelled") is not False:
        yield f"it answered {str(app.unknown_cancel.answer)[:80]}"


@ERRORS.should(
    "cancel.forms",
    "cancel takes both documented forms",
    source="docs/protocol.md 3.2",
    fix="read callId from the first argument, be it text or an object; return {callId, cancelled}",
)
def _judge_forms(app: Evidence) -> Iterator[str]:
    if app.page_steps is None or "cancelText" not in app.page_steps:
        raise NotApplicable("there is no page object with cancel")
    for name, form in (("cancelText", "cancel(callId, reason)"), ("cancelObject", "cancel({callId, reason})")):
        step = app.page_steps[name]
        fields = members_of(step.value)
        if step.threw is not None:
            yield f"{form} threw: {step.threw}"
        elif not isinstance(fields.get("cancelled"), bool) or not isinstance(fields.get("callId"), str):
            yield f"{form} answered {str(step.value)[:80]}"


@ERRORS.must(
    "cancel.running",
    "A running call can be cancelled, and answers cancelled: true",
    source="docs/protocol.md 3.2",
    fix="stop the work, and settle the call with {success: false, cancelled: true}",
)
def _judge_running(app: Evidence) -> Iterator[str]:
    judged = 0
    for cancellation in app.cancellations:
        if cancellation.first.answer is None and cancellation.call.error is None:
            continue  # the call ended before it could be cancelled
        judged += 1
        for fault in _cancellation_faults(cancellation):
            yield f"{cancellation.name}: {fault}"
    if not judged:
        raise NotApplicable("no call ran long enough to be cancelled")


def _cancellation_faults(cancellation: Cancellation) -> Iterator[str]:
    cancel = cancellation.first
    call = cancellation.call
    if not _says_cancelled(cancel) and _ran_when_cancelled(cancellation):
        answer = str(cancel.answer)[:80]
        if cancel.error is not None:
            answer = cancel.error.message
        yield f"cancelling it while it ran: {answer}"

    if call.error is not None:
        yield f"the call was cancelled and never answered ({call.error.message})"
    elif _says_cancelled(cancel) and not _says_cancelled(call):
        yield f"the cancelled call answered {str(call.answer)[:80]}"


def _ran_when_cancelled(cancellation: Cancellation) -> bool:
    """A call counts only if it certainly did not end by itself before the cancel could take effect."""
    # Possible although the app refused the cancel, since an embedding page ends the call regardless of the app.
    if _says_cancelled(cancellation.call):
        return True
    seconds_in_doubt = 0.3  # a call that ended this soon after the cancel may have ended by itself
    return cancellation.ran_on > seconds_in_doubt


def _says_cancelled(exchange: Exchange) -> bool:
    return exchange.fields.get("cancelled") is True


@ERRORS.should(
    "cancel.again",
    "Cancelling a cancelled call answers cancelled: true again",
    source="docs/protocol.md 3.2",
    fix="remember the ids of cancelled calls, and answer the second cancel as the first",
)
def _judge_again(app: Evidence) -> Iterator[str]:
    accepted = [cancellation for cancellation in app.cancellations if _says_cancelled(cancellation.first)]
    if not accepted:
        raise NotApplicable("no call was cancelled")

    for cancellation in accepted:
        again = cancellation.again
        if again.error is not None:
            yield f"{cancellation.name}: {again.error.message}"
        elif not _says_cancelled(again):
            yield f"{cancellation.name}: the second time it answered {str(again.answer)[:80]}"


@ERRORS.should(
    "cancel.early",
    "Cancelling without a session is refused with NOT_INITIALIZED",
    source="docs/protocol.md 3.2",
    fix="return {success: false, error: {code: 'NOT_INITIALIZED', …}} before initialize and after shutdown",
)
def _judge_cancel_early(app: Evidence) -> Iterator[str]:
    app.require_session()
    reason: str | None = None
    probed = (app.page_steps or {}).get("cancelEarly")
    if probed is not None:
        exchange = Exchange(probed.value)
        reason = probed.threw
    elif app.kind == "websocket" and app.shutdowns:
        exchange = app.cancel_after_shutdown
        if exchange.error is not None:
            reason = exchange.error.message
    else:
        raise NotApplicable("the app's own answer cannot be seen")

    if reason is not None:
        yield reason
    elif exchange.code != "NOT_INITIALIZED":
        yield f"it answered {str(exchange.answer)[:80]}"


WEBMCP = Rules()
_SOURCE = "docs/webmcp.md, What makes a good tool"


def _require_facts(app: Evidence, part: str) -> list[Mapping[str, Any]]:
    """``part`` is ``tools`` or ``forms``. Without any, the rule does not apply."""
    if not app.tool_facts:
        if app.open_error:
            raise NotApplicable(f"the tools could not be inspected: {app.open_error}")
        raise NotApplicable("no tools")
    facts = app.tool_facts[part]
    assert isinstance(facts, list)
    if not facts:
        kind = "forms that are tools" if part == "forms" else "tools of scripts"
        raise NotApplicable(f"the page has no {kind}")
    return facts


@WEBMCP.must(
    "webmcp.reached",
    "The page registers tools",
    source="docs/webmcp.md, What is found",
    fix="register tools with document.modelContext.registerTool() while the page loads, over https or on localhost",
)
def _judge_reached(app: Evidence) -> Iterator[str]:
    if app.open_error is not None:
        yield app.open_error.message


@WEBMCP.must(
    "webmcp.name",
    "A tool's name is 1 to 128 letters, digits, dots, dashes and underscores",
    source="WebMCP, registerTool(); " + _SOURCE,
    fix="use a name such as export_pdf or export.pdf",
)
def _judge_name(app: Evidence) -> Iterator[str]:
    for trial in app.trials:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", trial.name.partition("@")[0]):
            yield f"{trial.name!r}"


@WEBMCP.must(
    "webmcp.described",
    "A tool has a description",
    source="WebMCP, ModelContextTool.description; " + _SOURCE,
    fix="describe the purpose of the tool in a sentence: a model reads nothing else",
)
def _judge_tool_described(app: Evidence) -> Iterator[str]:
    min_chars = 10
    for tool in _require_facts(app, "tools"):
        description = tool.get("description")
        if not isinstance(description, str) or len(description.strip()) < min_chars:
            yield f"{tool['name']}: described as {description!r}"


@WEBMCP.should(
    "webmcp.parameters",
    "Each parameter has a description",
    source=_SOURCE,
    fix="describe each parameter in its schema",
)
def _judge_parameters(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool["undescribed"]:
            yield f"{tool['name']}: no description of {', '.join(tool['undescribed'])}"


@WEBMCP.must(
    "webmcp.schema",
    "inputSchema is an object",
    source="WebMCP, ModelContextTool.inputSchema; " + _SOURCE,
    fix="give the schema itself, not its JSON text: that was the form before Chromium 154",
)
def _judge_schema(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool["schema"] not in ("object", "undefined"):
            yield f"{tool['name']}: inputSchema is {tool['schema']}"


@WEBMCP.must(
    "webmcp.hints",
    "Annotations are true or false",
    source="WebMCP, ToolAnnotations; " + _SOURCE,
    fix="write readOnlyHint: true, not a text",
)
def _judge_hints(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        for hint in tool["hints"]:
            yield f"{tool['name']}: {hint}"


@WEBMCP.should(
    "webmcp.read_only",
    "A tool with readOnlyHint changes nothing: no download, window, dialog or print",
    source="WebMCP, ToolAnnotations.readOnlyHint; " + _SOURCE,
    fix="leave the hint out, or the side effect",
)
def _judge_read_only(app: Evidence) -> Iterator[str]:
    for trial, call in app.called:
        if trial.capability.annotations.get("readOnlyHint") is True and call.effects:
            yield f"{trial.name}: {', '.join(sorted({effect.kind for effect in call.effects}))}"


@WEBMCP.should(
    "webmcp.dialect",
    "The tools are registered in the current way, with document.modelContext.registerTool()",
    source="docs/webmcp.md, Dialects",
    fix="use document.modelContext.registerTool(); navigator.modelContext and provideContext() are older",
)
def _judge_dialect(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool["via"] != "registerTool":
            yield f"{tool['name']}: {tool['via']}()"
    if app.tool_facts["api"] == "navigator":
        yield "the page has navigator.modelContext only"


@WEBMCP.should(
    "webmcp.answer",
    "A tool returns values, not JSON inside a text",
    source="docs/webmcp.md, Answers",
    fix="return the object itself: the platform makes JSON of it, and files in it can be whole",
)
def _judge_tool_answer(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool.get("dialect") == "JSON in text":
            yield f"{tool['name']}"


@WEBMCP.should(
    "webmcp.cancel",
    "A tool ends when its signal is aborted",
    source="WebMCP, executeTool() with a signal; " + _SOURCE,
    fix="pass signal on to fetch(), or reject when it is aborted",
)
def _judge_tool_cancel(app: Evidence) -> Iterator[str]:
    tried = [tool for tool in _require_facts(app, "tools") if tool.get("ended") is not None]
    if not tried:
        raise NotApplicable("no tool ran long enough to be cancelled")
    for tool in tried:
        if tool["ended"] is False:
            yield f"{tool['name']}: it keeps running"


@WEBMCP.must(
    "webmcp.form",
    "A form that is a tool has a name, a description, and a name for each control",
    source="WebMCP, declarative tools; " + _SOURCE,
    fix="give the form toolname and tooldescription, and each control a name",
)
def _judge_form(app: Evidence) -> Iterator[str]:
    for form in _require_facts(app, "forms"):
        label = form["name"] or "a form without toolname"
        if not form["name"]:
            yield f"{label}: toolname is missing"
        elif not form["description"]:
            yield f"{label}: tooldescription is missing"
        if form["nameless"]:
            yield f"{label}: {form['nameless']} controls without a name"


@WEBMCP.should(
    "webmcp.submit",
    "A form can be sent: it has toolautosubmit, or a button for a person",
    source="WebMCP, toolautosubmit; " + _SOURCE,
    fix="add <button>, or toolautosubmit if no person needs to check the form first",
)
def _judge_submit(app: Evidence) -> Iterator[str]:
    for form in _require_facts(app, "forms"):
        if not form["autosubmit"] and not form["submitter"]:
            yield f"{form['name']}: it waits for a person and has no button"
