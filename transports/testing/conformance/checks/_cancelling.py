"""Checks of cancellation (docs/protocol.md 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .._evidence import Evidence, NotApplicable, Rules

RULES = Rules()
#: Seconds after a cancel within which a call may have ended by itself.
_ENDING = 0.3


@RULES(
    "cancel.unknown",
    "MUST",
    "Cancelling an unknown call answers cancelled: false",
    source="docs/protocol.md 3.2",
    fix="answer {callId, cancelled: false} for calls that are unknown or have ended",
)
def _unknown(app: Evidence) -> Iterator[str]:
    if app.open_error is not None:
        raise NotApplicable("the app could not be initialized")
    if app.unknown_cancel.error is not None:
        yield app.unknown_cancel.error.message
    elif app.unknown_cancel.fields.get("cancelled") is not False:
        yield f"it answered {str(app.unknown_cancel.answer)[:80]}"


@RULES(
    "cancel.forms",
    "SHOULD",
    "cancel takes both documented forms",
    source="docs/protocol.md 3.2",
    fix="read callId from the first argument, be it text or an object; answer {callId, cancelled}",
)
def _forms(app: Evidence) -> Iterator[str]:
    if app.page_steps is None or "cancelText" not in app.page_steps:
        raise NotApplicable("there is no page object with cancel")
    for name, form in (("cancelText", "cancel(callId, reason)"), ("cancelObject", "cancel({callId, reason})")):
        step = app.page_steps[name]
        fields = step.value if isinstance(step.value, Mapping) else {}
        if step.threw is not None:
            yield f"{form} threw: {step.threw}"
        elif not isinstance(fields.get("cancelled"), bool) or not isinstance(fields.get("callId"), str):
            yield f"{form} answered {str(step.value)[:80]}"


@RULES(
    "cancel.running",
    "MUST",
    "A running call can be cancelled, and answers cancelled: true",
    source="docs/protocol.md 3.2",
    fix="stop the work, and settle the call with {success: false, cancelled: true}",
)
def _running(app: Evidence) -> Iterator[str]:
    tried = [one for one in app.cancellations if one.first.answer is not None or one.call.error is not None]
    if not tried:
        raise NotApplicable("no call ran long enough to be cancelled")
    for one in tried:
        # An embedding page settles the call by itself, regardless of the app.
        settled = one.call.fields.get("cancelled") is True
        if one.first.fields.get("cancelled") is not True and (settled or one.ran_on > _ENDING):
            outcome = one.first.error.message if one.first.error is not None else str(one.first.answer)[:80]
            yield f"{one.name}: cancelling it while it ran: {outcome}"
        if one.call.error is not None:
            yield f"{one.name}: the call was cancelled and never answered ({one.call.error.message})"
        elif one.first.fields.get("cancelled") is True and one.call.fields.get("cancelled") is not True:
            yield f"{one.name}: the cancelled call answered {str(one.call.answer)[:80]}"


@RULES(
    "cancel.again",
    "SHOULD",
    "Cancelling twice does no harm",
    source="docs/protocol.md 3.2",
    fix="answer the second cancel as the first, or with cancelled: false",
)
def _again(app: Evidence) -> Iterator[str]:
    tried = [one for one in app.cancellations if one.first.fields.get("cancelled") is True]
    probed = (app.page_steps or {}).get("cancelAgain")
    if not tried and probed is None:
        raise NotApplicable("no call was cancelled")
    for one in tried:
        if one.again.error is not None:
            yield f"{one.name}: {one.again.error.message}"
        elif not isinstance(one.again.fields.get("cancelled"), bool):
            yield f"{one.name}: the second time it answered {str(one.again.answer)[:80]}"
    if probed is not None and probed.threw is not None:
        yield f"the second time it threw: {probed.threw}"
