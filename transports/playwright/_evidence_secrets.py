"""Secrets in evidence: in recorded bodies, in a HAR 1.2, and in a Playwright trace, whose network log has HAR entries.

Everything is cleaned twice. The first redactor removes what names mark as secret (passwords, tokens, cookies), and its
results are dropped; the second one also removes the values that the first has removed, wherever they stand. Unreadable
content is left out, as it may hold a secret.

A trace (``trace.zip``) has a log of JSON lines (``*.trace``), a log of requests (``*.network``), stacks, and
``resources/``: bodies and pictures of the page, to which both logs refer by name.
"""

from __future__ import annotations

import base64
import re
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote, unquote_plus

import msgspec

from .._internal.redaction import (
    FORM,
    REDACTED,
    EvidenceRedactor,
    Part,
    attribute_value,
    field_name,
    form_data_parts,
    multipart_parts,
    value_attributes,
    with_contents,
    without_entities,
)
from ..errors import ProtocolError
from ..protocol._strict_json import decode_json

#: Start of a text that can only be meant as JSON, even if the rest is broken.
_MEANT_AS_JSON = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*(?:[\[{\"]|-?\d[\d.eE+-]*\s*,))")
#: Line of a form that is sent as plain text (HTML 4.10.22.8).
_PLAIN_PAIR = re.compile(r"(?P<name>[^\s=&<>{}]{1,256})=(?P<value>[^\r]*)")
#: Start tag of XML, and an attribute in a tag.
_TAG = re.compile(r"<(?P<name>[\w.:-]{1,128})(?:\s[^<>]*)?>")
_ATTRIBUTE = re.compile(r"(?P<name>[\w.-]{1,64})(?P<equals>\s{0,8}=\s{0,8})(?P<value>\"[^\"]*\"|'[^']*')")
#: Start of a field in HTML.
_FIELD = re.compile(r"<(?:input|textarea|button|meta)[\s/>]", re.IGNORECASE)
#: Prefix that services write before JSON, so that it cannot be loaded as a script.
_GUARD = re.compile(r"\s*\)\]\}',?[^\S\n]*\n?")
#: Opcode of a text frame of a WebSocket (RFC 6455 11.8).
TEXT_FRAME = 1
#: Keys of a HAR whose values are not content of the app.
_STRUCTURE = frozenset(("mimeType", "encoding", "httpVersion", "method", "startedDateTime", "serverIPAddress"))
_FRAMES = "_webSocketMessages"
#: Actions that type, in lower case.
_TYPING = frozenset(("fill", "type", "press", "presssequentially", "inserttext", "keyboardtype", "keyboardpress",
                     "keyboarddown", "keyboardup", "keyboardinserttext"))  # fmt: skip
_TYPED_LOG = re.compile(
    r"(?P<head>\s*(?:elementHandle\.|locator\.)?(?:fill|type|press|pressSequentially|insertText)\().*", re.DOTALL
)
_LOGS = (".trace", ".network", ".stacks")


def is_textual(mime_type: str) -> bool:
    """Return whether content of a type is text that can be read, and so redacted."""
    textual = ("json", "x-www-form-urlencoded", "multipart/", "text/", "xml", "javascript", "graphql")
    return any(part in mime_type for part in textual)


def body_text(data: bytes, mime_type: str) -> str | None:
    """Return the text of a body, or ``None`` if it is binary, compressed, or in another charset than declared."""
    try:
        text = data.decode(_charset_of(mime_type))
    except (LookupError, ValueError):
        return None
    return None if "\0" in text else text


def _charset_of(mime_type: str) -> str:
    if "multipart/" in mime_type:
        # Latin-1 keeps every byte, so that binary parts survive.
        return "latin-1"
    match = re.search(r"charset=[\"']?([\w.:-]{1,40})", mime_type)
    if match is not None:
        return match[1]
    return "utf-8"


def clean_body(text: str, mime_type: str, redactor: EvidenceRedactor, depth: int = 0) -> str:
    """Return a body without its secrets. Parts that cannot be parsed as their type are masked whole: JSON that is too
    deep, broken or has an invalid number, and parts of a form without a name. ``depth`` counts the bodies around this
    one."""
    max_depth = 8
    if depth > max_depth:
        return REDACTED

    value = _parse_json(text, mime_type)
    if value is not None:
        return _clean_json(value, redactor, depth)
    if "x-www-form-urlencoded" in mime_type:
        return redactor.redact_pairs(_clean_form(text, redactor, depth))
    if "multipart/" in mime_type or (_is_untyped(mime_type) and form_data_parts(text)):
        return redactor.redact_text(_clean_parts(text, redactor, depth))

    # The fields of a form are remembered, whatever its type; how it is cleaned depends on the type.
    redactor.redact_form(text)
    if "graphql" in mime_type:
        return redactor.redact_pairs(text)
    if "xml" in mime_type:
        text = redactor.redact_html(_clean_xml(text, redactor))
    elif "html" in mime_type:
        text = redactor.redact_html(text)
    elif _is_untyped(mime_type):
        redactor.redact_html(text)
        text = redactor.redact_form("\n".join(_clean_plain_line(line, redactor) for line in text.split("\n")))
    return redactor.redact_text(_clean_lines(text, "json" in mime_type, redactor, depth))


def _mask_whole(text: str, redactor: EvidenceRedactor, depth: int) -> str:
    """Return the replacement of a whole text. Secrets in the text that names mark as such are remembered."""
    redactor.redact_tree(text)
    for line in text.split("\n"):
        _, rest = _split_before_json(line)
        value = _parse_json(rest)
        if value is not None:
            _clean_json(value, redactor, depth)
    return REDACTED


def _clean_json(value: object, redactor: EvidenceRedactor, depth: int) -> str:
    try:
        return msgspec.json.encode(redactor.redact_tree(_clean_texts_in(value, redactor, depth))).decode()
    except RecursionError:
        return REDACTED


def _clean_texts_in(node: object, redactor: EvidenceRedactor, depth: int) -> object:
    match node:
        case str():
            return _clean_nested_text(node, redactor, depth)
        case dict():
            clean_node = {}
            for key, value in node.items():
                # Secret texts will be replaced, and must be remembered as they are.
                is_secret_text = isinstance(value, str) and redactor.is_secret(key)
                clean_node[key] = value if is_secret_text else _clean_texts_in(value, redactor, depth)
            return clean_node
        case list():
            return [_clean_texts_in(value, redactor, depth) for value in node]
        case _:
            return node


def _clean_nested_text(text: str, redactor: EvidenceRedactor, depth: int) -> str:
    """Clean a text inside JSON, which may itself be JSON, a form, HTML or GraphQL."""
    if _MEANT_AS_JSON.match(text) or _parse_json(text) is not None:
        return clean_body(text, "", redactor, depth + 1)
    if FORM.fullmatch(text):
        return _clean_form(text, redactor, depth + 1)
    if form_data_parts(text):
        return _clean_parts(text, redactor, depth + 1)
    if _FIELD.search(text):
        return redactor.redact_html(text)
    if re.match(r"\s*(?:(?:query|mutation|subscription)\b|\{\s*\w)", text):  # GraphQL
        return redactor.redact_pairs(text)
    return text


def _clean_form(text: str, redactor: EvidenceRedactor, depth: int) -> str:
    return "&".join(_clean_form_pair(pair, redactor, depth) for pair in text.split("&"))


def _clean_form_pair(pair: str, redactor: EvidenceRedactor, depth: int) -> str:
    name, equals, value = pair.partition("=")
    if equals and redactor.is_secret(name):
        return f"{name}={redactor.replacement_for(value)}"

    plain_value = unquote_plus(value)
    if not _MEANT_AS_JSON.match(plain_value):
        return pair
    cleaned_value = clean_body(plain_value, "", redactor, depth + 1)
    return f"{name}={quote(cleaned_value)}"


def _clean_lines(text: str, only_json: bool, redactor: EvidenceRedactor, depth: int) -> str:
    """Clean lines of JSON. After the first unreadable line nothing is kept: a secret may continue in the next line."""
    lines = text.split("\n")
    first_line = next((line for line in lines if line.strip()), "")
    if _MEANT_AS_JSON.match(text) and not _is_json(first_line):
        return _mask_whole(text, redactor, depth)

    clean_lines: list[str] = []
    for number, line in enumerate(lines):
        head, rest = _split_before_json(line)
        value = _parse_json(rest)
        if value is not None:
            # Encode even an unchanged value again: of a duplicate key only the last value was read, and an earlier
            # value may be a secret.
            clean_lines.append(head + _clean_json(value, redactor, depth))
            continue

        must_be_json = only_json and bool(rest.strip())
        if _MEANT_AS_JSON.match(rest) or (must_be_json and not _is_json(rest)):
            unreadable = "\n".join([rest, *lines[number + 1 :]])
            return "\n".join([*clean_lines, head + _mask_whole(unreadable, redactor, depth)])
        clean_lines.append(line)
    return "\n".join(clean_lines)


def _clean_parts(text: str, redactor: EvidenceRedactor, depth: int) -> str:
    parts = multipart_parts(text)
    if parts is None:
        return _mask_whole(text, redactor, depth)
    return with_contents(text, parts, [_clean_part(part, redactor, depth) for part in parts])


def _clean_part(part: Part, redactor: EvidenceRedactor, depth: int) -> str:
    """Clean a part of a form. It is masked whole if it is encoded, has a secret name, or is a field without a name."""
    headers = part.headers()
    name = field_name(headers)
    if redactor.is_secret(name or ""):
        return redactor.replacement_for(part.content)

    content_type = headers.get_content_type() if "Content-Type" in headers else ""
    clean_content = clean_body(part.content, content_type, redactor, depth + 1)
    transfer_encoding = headers.get("Content-Transfer-Encoding", "7bit").strip().lower()
    is_nameless_field = name is None and "form-data" in part.head.lower()
    if is_nameless_field or transfer_encoding not in ("7bit", "8bit", "binary"):
        return REDACTED
    return clean_content


def _is_untyped(mime_type: str) -> bool:
    return mime_type.partition(";")[0].strip() in ("", "text/plain", "application/octet-stream")


def _clean_plain_line(line: str, redactor: EvidenceRedactor) -> str:
    pair = _PLAIN_PAIR.match(line)
    if pair is None or not redactor.is_secret(pair["name"]):
        return line
    return f"{pair['name']}={redactor.replacement_for(pair['value'])}{line[pair.end() :]}"


def _clean_xml(text: str, redactor: EvidenceRedactor) -> str:
    """Clean XML. It is masked whole if it declares entities, which can stand for anything."""
    if "<!ENTITY" in text:
        return _mask_whole(text, redactor, 0)

    def clean_attribute(attribute: re.Match[str]) -> str:
        if not redactor.is_secret(attribute["name"]):
            return attribute[0]
        replacement = redactor.replacement_for(attribute_value(attribute["value"]))
        return f'{attribute["name"]}{attribute["equals"]}"{replacement}"'

    pieces: list[str] = []
    position = 0
    for tag in _TAG.finditer(text):
        is_inside_redacted_element = tag.start() < position
        if is_inside_redacted_element:
            continue
        pieces.append(text[position : tag.start()])
        pieces.append(_ATTRIBUTE.sub(clean_attribute, tag[0]))
        position = tag.end()

        name = tag["name"]
        name_without_prefix = name.rpartition(":")[2]
        has_content = not tag[0].endswith("/>")
        if has_content and redactor.is_secret(name_without_prefix):
            end = text.find(f"</{name}", position)
            # An element without an end tag reaches to the end of the text.
            if end < 0:
                end = len(text)
            pieces.append(redactor.replacement_for(without_entities(text[position:end])))
            position = end
    pieces.append(text[position:])
    return "".join(pieces)


def _split_before_json(line: str) -> tuple[str, str]:
    """Split a line of NDJSON, or of an event stream (``data: …``), into what stands before its JSON, and the rest."""
    rest = line.removeprefix("data:").lstrip()
    return line[: len(line) - len(rest)], rest


def walk_values(node: object) -> Iterator[object]:
    waiting = [node]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def decode_base64_or_none(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except ProtocolError:
        return False
    return True


def _parse_json(text: str, mime_type: str = "") -> Mapping[str, object] | list[object] | None:
    """Return the list or object in a text that is declared as JSON or looks like it; ``None`` for any other text."""
    first_character = text[:64].lstrip()[:1]
    # The guard of a service begins with a closing parenthesis.
    if "json" not in mime_type and first_character not in ("{", "[", ")"):
        return None
    guard = _GUARD.match(text)
    if guard is not None:
        text = text[guard.end() :]

    try:
        value = decode_json(text)
    except ProtocolError:
        return None
    if isinstance(value, dict | list):
        return value
    return None


def clean_har(data: bytes, redactor: EvidenceRedactor) -> bytes:
    """Return a HAR without its secrets. Raises :class:`ValueError` if the data is not a HAR."""
    match msgspec.json.decode(data):
        case {"log": {"entries": list(entries)} as log}:
            cleaned_log = redactor.redact_tree({key: value for key, value in log.items() if key != "entries"})
            assert isinstance(cleaned_log, dict)
            cleaned_log["entries"] = [clean_entry(entry, redactor) for entry in entries]
            return msgspec.json.encode({"log": cleaned_log})
    raise ValueError("the file of the browser's driver is not a HAR")


def clean_entry(entry: object, redactor: EvidenceRedactor) -> object:
    if isinstance(entry, dict):
        entry = dict(entry)
        for name in ("request", "response"):
            if isinstance(entry.get(name), dict):
                entry[name] = _clean_side(entry[name], redactor)
        if isinstance(entry.get(_FRAMES), list):
            entry[_FRAMES] = clean_frames(entry[_FRAMES], redactor)
    return redactor.redact_tree(entry, _STRUCTURE.__contains__)


def _clean_side(side: dict[str, Any], redactor: EvidenceRedactor) -> dict[str, Any]:
    side = dict(side)
    query = side.get("queryString")
    if isinstance(query, list):
        side["queryString"] = [_clean_query_pair(pair, redactor) for pair in query]
    for key in ("postData", "content"):
        body = side.get(key)
        if isinstance(body, dict):
            side[key] = _clean_har_body(body, redactor)
    return side


def _clean_query_pair(pair: object, redactor: EvidenceRedactor) -> object:
    """Mask the value of a pair, such as a signature, if it would be masked in the query of an address."""
    if not isinstance(pair, dict) or not pair.get("name") or not pair.get("value"):
        return pair
    query = f"?{pair['name']}={pair['value']}"
    if redactor.redact_text(query) == query:
        return pair
    return {**pair, "value": REDACTED}


def _clean_har_body(body: dict[str, Any], redactor: EvidenceRedactor) -> dict[str, Any]:
    """Clean a body. Content that cannot be searched for secrets is left out."""
    mime_type = str(body.get("mimeType", "")).lower()
    if isinstance(body.get("params"), list):
        body = {**body, "params": redactor.redact_tree(body["params"])}

    text = body.get("text")
    if not isinstance(text, str):
        return body
    if body.get("encoding") == "base64":
        return _clean_encoded_body(body, text, mime_type, redactor)
    return {**body, "text": clean_body(text, mime_type, redactor)}


def _clean_encoded_body(body: dict[str, Any], text: str, mime_type: str, redactor: EvidenceRedactor) -> dict[str, Any]:
    data = decode_base64_or_none(text)
    clean_data = None if data is None else _clean_bytes(data, mime_type, redactor)
    if clean_data is None:
        return {**body, "text": "", "encoding": None, "comment": "left out: it may hold a secret"}
    if clean_data == data:
        return body
    return {**body, "text": clean_data.decode(), "encoding": None}


def _clean_bytes(data: bytes, mime_type: str, redactor: EvidenceRedactor) -> bytes | None:
    """Return cleaned content, or ``None`` for text that cannot be decoded and for binary content that has a secret or
    is compressed."""
    text = body_text(data, mime_type)
    if text is not None:
        clean_text = clean_body(text, mime_type, redactor)
        return data if clean_text == text else clean_text.encode()

    gzip, zstandard = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
    if is_textual(mime_type) or data.startswith((gzip, zstandard)) or redactor.known.any_in(data):
        return None
    # Clean content that may be text in an unknown charset, only to learn whether that redacts anything.
    text = data.decode(errors="replace")
    may_be_text = b"\0" not in data[:4096]
    if may_be_text and REDACTED in clean_body(text, "", redactor) and REDACTED not in text:
        return None
    return data


def _bodies(entry: object) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the bodies of a logged request and its response, each with its MIME type."""
    for name in ("request", "response"):
        side = entry.get(name) if isinstance(entry, dict) else None
        if not isinstance(side, dict):
            continue
        body = side.get("postData") or side.get("content")
        if isinstance(body, dict):
            yield body, str(body.get("mimeType", "")).lower()


def clean_frames(frames: Sequence[object], redactor: EvidenceRedactor) -> list[object]:
    """Clean the texts of each direction together: a secret may be split over consecutive frames."""
    positions_by_direction: defaultdict[str, list[int]] = defaultdict(list)
    for position, frame in enumerate(frames):
        if _is_text_frame(frame):
            positions_by_direction[str(frame.get("type"))].append(position)

    masked_frames: list[Any] = [dict(frame) if isinstance(frame, dict) else frame for frame in frames]
    for positions in positions_by_direction.values():
        texts = [masked_frames[position]["data"] for position in positions]
        for position, text in zip(positions, redactor.known.mask_texts(texts), strict=True):
            masked_frames[position]["data"] = text
    return [_clean_frame(frame, redactor) for frame in masked_frames]


def _is_text_frame(frame: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(frame, dict) and frame.get("opcode") == TEXT_FRAME and isinstance(frame.get("data"), str)


def _clean_frame(frame: object, redactor: EvidenceRedactor) -> object:
    if not isinstance(frame, dict) or not isinstance(frame.get("data"), str):
        return frame
    if frame.get("opcode") == TEXT_FRAME:
        return {**frame, "data": clean_body(frame["data"], "", redactor)}

    content = decode_base64_or_none(frame["data"]) or b""
    clean_content = _clean_bytes(content, "", redactor)
    if clean_content == content:
        return frame
    return {**frame, "data": base64.b64encode(clean_content or b"").decode()}


#: Keys of a trace's log that its viewer needs; their values are not content of the app.
_TRACE_STRUCTURE = frozenset((
    "type", "class", "method", "callId", "parentId", "pageId", "frameId", "contextId", "guid", "sha1", "_sha1", "_file",
    "file", "snapshotName", "beforeSnapshot", "afterSnapshot", "inputSnapshot", "mimeType", "_frameref",
    "_monotonicTime",
))  # fmt: skip


def clean_trace(path: Path, redactor: EvidenceRedactor) -> Iterator[tuple[str, bytes]]:
    """Yield the names and the cleaned contents of a trace's files. Text that cannot be read, and binary content with a
    secret, become empty.

    Raises :class:`ValueError` for a trace that is too large, and :class:`zipfile.BadZipFile` for another file."""
    with zipfile.ZipFile(path) as archive:
        _check_sizes(archive)
        types = _resource_types(archive)
        for name, data in _read_files(archive):
            if name.endswith(_LOGS):
                events = list(read_lines(data))
                _clean_console(events, redactor)
                data = _encode_lines(clean_event(event, redactor) for event in events)
            elif name.endswith(".jsonl"):
                data = _encode_lines(clean_frames(list(read_lines(data)), redactor))
            else:
                for mime_type in types.get(Path(name).name, [""]):  # a file that no request names has no type
                    data = _clean_bytes(data, mime_type, redactor) or b""
            yield name, data


def _encode_lines(values: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


def _clean_console(events: Sequence[object], redactor: EvidenceRedactor) -> None:
    """Clean messages of the console in place. A secret may continue in the next message."""
    messages = [event for event in events if isinstance(event, dict) and event.get("type") == "console"]
    first_arguments = [_first_item(message.get("args")) for message in messages]

    _clean_together(messages, "text", redactor)
    _clean_together(first_arguments, "preview", redactor)
    _clean_together(first_arguments, "value", redactor)

    for node in walk_values(messages):
        for key in ("text", "preview", "value"):
            if _holds_text(node, key):
                node[key] = redactor.redact_line(node[key])


def _clean_together(nodes: Sequence[object], key: str, redactor: EvidenceRedactor) -> None:
    """Mask the texts under ``key`` in place. A secret may be split over consecutive texts."""
    holders = [node for node in nodes if _holds_text(node, key)]
    pieces = redactor.known.mask_texts([holder[key] for holder in holders])
    for holder, piece in zip(holders, pieces, strict=True):
        holder[key] = piece


def _holds_text(node: object, key: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(node, dict) and isinstance(node.get(key), str)


def _first_item(items: object) -> object:
    return items[0] if isinstance(items, list) and items else None


def _check_sizes(archive: zipfile.ZipFile) -> None:
    max_file = 16 << 20
    max_total = 256 << 20
    sizes = [info.file_size for info in archive.infolist()]
    if max(sizes, default=0) > max_file or sum(sizes) > max_total:
        raise ValueError(f"it has {sum(sizes):,} bytes, too many to search for secrets")


def _read_files(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    time_limit = 20
    deadline = time.monotonic() + time_limit
    for info in archive.infolist():
        if time.monotonic() > deadline:
            raise ValueError(f"the search for secrets takes more than {time_limit} s")
        yield info.filename, archive.read(info)


def read_lines(data: bytes) -> Iterator[Any]:
    """Yield the events of a log of JSON lines. Unreadable events, such as trees that are too deep, are left out."""
    for line in data.splitlines():
        try:
            yield decode_json(line)
        except ProtocolError:
            continue


def _resource_types(archive: zipfile.ZipFile) -> dict[str, list[str]]:
    """Return the MIME types of each file by its name. Equal bodies that were sent with several types are one file."""
    types: dict[str, list[str]] = {}
    for entry in _logged_requests(archive):
        for body, mime_type in _bodies(entry):
            path = body.get("_file", body.get("_sha1"))
            if isinstance(path, str):
                types_of_file = types.setdefault(Path(path).name, [])
                if mime_type not in types_of_file:
                    types_of_file.append(mime_type)
    return types


def _logged_requests(archive: zipfile.ZipFile) -> Iterator[object]:
    for info in archive.infolist():
        if info.filename.endswith(".network"):
            for event in read_lines(archive.read(info)):
                if isinstance(event, dict):
                    yield event.get("snapshot")


def clean_event(event: object, redactor: EvidenceRedactor) -> object:
    """Return an event of a trace without its secrets; an empty one if it is too deep. Fields are changed in place."""
    try:
        if isinstance(event, dict) and event.get("type") == "resource-snapshot":
            return {**event, "snapshot": clean_entry(event.get("snapshot"), redactor)}

        for attributes, value_names in _secret_fields(event, redactor):
            attributes.update(
                {name: redactor.replacement_for(attributes[name]) for name in value_names if attributes.get(name)}
            )

        clean_tree = _clean_texts_in(event, redactor, 0)
        is_snapshot = isinstance(event, dict) and event.get("type") == "frame-snapshot"
        # The texts of a snapshot stay as the page showed them; secrets in them are only remembered.
        tree = event if is_snapshot else clean_tree
        return _without_typed(redactor.redact_tree(tree, _TRACE_STRUCTURE.__contains__))
    except RecursionError:
        return {}


def _without_typed(event: Any) -> object:
    """Mask the text that an action typed: the field is unknown, and may be a password field."""
    match event:
        case {"type": "before", "method": str(method), "params": dict(params)} if method.lower() in _TYPING:
            typed = {key: REDACTED for key in ("value", "text", "key") if isinstance(params.get(key), str)}
            redacted_event = {**event, "params": params | typed}
            if "title" in event:
                redacted_event["title"] = method
            return redacted_event
        case {"type": "log", "message": str(message)}:
            typing = _TYPED_LOG.match(message)
            if typing is not None:
                return {**event, "message": typing["head"] + REDACTED}
    return event


def _secret_fields(event: object, redactor: EvidenceRedactor) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the attributes of each field for a secret, and the names of those that hold the value. In a snapshot, an
    element is a list of its name, its attributes and its children."""
    for node in walk_values(event):
        match node:
            case [str() as element, dict() as attributes, *_]:
                value_names = value_attributes(element)
                if not value_names:
                    continue
                texts = {key.lower(): value for key, value in attributes.items() if isinstance(value, str)}
                if redactor.is_secret_field(texts):
                    yield attributes, [key for key in attributes if key.lower() in value_names]
