"""HAR 1.2 without secrets: addresses, headers, cookies, queries, bodies. A trace's network log has such entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.redaction import REDACTED, Redactor
from ...protocol.secret_values import SecretValues
from .bodies import TEXT_FRAME, clean_body, decoded, is_textual, learn_body, learn_json, text_in, text_of

__all__ = ["clean_entry", "clean_frames", "clean_har", "learn_entry", "learn_har", "sides"]

_REDACTOR = Redactor()
#: Keys whose values are no texts of the app.
_STRUCTURE = frozenset(("mimeType", "encoding", "httpVersion", "method", "startedDateTime", "serverIPAddress"))

#: Beginnings of content that is compressed (gzip, Zstandard), in which nothing can be looked for.
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_FRAMES = "_webSocketMessages"


def learn_har(path: Path, secrets: SecretValues) -> dict[str, Any]:
    """Return the HAR in a file, whose secrets are learned. Raises :class:`ValueError` for a file that is none."""
    har = msgspec.json.decode(path.read_bytes())
    if (
        not isinstance(har, dict)
        or not isinstance(har.get("log"), dict)
        or not isinstance(har["log"].get("entries"), list)
    ):
        raise ValueError("the browser's driver wrote no HAR")
    for entry in har["log"]["entries"]:
        learn_entry(entry, secrets)
    return har


def clean_har(har: dict[str, Any], path: Path, secrets: SecretValues) -> None:
    """Write a HAR without its secrets to ``path``."""
    log = har["log"]
    rest = secrets.tree({key: value for key, value in log.items() if key != "entries"})
    entries = [clean_entry(entry, secrets) for entry in log["entries"]]
    assert isinstance(rest, dict)
    path.write_bytes(msgspec.json.encode({"log": rest | {"entries": entries}}))


def learn_entry(entry: object, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what one request and its response hold. Raises :class:`RecursionError` as
    :meth:`SecretValues.tree`."""
    for side in sides(entry):
        secrets.learn({key: value for key, value in side.items() if key != "cookies"})
        for cookie in side.get("cookies") or ():
            if isinstance(cookie, dict):
                secrets.learn_value(str(cookie.get("value", "")))
    for text, mime_type in _bodies(entry):
        learn_body(text, mime_type, secrets)
    learn_json(_frames(entry), secrets)


def clean_entry(entry: object, secrets: SecretValues) -> object:
    """Return one request and its response without secrets. Raises :class:`RecursionError` as
    :meth:`SecretValues.tree`."""
    if isinstance(entry, dict):
        entry = {key: _cleaned_side(value, secrets) if key in ("request", "response") else value
                 for key, value in entry.items()}  # fmt: skip
        if frames := _frames(entry):
            entry[_FRAMES] = clean_frames(frames, secrets)
    return secrets.tree(entry, _STRUCTURE.__contains__)


def _cleaned_side(side: object, secrets: SecretValues) -> object:
    if not isinstance(side, dict):
        return side
    side = dict(side)
    if isinstance(query := side.get("queryString"), list):
        side["queryString"] = [_cleaned_pair(pair) for pair in query]
    for key in ("postData", "content"):
        if isinstance(body := side.get(key), dict):
            side[key] = _cleaned_body(body, secrets)
    return side


def _cleaned_pair(pair: object) -> object:
    """A pair of a query, where a signature is as secret as a password."""
    if isinstance(pair, dict) and (name := pair.get("name")) and (value := pair.get("value")):
        asked = f"?{name}={value}"
        return pair if _REDACTOR.text(asked) == asked else {**pair, "value": REDACTED}
    return pair


def _cleaned_body(body: dict[str, Any], secrets: SecretValues) -> dict[str, Any]:
    mime_type = str(body.get("mimeType", "")).lower()
    if isinstance(body.get("params"), list):
        body = {**body, "params": secrets.tree(body["params"])}
    if not isinstance(text := body.get("text"), str):
        return body
    if body.get("encoding") != "base64":
        return {**body, "text": clean_body(text, mime_type, secrets)}
    data = decoded(text)
    plain = None if data is None else text_in(data, mime_type)
    if plain is not None and (cleaned := clean_body(plain, mime_type, secrets)) != plain and is_textual(mime_type):
        return {**body, "text": cleaned, "encoding": None}
    if data is None or (plain is None and is_textual(mime_type)) or data.startswith(_PACKED) or secrets.holds_any(data):
        return {**body, "text": "", "encoding": None, "comment": "left out: it may hold a secret"}
    return body


def _bodies(entry: object) -> Iterator[tuple[str, str]]:
    for side in sides(entry):
        body = side.get("postData") or side.get("content")
        if isinstance(body, dict) and isinstance(text := body.get("text"), str):
            mime_type = str(body.get("mimeType", "")).lower()
            plain = text_in(decoded(text) or b"", mime_type) if body.get("encoding") == "base64" else text
            if plain is not None:
                yield plain, mime_type


def _frames(entry: object) -> list[object]:
    """What a WebSocket sent and received, which the browser's driver adds to its entry."""
    frames = entry.get(_FRAMES) if isinstance(entry, dict) else None
    return frames if isinstance(frames, list) else []


def clean_frames(frames: Sequence[object], secrets: SecretValues) -> list[object]:
    """Return the frames of a WebSocket without secrets, also without one that goes on in the next of its direction."""
    cleaned = list(frames)
    ways: dict[object, list[int]] = {}
    for index, frame in enumerate(frames):
        if isinstance(frame, dict) and frame.get("opcode") == TEXT_FRAME and isinstance(frame.get("data"), str):
            ways.setdefault(str(frame.get("type")), []).append(index)
    for way in ways.values():
        for index, data in zip(way, secrets.pieces([cleaned[at]["data"] for at in way]), strict=True):  # type: ignore[index]
            cleaned[index] = {**cleaned[index], "data": data}  # type: ignore[dict-item]
    return [_cleaned_frame(frame, secrets) for frame in cleaned]


def _cleaned_frame(frame: object, secrets: SecretValues) -> object:
    if not isinstance(frame, dict) or not isinstance(data := frame.get("data"), str):
        return frame
    if frame.get("opcode") == TEXT_FRAME:
        return {**frame, "data": clean_body(data, "", secrets)}
    content = decoded(data) or b""
    plain = text_of(content) or ""
    hidden = secrets.holds_any(content) or (REDACTED in clean_body(plain, "", secrets) and REDACTED not in plain)
    return {**frame, "data": ""} if hidden else frame


def sides(entry: object) -> Iterator[dict[str, Any]]:
    """The request and the response of an entry."""
    for name in ("request", "response"):
        if isinstance(entry, dict) and isinstance(side := entry.get(name), dict):
            yield side
