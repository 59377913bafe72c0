"""Playwright's ``trace.zip`` without secrets: its log, its network entries, its snapshots and the files in it.

The trace is a log of JSON lines (``*.trace``), a log of requests (``*.network``), stacks, and ``resources/``, to which
both logs refer by name: bodies of requests and responses, and pictures of the page.
"""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.redaction import REDACTED
from ...protocol.secret_values import SecretValues
from .bodies import clean_body, is_textual, learn_body, learn_json, text_in, walk
from .har import clean_entry, clean_frames, learn_entry, sides

__all__ = ["clean_event", "clean_trace", "learn_event", "learn_trace", "read_lines"]

#: Bytes of one file in a trace, unpacked, and of all of them.
_MAX_FILE, _MAX_ALL = 16 << 20, 256 << 20
#: Seconds for one search of all files.
_SECONDS = 20.0
#: Keys of a log by which the viewer finds its way; their values are no texts of the app.
_STRUCTURE = frozenset(
    [
        "type",
        "class",
        "method",
        "callId",
        "parentId",
        "pageId",
        "frameId",
        "contextId",
        "guid",
        "sha1",
        "_sha1",
        "file",
        "snapshotName",
        "beforeSnapshot",
        "afterSnapshot",
        "inputSnapshot",
        "mimeType",
        "_frameref",
        "_monotonicTime",
    ]
)
#: Actions that type, in lower case, and their parameters with what is typed.
_TYPING = frozenset(("fill", "type", "press", "presssequentially", "inserttext", "keyboardtype", "keyboardpress",
                     "keyboarddown", "keyboardup", "keyboardinserttext"))  # fmt: skip
_TYPED = ("value", "text", "key")
_TYPED_LOG = re.compile(
    r"(\s*(?:elementHandle\.|locator\.)?(?:fill|type|press|pressSequentially|insertText)\().*", re.DOTALL
)
_LOGS = (".trace", ".network", ".stacks")
#: What the trace's snapshots call the value that a field has, in the place of the one that it began with.
_VALUES = ("value", "__playwright_value_")


