"""What calls answer, and what the app does beside (seed "Data Flow Routing": return data, not file paths)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ....binary.detect import find
from ....errors import ABPError, CallTimeout, ProtocolError, TransportError
from ....protocol.strict_json import encode_json
from ..evidence import Evidence, Exchange, Trial
from ..line import GRACE
from ..rules import NotApplicable, Rules

RULES = Rules()
_CALL = "PROTOCOL The page object: call"
_NATIVE = {"dialog", "popup", "filechooser", "download"}
#: Bytes inside an answer from which on it should be a download (seed 001).
_LARGE = 10 * 1000 * 1000
#: Seconds that an answer may need on its way.
_TOLERANCE = 0.25
#: Members that only say that something was done, and where: texts about it, names of files, the rest.
_MESSAGES = {"message", "msg", "info", "note", "result"}
_PLACES = {"path", "file", "filepath", "filename", "folder"}
_REST = {"success", "ok", "done", "saved", "exported", "created", "status", "state", "name", "location"}
_DONE = re.compile(
    r"\s*(ok|okay|done|success(ful(ly)?)?|(the )?[\w ]{0,30}\b(was|were|has been|have been|is|are)? ?"
    r"(saved|exported|created|written|generated|downloaded|finished|completed?))\b.{0,200}",
    re.IGNORECASE | re.DOTALL,
)
_PATH = re.compile(r"[^\s].*([/\\].+|\.\w{2,5})", re.DOTALL)


def _called(app: Evidence) -> list[tuple[Trial, Exchange]]:
    if not app.called:
        raise NotApplicable("no capability was called")
    return app.called


@RULES(
    "answers.alive",
    "MUST",
    "A call leaves the app where it is: no navigation, no crash, no lost connection",
    source="PROTOCOL What public clients and apps get wrong",
    fix="do not navigate, reload or close in a call; catch what can fail",
)
def alive(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        lost = call.error
        if isinstance(lost, TransportError) and not isinstance(lost, CallTimeout | ProtocolError):
            yield f"{trial.name}: {lost.message}"


@RULES(
    "answers.timeout",
    "MUST",
    "A call that cannot end in time answers so",
    source=_CALL + " options {timeout (ms)}; a timeout is a cancellation too",
    fix="stop at options.timeout and answer {success: false, cancelled: true, error: {code: 'TIMEOUT', …}}",
)
def timeout(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        if isinstance(call.error, CallTimeout):
            yield f"{trial.name}: given {app.timeout:g} s, it had not answered {GRACE:g} s later"
        elif call.seconds > app.timeout + _TOLERANCE and call.fields.get("success") is not False:
            yield f"{trial.name}: given {app.timeout:g} s, it answered after {call.seconds:.2f} s as if in time"


@RULES(
    "answers.shape",
    "MUST",
    "A call answers {success, data?, error?, …}",
    source=_CALL,
    fix="answer an object with success: true and data, or success: false and error",
)
def shape(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        if call.error is not None:
            continue
        if not isinstance(call.answer, Mapping):
            yield f"{trial.name} answered {str(call.answer)[:60]!r}, no object"
        elif not isinstance(call.answer.get("success"), bool):
            yield f"{trial.name} answered without success: true or false"


@RULES(
    "answers.readable",
    "MUST",
    "An answer can be read: JSON values and content, not nested without end",
    source=_CALL,
    fix="answer plain data of at most 64 levels; content as ArrayBuffer, typed array, Blob or base64",
)
def readable(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        if isinstance(call.error, ProtocolError):
            yield f"{trial.name}: {call.error.message}"


@RULES(
    "answers.data",
    "SHOULD",
    "A call that succeeds answers data",
    source=_CALL,
    fix="answer what was made or found, even if it is only what is true now",
)
def data(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        if call.succeeded and call.fields.get("data") is None and not call.outputs:
            yield f"{trial.name} succeeded without data"


@RULES(
    "answers.real",
    "SHOULD",
    "An answer is the result itself, not a message that there is one",
    source="seed Data Flow Routing, Best Practices: return the actual data and let the client handle storage",
    fix="answer the content ({content, mimeType, size, …} or downloadUrl) instead of a path or 'done'",
)
def real(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        said = call.fields.get("data")
        if call.succeeded and not call.outputs and not trial.pieces and _only_says_so(said):
            yield f"{trial.name} answered {str(said)[:120]}"


def _only_says_so(said: object) -> bool:
    """By its look, so that this is no more than a warning: ``{status: "active"}`` is data."""
    if isinstance(said, str):
        return _is_done(said)
    if not isinstance(said, Mapping):
        return False
    members = {str(key).lower(): value for key, value in said.items()}
    scalar = all(value is None or isinstance(value, str | bool) for value in members.values())
    if not scalar or not set(members) <= _MESSAGES | _PLACES | _REST:
        return False
    return any(_is_done(members.get(name)) for name in _MESSAGES) or any(
        isinstance(place := members.get(name), str) and _PATH.fullmatch(place) for name in _PLACES
    )


def _is_done(text: object) -> bool:
    return isinstance(text, str) and len(text) < 300 and _DONE.fullmatch(text) is not None


@RULES(
    "answers.native",
    "MUST",
    "A call shows nothing: no dialog, window, file chooser or download",
    source="PROTOCOL What public clients and apps get wrong: native UI",
    fix="ask the client with elicitation, take files as parameters, answer content (printing is the signal for a PDF)",
)
def native(app: Evidence) -> Iterator[str]:
    if app.kind == "websocket":
        raise NotApplicable("what an app behind a WebSocket shows cannot be seen")
    for trial, call in _called(app):
        for effect in call.effects:
            if effect.kind in _NATIVE:
                yield f"{trial.name}: {effect.kind} {dict(effect.detail)}"
    yield from (f"outside any call: {one.kind} {dict(one.detail)}" for one in app.outside if one.kind in _NATIVE)


@RULES(
    "answers.clipboard",
    "SHOULD",
    "A call leaves the clipboard alone",
    source="seed Data Flow Routing, Best Practices: return the actual data",
    fix="answer the content; whoever called decides where it goes",
)
def clipboard(app: Evidence) -> Iterator[str]:
    if app.kind == "websocket":
        raise NotApplicable("what an app behind a WebSocket does cannot be seen")
    for trial, call in _called(app):
        yield from (f"{trial.name}: {dict(one.detail)}" for one in call.effects if one.kind == "clipboard")


@RULES(
    "answers.size",
    "SHOULD",
    "What is larger than 10 MB is a download",
    source="seed Binary Data Protocol, BinaryDataReference (Large Files)",
    fix="answer {downloadUrl, mimeType, size} instead",
)
def size(app: Evidence) -> Iterator[str]:
    for trial, call in _called(app):
        for piece in trial.pieces:
            if piece.size > _LARGE and "downloadUrl" not in piece.node:
                yield f"{trial.name}: {piece.place} has {piece.size:,} bytes"
        if call.succeeded and not trial.pieces and (length := _length(call.fields.get("data"))) > _LARGE:
            yield f"{trial.name} answered {length:,} bytes of JSON"


def _length(value: object) -> int:
    try:
        return 0 if find(value, guess_from=None) else len(encode_json(value))
    except (ABPError, TypeError, ValueError, RecursionError):
        return 0


@RULES(
    "answers.progress",
    "MUST",
    "Progress says which call it belongs to, in numbers",
    source="PROTOCOL App → client: __abp_progress({operationId, progress, total?, percentage?, …})",
    fix="send {operationId: options.progressToken, progress, total} or a percentage from 0 to 100",
)
def progress(app: Evidence) -> Iterator[str]:
    seen = [(trial, payload) for trial, call in _called(app) for payload in call.progress]
    if not seen:
        raise NotApplicable("no call reported progress")
    for trial, payload in seen:
        said = payload if isinstance(payload, Mapping) else {}
        if not isinstance(said.get("operationId"), str):
            yield f"{trial.name}: without operationId: {str(payload)[:80]}"
        for name in ("progress", "total", "percentage"):
            value = said.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                yield f"{trial.name}: {name} is {value!r}, no number"
            elif name == "percentage" and isinstance(value, int | float) and not 0 <= value <= 100:
                yield f"{trial.name}: percentage is {value}"
