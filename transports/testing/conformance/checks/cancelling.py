"""Cancellation (PROTOCOL "The page object": cancel)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..evidence import Evidence
from ..rules import NotApplicable, Rules

RULES = Rules()
_SOURCE = "PROTOCOL The page object: cancel"
#: Seconds: a call that ends within them may have ended by itself when it was cancelled.
_ENDING = 0.3


@RULES(
    "cancel.unknown",
    "MUST",
    "Cancelling an unknown call answers cancelled: false",
    source=_SOURCE,
    fix="answer {callId, cancelled: false} for calls that are unknown or have ended",
)
def unknown(app: Evidence) -> Iterator[str]:
    if app.refused is not None:
        raise NotApplicable("the app could not be initialized")
    if app.stray_cancel.error is not None:
        yield app.stray_cancel.error.message
    elif app.stray_cancel.fields.get("cancelled") is not False:
        yield f"it answered {str(app.stray_cancel.answer)[:80]}"


@RULES(
    "cancel.forms",
    "SHOULD",
    "cancel takes both documented forms",
    source=_SOURCE + "(callId, reason) and cancel({callId, reason})",
    fix="read callId from the first argument, be it text or an object; answer {callId, cancelled}",
)
def forms(app: Evidence) -> Iterator[str]:
    if app.page is None or "cancelText" not in app.page:
        raise NotApplicable("there is no page object with cancel")
    for name, form in (("cancelText", "cancel(callId, reason)"), ("cancelObject", "cancel({callId, reason})")):
        step = app.page[name]
        said = step.value if isinstance(step.value, Mapping) else {}
        if step.threw is not None:
            yield f"{form} threw: {step.threw}"
        elif not isinstance(said.get("cancelled"), bool) or not isinstance(said.get("callId"), str):
            yield f"{form} answered {str(step.value)[:80]}"


@RULES(
    "cancel.running",
    "MUST",
    "A running call can be cancelled, and answers cancelled: true",
    source=_SOURCE + "; a cancelled call answers {success: false, cancelled: true}",
    fix="stop the work, and settle the call with {success: false, cancelled: true}",
)
def running(app: Evidence) -> Iterator[str]:
    seen = [one for one in app.cancellings if one.first.answer is not None or one.call.error is not None]
    if not seen:
        raise NotApplicable("no call ran long enough to be cancelled")
    for one in seen:
        # A host page settles the call by itself, whatever the app does.
        settled = one.call.fields.get("cancelled") is True
        if one.first.fields.get("cancelled") is not True and (settled or one.ran_on > _ENDING):
            said = one.first.error.message if one.first.error is not None else str(one.first.answer)[:80]
            yield f"{one.name}: cancelling it while it ran: {said}"
        if one.call.error is not None:
            yield f"{one.name}: the call was cancelled and never answered ({one.call.error.message})"
        elif one.first.fields.get("cancelled") is True and one.call.fields.get("cancelled") is not True:
            yield f"{one.name}: the cancelled call answered {str(one.call.answer)[:80]}"


@RULES(
    "cancel.again",
    "SHOULD",
    "Cancelling twice does no harm",
    source=_SOURCE + ", idempotent",
    fix="answer the second cancel as the first, or with cancelled: false",
)
def again(app: Evidence) -> Iterator[str]:
    seen = [one for one in app.cancellings if one.first.fields.get("cancelled") is True]
    looked = (app.page or {}).get("cancelAgain")
    if not seen and looked is None:
        raise NotApplicable("no call was cancelled")
    for one in seen:
        if one.again.error is not None:
            yield f"{one.name}: {one.again.error.message}"
        elif not isinstance(one.again.fields.get("cancelled"), bool):
            yield f"{one.name}: the second time it answered {str(one.again.answer)[:80]}"
    if looked is not None and looked.threw is not None:
        yield f"the second time it threw: {looked.threw}"
