"""Errors (PROTOCOL "The page object", "Error codes")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..evidence import Evidence, Exchange
from ..rules import NotApplicable, Rules

RULES = Rules()
_CODES = "PROTOCOL Error codes"
_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
#: What says only that something went wrong.
_UNCLEAR = {"OPERATION_FAILED", "INTERNAL_ERROR", "BROWSER_ERROR"}


def _refusals(app: Evidence) -> Iterator[tuple[str, Exchange]]:
    yield "an unknown capability", app.unknown
    for trial in app.trials:
        for exchange in (trial.call, *(pair[1] for pair in (trial.missing, trial.wrong) if pair is not None)):
            if exchange is not None:
                yield trial.name, exchange


def _answered(app: Evidence) -> None:
    if app.refused is not None:
        raise NotApplicable("the app could not be initialized")


@RULES(
    "errors.shape",
    "MUST",
    "An error is {code, message, retryable, …}",
    source="PROTOCOL The page object: error",
    fix="answer error: {code: 'UPPER_CASE', message: 'what to do', retryable: false}",
)
def shape(app: Evidence) -> Iterator[str]:
    _answered(app)
    for name, exchange in _refusals(app):
        answer = exchange.fields
        if answer.get("success") is not False or (answer.get("cancelled") is True and answer.get("error") is None):
            continue
        error = answer.get("error")
        if not isinstance(error, Mapping):
            yield f"{name}: error is {str(error)[:60]!r}, no object"
            continue
        if not isinstance(error.get("code"), str) or not _CODE.fullmatch(error["code"]):
            yield f"{name}: code is {error.get('code')!r}, no UPPER_CASE text"
        if not isinstance(error.get("message"), str) or not error["message"]:
            yield f"{name}: it has no message"
        if not isinstance(error.get("retryable"), bool):
            yield f"{name}: retryable is {error.get('retryable')!r}, no boolean"


@RULES(
    "errors.unknown",
    "MUST",
    "An unknown capability is refused with UNKNOWN_CAPABILITY",
    source=_CODES,
    fix="answer {success: false, error: {code: 'UNKNOWN_CAPABILITY', …, alternatives}}",
)
def unknown(app: Evidence) -> Iterator[str]:
    _answered(app)
    if app.unknown.error is not None:
        yield app.unknown.error.message
    elif app.unknown.succeeded:
        yield "the call succeeded"
    elif app.unknown.code != "UNKNOWN_CAPABILITY":
        yield f"it was refused with {app.unknown.code!r}"


@RULES(
    "errors.missing",
    "SHOULD",
    "A call without a required parameter is refused with MISSING_PARAM",
    source=_CODES,
    fix="check the parameters against inputSchema before anything else",
)
def missing(app: Evidence) -> Iterator[str]:
    tried = [(trial.name, *trial.missing) for trial in app.trials if trial.missing is not None]
    if not tried:
        raise NotApplicable("no capability that was called has a required parameter")
    for name, param, exchange in tried:
        yield from _not_refused(f"{name} without {param}", exchange, ("MISSING_PARAM", "INVALID_PARAMS"))


@RULES(
    "errors.type",
    "SHOULD",
    "A parameter of a wrong type is refused with INVALID_TYPE",
    source=_CODES,
    fix="check the parameters against inputSchema before anything else",
)
def wrong_type(app: Evidence) -> Iterator[str]:
    tried = [(trial.name, *trial.wrong) for trial in app.trials if trial.wrong is not None]
    if not tried:
        raise NotApplicable("no capability that was called has a parameter with a type")
    for name, param, exchange in tried:
        yield from _not_refused(f"{name} with a wrong {param}", exchange, ("INVALID_TYPE", "INVALID_PARAMS"))


def _not_refused(what: str, exchange: Exchange, codes: tuple[str, ...]) -> Iterator[str]:
    if exchange.error is not None:
        return  # answers.* say so
    if exchange.succeeded:
        yield f"{what} succeeded"
    elif exchange.code is not None and exchange.code not in codes:
        yield f"{what} was refused with {exchange.code!r}"


@RULES(
    "errors.clear",
    "SHOULD",
    "A call that fits its inputSchema succeeds, or the error says which condition is not met",
    source=_CODES,
    fix="catch what the handler throws; refuse with INVALID_PARAMS, PRECONDITION_FAILED or a code of your own",
)
def clear(app: Evidence) -> Iterator[str]:
    if not app.called:
        raise NotApplicable("no capability was called")
    for trial, call in app.called:
        error = call.fields.get("error")
        if isinstance(error, Mapping) and error.get("code") in _UNCLEAR:
            yield f"{trial.name}: {error.get('message')} [{error.get('code')}]"