def learn_trace(path: Path, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what a trace holds. Raises :class:`ValueError` for a file that is none or is too large."""
    with zipfile.ZipFile(path) as archive:
        _check(archive)
        types = _mime_types(archive)
        for name, data in _files(archive):
            if name.endswith(_LOGS):
                for event in read_lines(data):
                    learn_event(event, secrets)
            elif (text := text_in(data, kind := types.get(Path(name).name, ""))) is not None:
                learn_body(text, kind, secrets)


def clean_trace(path: Path, target: Path, secrets: SecretValues) -> None:
    """Write a trace without its secrets to ``target``. A binary file that holds one is left empty."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        types = _mime_types(archive)
        for name, data in _files(archive):
            if name.endswith(_LOGS):
                events = list(read_lines(data))
                _clean_console(events, secrets)
                data = _lines(clean_event(event, secrets) for event in events)
            elif name.endswith(".jsonl"):
                data = _lines(clean_frames(list(read_lines(data)), secrets))
            else:
                data = _cleaned_file(data, types.get(Path(name).name, ""), secrets)
            out.writestr(name, data)


def _cleaned_file(data: bytes, mime_type: str, secrets: SecretValues) -> bytes:
    """A body or a picture without secrets; nothing of a text that cannot be read, and of binary content with one."""
    text = text_in(data, mime_type) if is_textual(mime_type) else _text(data)
    if text is not None:
        return clean_body(text, mime_type, secrets).encode()
    return b"" if is_textual(mime_type) or secrets.holds_any(data) else data


def _lines(values: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in values)


def _clean_console(events: Sequence[object], secrets: SecretValues) -> None:
    """Remove values that go on in the next line of the console, in place."""
    said = [one for one in events if isinstance(one, dict) and one.get("type") == "console"]
    first = [_first_of(one.get("args")) for one in said]
    for holder, key in ((said, "text"), (first, "preview"), (first, "value")):
        holding = [one for one in holder if isinstance(one, dict) and isinstance(one.get(key), str)]
        for one, text in zip(holding, secrets.pieces([one[key] for one in holding]), strict=True):
            one[key] = text


def _first_of(items: object) -> object:
    return items[0] if isinstance(items, list) and items else None


def _check(archive: zipfile.ZipFile) -> None:
    sizes = [info.file_size for info in archive.infolist()]
    if any(size > _MAX_FILE for size in sizes) or sum(sizes) > _MAX_ALL:
        raise ValueError(f"it has {sum(sizes):,} bytes, more than can be looked through for secrets")


def _files(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """The names and contents of all files, for as long as there is time. Raises :class:`ValueError` after that."""
    until = time.monotonic() + _SECONDS
    for info in archive.infolist():
        if time.monotonic() > until:
            raise ValueError(f"to look through it for secrets takes more than {_SECONDS:.0f} s")
        yield info.filename, archive.read(info)


def read_lines(data: bytes) -> Iterator[Any]:
    """The events of a log. What cannot be read, such as a tree that is too deep, cannot be cleaned: it is left out."""
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line)
        except (ValueError, RecursionError):
            continue


def _text(data: bytes) -> str | None:
    if b"\0" in data[:4096]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _mime_types(archive: zipfile.ZipFile) -> dict[str, str]:
    """The MIME types of the files in ``resources/``, as the network log has them."""
    types: dict[str, str] = {}
    for info in archive.infolist():
        for event in read_lines(archive.read(info)) if info.filename.endswith(".network") else ():
            for side in sides(event.get("snapshot") if isinstance(event, dict) else None):
                body = side.get("postData") or side.get("content")
                if isinstance(body, dict) and isinstance(name := body.get("_sha1"), str):
                    types[name] = str(body.get("mimeType", "")).lower()
    return types


def learn_event(event: object, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what one event of a log holds."""
    try:
        if isinstance(event, dict) and event.get("type") == "resource-snapshot":
            learn_entry(event.get("snapshot"), secrets)
            return
        learn_json(event, secrets)
        for attributes in _secret_fields(event, secrets):
            for name in _VALUES:
                secrets.learn_value(str(attributes.get(name, "")))
    except RecursionError:
        return


def clean_event(event: object, secrets: SecretValues) -> object:
    """Return one event of a log without secrets."""
    try:
        if isinstance(event, dict) and event.get("type") == "resource-snapshot":
            return {**event, "snapshot": clean_entry(event.get("snapshot"), secrets)}
        for attributes in _secret_fields(event, secrets):
            attributes.update({name: REDACTED for name in _VALUES if attributes.get(name)})
        return secrets.tree(_without_typed(event), _STRUCTURE.__contains__)
    except RecursionError:
        return {}


def _without_typed(event: Any) -> object:
    """Return an event without what was typed: keys one by one say nothing of their field, which may be for a
    password."""
    match event:
        case {"type": "before", "method": str(method), "params": dict(params)} if method.lower() in _TYPING:
            typed = {key: REDACTED for key in _TYPED if isinstance(params.get(key), str)}
            return {**event, "params": params | typed, **({"title": method} if "title" in event else {})}
        case {"type": "log", "message": str(message)} if (said := _TYPED_LOG.match(message)) is not None:
            return {**event, "message": said[1] + REDACTED}
    return event


def _secret_fields(event: object, secrets: SecretValues) -> Iterator[dict[str, Any]]:
    """The attributes of a snapshot's fields for secrets. An element is a list: name, attributes, children."""
    for node in walk(event):
        match node:
            case [str() as name, dict() as attributes, *_] if name.upper() == "INPUT":
                if secrets.is_secret_field({key: value for key, value in attributes.items() if isinstance(value, str)}):
                    yield attributes
