"""Checks of answers (docs/protocol.md 3.3, 4.4, 11 and 12.5) and of their binary content (9 and 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...errors import (
    ABPError,
    BadDescriptor,
    BadEncoding,
    CallTimeout,
    DownloadFailed,
    ProtocolError,
    SizeMismatch,
    TransportError,
    UrlExpired,
)
from ...protocol._find_content import find
from ...protocol._media import contradicts, safe_filename, sniff
from ...protocol._strict_json import encode_json, members_of
from ...protocol.binary import Encoded
from ._client import GRACE
from ._evidence import ContentItem, Evidence, NotApplicable, Rules

ANSWERS = Rules()
BINARIES = Rules()
#: Kinds of side effects that a user sees.
_NATIVE = {"dialog", "popup", "filechooser", "download", "share", "notification"}
#: Fields of an answer that only reports success: texts, names of files, all others.
_TEXT_FIELDS = {"message", "msg", "info", "note", "result"}
_PATH_FIELDS = {"path", "file", "filepath", "filename", "folder"}
_STATE_FIELDS = {"status", "state"}
_OTHER_FIELDS = {"success", "ok", "done", "saved", "exported", "created", "name", "location", *_STATE_FIELDS}
_DONE = re.compile(
    r"\s*(ok|okay|done|success(ful(ly)?)?|[\w ]{0,30}?\b"
    r"(saved|exported|created|written|generated|downloaded|finished|completed?|open(ed)?|started|begun|copied|shared|sent"
    r"|listed|shown|displayed|printed|rendered|converted|uploaded|queued|scheduled|triggered|initiated|launched|ready"
    r"|opening|starting|downloading|exporting|generating|printing|sharing|copying|saving|preparing))\b.{0,200}",
    re.IGNORECASE | re.DOTALL,
)
#: What a message names that waits for a person, or hands the result to something else than the caller.
_DELIVERY = re.compile(
    r"\b(dialog|share sheet|clipboard|print window|print preview|downloads? folder)\b", re.IGNORECASE
)
_PATH_LIKE = re.compile(r"[^\s].*([/\\].+|\.\w{2,5})", re.DOTALL)


@ANSWERS.must(
    "answers.alive",
    "A call leaves the app where it is: no navigation, no crash, no lost connection",
    source="docs/protocol.md 11.1",
    fix="do not navigate, reload or close in a call; catch what can fail",
)
def _judge_alive(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        lost = call.error
        if isinstance(lost, TransportError) and not isinstance(lost, CallTimeout | ProtocolError):
            yield f"{trial.name}: {lost.message}"


@ANSWERS.must(
    "answers.timeout",
    "A call that cannot end in time answers TIMEOUT",
    source="docs/protocol.md 3.4",
    fix="stop at options.timeout and return {success: false, cancelled: true, error: {code: 'TIMEOUT', …}}",
)
def _judge_timeout(app: Evidence) -> Iterator[str]:
    in_transit = 0.25  # seconds that an answer may take
    for trial, call in app.require_calls():
        if isinstance(call.error, CallTimeout):
            yield f"{trial.name}: given {app.timeout:g} s, it had not answered {GRACE:g} s later"
        elif call.seconds > app.timeout + in_transit and call.fields.get("success") is not False:
            yield f"{trial.name}: given {app.timeout:g} s, it answered after {call.seconds:.2f} s as if in time"


@ANSWERS.must(
    "answers.shape",
    "A call returns {success, data?, error?, …}",
    source="docs/protocol.md 3.3",
    fix="return an object with success: true and data, or success: false and error",
)
def _judge_shape(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        if call.error is not None:
            continue
        if not isinstance(call.answer, Mapping):
            yield f"{trial.name} returned {str(call.answer)[:60]!r}, not an object"
        elif not isinstance(call.answer.get("success"), bool):
            yield f"{trial.name} returned no success: true or false"


@ANSWERS.must(
    "answers.readable",
    "An answer can be read: JSON values and content, at most 64 levels deep",
    source="docs/protocol.md 3.3, 1.3",
    fix="return plain data of at most 64 levels; content as ArrayBuffer, typed array, Blob or base64",
)
def _judge_readable(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        if isinstance(call.error, ProtocolError):
            yield f"{trial.name}: {call.error.message}"


@ANSWERS.should(
    "answers.data",
    "A call that succeeds returns data",
    source="docs/protocol.md 12.5",
    fix="return the data that was created or found, or the current state",
)
def _judge_data(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        if call.succeeded and call.fields.get("data") is None and not call.outputs:
            yield f"{trial.name} succeeded without data"


@ANSWERS.must(
    "answers.real",
    "An answer is the result itself, not a message that there is one",
    source="docs/protocol.md 12.5",
    fix="return the content ({content, mimeType, size, …} or downloadUrl) instead of a path or 'done'",
)
def _judge_real(app: Evidence) -> Iterator[str]:
    for trial, call in app.require_calls():
        data = call.fields.get("data")
        if not call.succeeded or trial.contents or not _is_status_only(data):
            continue
        # A printed page is a result, unless the answer leaves it to a person at a dialog.
        if not call.outputs or _DELIVERY.search(_split_words(str(data))):
            yield f"{trial.name} answered {str(data)[:120]}"


def _is_status_only(data: object) -> bool:
    """Return whether data only reports that something was done; ``{status: "active"}`` is data."""
    if isinstance(data, str):
        return _is_done(data)
    if not isinstance(data, Mapping):
        return False
    members = {str(key).lower(): value for key, value in data.items()}
    are_simple = all(value is None or isinstance(value, str | bool) for value in members.values())
    are_of_a_report = set(members) <= _TEXT_FIELDS | _PATH_FIELDS | _OTHER_FIELDS
    if not are_simple or not are_of_a_report:
        return False

    return (
        any(_is_done(members.get(name)) for name in _TEXT_FIELDS)
        or any(_is_event(members.get(name)) for name in _STATE_FIELDS)
        or any(_is_path(members.get(name)) for name in _PATH_FIELDS)
    )


def _is_path(text: object) -> bool:
    return isinstance(text, str) and _PATH_LIKE.fullmatch(text) is not None


def _is_done(text: object) -> bool:
    """Return whether a short text only reports success, such as ``saved the file``."""
    return isinstance(text, str) and len(text) < 300 and _DONE.fullmatch(_split_words(text)) is not None


def _is_event(state: object) -> bool:
    """Return whether a state tells what was done to a thing ("download_started"); a single word may be the answer."""
    return isinstance(state, str) and len(_split_words(state).split()) > 1 and _is_done(state)


def _split_words(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]+", " ", text)


@ANSWERS.must(
    "answers.native",
    "A call shows nothing: no dialog, window, file chooser, share sheet, notification or download",
    source="docs/protocol.md 11.1",
    fix="ask the client with elicitation, take files as parameters, return content (printing is the signal for a PDF)",
)
def _judge_native(app: Evidence) -> Iterator[str]:
    if app.kind == "websocket":
        raise NotApplicable("windows of an app behind a WebSocket cannot be observed")
    for trial, call in app.require_calls():
        for effect in call.effects:
            if effect.kind in _NATIVE:
                yield f"{trial.name}: {effect.kind} {dict(effect.detail)}"
    for effect in app.effects_outside_calls:
        if effect.kind in _NATIVE:
            yield f"outside any call: {effect.kind} {dict(effect.detail)}"


@ANSWERS.must(
    "answers.clipboard",
    "A call leaves the clipboard alone",
    source="docs/protocol.md 11.1, 12.5",
    fix="return the content; the caller decides where it goes",
)
def _judge_clipboard(app: Evidence) -> Iterator[str]:
    if app.kind == "websocket":
        raise NotApplicable("the clipboard of an app behind a WebSocket cannot be observed")
    for trial, call in app.require_calls():
        for effect in call.effects:
            if effect.kind == "clipboard":
                yield f"{trial.name}: {dict(effect.detail)}"


@ANSWERS.should(
    "answers.size",
    "Content larger than 10 MB is a download",
    source="docs/protocol.md 9.12, 12.5",
    fix="return {downloadUrl, mimeType, size} instead",
)
def _judge_answer_size(app: Evidence) -> Iterator[str]:
    max_bytes = 10 << 20
    for trial, call in app.require_calls():
        for item in trial.contents:
            if item.size > max_bytes and "downloadUrl" not in item.node:
                yield f"{trial.name}: {item.place} has {item.size:,} bytes"
        if call.succeeded and not trial.contents:
            length = _json_bytes(call.fields.get("data"))
            if length > max_bytes:
                yield f"{trial.name} answered {length:,} bytes of JSON"


def _json_bytes(value: object) -> int:
    """Return 0 if the answer holds content, which other checks measure."""
    try:
        if find(value, heuristics=None):
            return 0
        return len(encode_json(value))
    except (ABPError, TypeError, ValueError):
        return 0


@ANSWERS.must(
    "answers.progress",
    "Progress names its call, and holds numbers",
    source="docs/protocol.md 4.4",
    fix="send {operationId: options.progressToken, progress, total} or a percentage from 0 to 100",
)
def _judge_progress(app: Evidence) -> Iterator[str]:
    calls = app.require_calls()
    if not any(call.progress for _, call in calls):
        raise NotApplicable("no call reported progress")
    for trial, call in calls:
        for payload in call.progress:
            yield from (f"{trial.name}: {fault}" for fault in _progress_faults(payload))


def _progress_faults(payload: object) -> Iterator[str]:
    fields = members_of(payload)
    if not isinstance(fields.get("operationId"), str):
        yield f"without operationId: {str(payload)[:80]}"
    for name in ("progress", "total", "percentage"):
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{name} is {value!r}, not a number"
        elif name == "percentage" and not 0 <= value <= 100:
            yield f"percentage is {value}"


# --- binary content ---------------------------------------------------------------------------------------------------


def _require_downloads(app: Evidence) -> list[tuple[str, ContentItem]]:
    downloads = [(name, item) for name, item in app.contents if isinstance(item.node.get("downloadUrl"), str)]
    if not downloads:
        raise NotApplicable("no answer held a downloadUrl")
    return downloads


def _errors(contents: list[tuple[str, ContentItem]]) -> Iterator[tuple[ABPError, str]]:
    for name, item in contents:
        if item.error is not None:
            yield item.error, f"{name}: {item.error.message}"


@BINARIES.must(
    "binary.taken",
    "Content can be read",
    source="docs/protocol.md 9.2, 9.4",
    fix="return an ArrayBuffer, typed array, Blob or base64 text that is whole",
)
def _judge_taken(app: Evidence) -> Iterator[str]:
    judged_elsewhere = SizeMismatch | BadEncoding | BadDescriptor | DownloadFailed
    for error, text in _errors(app.require_contents()):
        if not isinstance(error, judged_elsewhere):
            yield text


@BINARIES.must(
    "binary.size",
    "A declared size is the size of the content, in bytes",
    source="docs/protocol.md 9.9",
    fix="declare the length of the bytes, not of their base64, as a whole number",
)
def _judge_size(app: Evidence) -> Iterator[str]:
    for error, text in _errors(app.require_contents()):
        if isinstance(error, SizeMismatch | BadDescriptor):
            yield text


@BINARIES.should(
    "binary.size_given",
    "Content declares its size",
    source="docs/protocol.md 9.2",
    fix="add size, in bytes",
)
def _judge_size_given(app: Evidence) -> Iterator[str]:
    for name, item in app.require_contents():
        if "downloadUrl" not in item.node and _is_described(item) and item.node.get("size") is None:
            yield f"{name} has no size"


@BINARIES.must(
    "binary.reference_size",
    "A downloadUrl comes with the size of its file",
    source="docs/protocol.md 10.1",
    fix="add size, in bytes: without it a truncated file cannot be distinguished from a whole one",
)
def _judge_reference_size(app: Evidence) -> Iterator[str]:
    for name, item in _require_downloads(app):
        if item.node.get("size") is None:
            yield f"{name} is a downloadUrl without size"


@BINARIES.must(
    "binary.fields",
    "Content declares its mimeType, and text its encoding",
    source="docs/protocol.md 9.2",
    fix="add mimeType, and encoding: 'base64' or 'utf-8' where content is text",
)
def _judge_fields(app: Evidence) -> Iterator[str]:
    for name, item in app.require_contents():
        if not _is_described(item):
            continue
        if not isinstance(item.node.get("mimeType"), str):
            yield f"{name} has no mimeType"
        if isinstance(item.node.get("content"), str) and item.node.get("encoding") is None:
            yield f"{name} is text without encoding"


@BINARIES.must(
    "binary.encoding",
    "Base64 is valid",
    source="docs/protocol.md 9.8; RFC 4648 §3.5",
    fix="encode the bytes with a library; btoa(String.fromCharCode(...bytes)) breaks on large content",
)
def _judge_encoding(app: Evidence) -> Iterator[str]:
    yield from (text for error, text in _errors(app.require_contents()) if isinstance(error, BadEncoding))


@BINARIES.should(
    "binary.alphabet",
    "Base64 is in the standard alphabet, with its padding",
    source="docs/protocol.md 9.8; RFC 4648 §3.2, §4",
    fix="use + and / instead of - and _, and end with = as needed",
)
def _judge_alphabet(app: Evidence) -> Iterator[str]:
    for name, item in app.require_contents():
        if item.error is not None or item.binary is None:
            continue
        match item.binary.content:
            case Encoded(text=str(text), encoding="base64"):
                # Each 4 characters are 3 bytes.
                if len(text) % 4:
                    yield f"{name}: without padding"
                elif re.search("[-_]", text):
                    yield f"{name}: in the URL-safe alphabet"


@BINARIES.must(
    "binary.type",
    "Content is of the declared mimeType",
    source="docs/protocol.md 9.11",
    fix="declare the type that the content has",
)
def _judge_type(app: Evidence) -> Iterator[str]:
    for name, item in app.require_contents():
        declared = item.node.get("mimeType")
        sniffed = sniff(item.head)
        if isinstance(declared, str) and sniffed is not None and contradicts(declared, sniffed):
            yield f"{name} is declared {declared[:60]!r} and begins like {sniffed}"


@BINARIES.should(
    "binary.filename",
    "A suggested file name is a plain name",
    source="docs/protocol.md 9.2, 9.11",
    fix="suggest a name without folders and control characters, such as report.pdf",
)
def _judge_filename(app: Evidence) -> Iterator[str]:
    for name, item in app.require_contents():
        suggested = item.node.get("filename")
        if suggested is None:
            continue
        mime_type = item.node.get("mimeType")
        if not isinstance(mime_type, str):
            mime_type = None
        is_plain = False
        if suggested and isinstance(suggested, str):
            is_plain = suggested == safe_filename(suggested, fallback="", mime_type=mime_type)
        if not is_plain:
            yield f"{name}: {suggested!r:.80}"


@BINARIES.must(
    "binary.download",
    "A downloadUrl gives the whole file",
    source="docs/protocol.md 10.6",
    fix="serve the bytes that were declared, with 200 and a Content-Length, until expiresAt",
)
def _judge_whole_download(app: Evidence) -> Iterator[str]:
    for error, text in _errors(_require_downloads(app)):
        if isinstance(error, DownloadFailed) and not isinstance(error, UrlExpired):
            yield text


@BINARIES.must(
    "binary.expiry",
    "A downloadUrl has not expired when it is answered",
    source="docs/protocol.md 10.4",
    fix="set expiresAt to a time in the future, in milliseconds",
)
def _judge_expiry(app: Evidence) -> Iterator[str]:
    yield from (text for error, text in _errors(_require_downloads(app)) if isinstance(error, UrlExpired))


@BINARIES.should(
    "binary.lifetime",
    "A downloadUrl lives for an hour or more",
    source="docs/protocol.md 10.4",
    fix="set expiresAt to an hour from now or later, in milliseconds",
)
def _judge_lifetime(app: Evidence) -> Iterator[str]:
    an_hour = 3600 - 60  # less the time for an answer to arrive
    for name, item in _require_downloads(app):
        if item.expires_in is not None and 0 < item.expires_in < an_hour:
            yield f"{name} expires in {item.expires_in / 60:.0f} minutes"


@BINARIES.should(
    "binary.at_once",
    "A download is complete after one request",
    source="docs/protocol.md 10.6",
    fix="do not interrupt the download: not every client resumes it",
)
def _judge_at_once(app: Evidence) -> Iterator[str]:
    for name, item in _require_downloads(app):
        if item.error is None and item.attempts > 1:
            yield f"{name} took {item.attempts} requests"


@BINARIES.should(
    "binary.stays",
    "A download that needs credentials stays at its origin",
    source="docs/protocol.md 10.3",
    fix="sign the address that is redirected to, or serve the file where the credentials are checked",
)
def _judge_stays(app: Evidence) -> Iterator[str]:
    for name, item in _require_downloads(app):
        if item.left_origin:
            yield f"{name} is redirected to another origin, which gets no credentials"


def _is_described(item: ContentItem) -> bool:
    """Return whether the item is a descriptor or a reference. Other content has no fields of its own."""
    return "content" in item.node or "downloadUrl" in item.node
