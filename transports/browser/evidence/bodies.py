"""Bodies of requests and responses without secrets, by their MIME type."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping

import msgspec

from ...protocol.redaction import REDACTED, Redactor
from ...protocol.secret_values import SecretValues

__all__ = ["TEXT_FRAME", "clean_body", "decoded", "learn_body", "learn_json", "text_of", "walk"]

_REDACTOR = Redactor()
#: A part of ``multipart/form-data`` (RFC 7578) that is a text: its head, and its value until the next boundary.
_PART = re.compile(
    r"(content-disposition:[^\r\n]*\bname=\"([^\"\r\n]*)\"[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n)"
    r"(.*?)(?=\r?\n--)",
    re.IGNORECASE | re.DOTALL,
)

#: What services write before their JSON, so that no script can load it.
_GUARD = re.compile(r"\s*\)\]\}',?[^\S\n]*\n?")
#: Opcode of a WebSocket's frame of text (RFC 6455 11.8).
TEXT_FRAME = 1


def learn_body(text: str, mime_type: str, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what a body holds. Never raises, whatever the body is."""
    if (value := _json(text, mime_type)) is not None:
        learn_json(value, secrets)
    elif "x-www-form-urlencoded" in mime_type:
        secrets.learn_pairs(text)
    elif "multipart/" in mime_type:
        for part in _PART.finditer(text):
            if _REDACTOR.is_secret(part[2]):
                secrets.learn_value(part[3])
    else:
        if "html" in mime_type:
            secrets.learn_html(text)
        secrets.learn(text)
        for line in text.split("\n"):
            if (value := _json(_head_and_json(line)[1])) is not None:
                learn_json(value, secrets)


def learn_json(value: object, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what JSON values hold, also texts among them that are JSON themselves, and the binary
    frames of a WebSocket as the browser's driver writes them: ``{"opcode": 2, "data": BASE64}``."""
    waiting: list[object] = [value]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(RecursionError):  # what is too deep for the rules is left out of what is kept
            secrets.learn(one)
        for node in walk(one):
            match node:
                case {"opcode": int(opcode), "data": str(data)} if opcode != TEXT_FRAME:
                    if (text := text_of(decoded(data) or b"")) is not None:
                        learn_body(text, "", secrets)
                case str() if (inner := _json(node)) is not None:
                    waiting.append(inner)


def clean_body(text: str, mime_type: str, secrets: SecretValues) -> str:
    """Return a body without secrets; none of a body whose JSON is too deep to be looked through."""
    try:
        return _cleaned(text, mime_type, secrets)
    except RecursionError:
        return REDACTED


def _cleaned(text: str, mime_type: str, secrets: SecretValues) -> str:
    if (value := _json(text, mime_type)) is not None:
        return msgspec.json.encode(secrets.tree(value)).decode()
    if "x-www-form-urlencoded" in mime_type:
        return secrets.line(text)
    if "multipart/" in mime_type:
        text = _PART.sub(lambda part: part[1] + (REDACTED if _REDACTOR.is_secret(part[2]) else part[3]), text)
    else:
        text = "\n".join(_cleaned_line(line, secrets) for line in text.split("\n"))
    return secrets.text(text)


def _cleaned_line(line: str, secrets: SecretValues) -> str:
    head, rest = _head_and_json(line)
    if (value := _json(rest)) is None or (cleaned := secrets.tree(value)) == value:
        return line
    return head + msgspec.json.encode(cleaned).decode()


def _head_and_json(line: str) -> tuple[str, str]:
    """A line of NDJSON, or of an event stream (``data: …``), cut before its JSON."""
    rest = line.removeprefix("data:").lstrip()
    return line[: len(line) - len(rest)], rest


def walk(node: object) -> Iterator[object]:
    """All values in JSON values, and they themselves."""
    waiting = [node]
    while waiting:
        yield (one := waiting.pop())
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def decoded(text: str) -> bytes | None:
    """Return what a text is the base64 of; ``None`` if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def text_of(data: bytes) -> str | None:
    """Return the text in bytes that look like one, to learn from; ``None`` for others."""
    return None if b"\0" in data[:4096] else data.decode(errors="replace")


def _json(text: str, mime_type: str = "") -> Mapping[str, object] | list[object] | None:
    """An object or a list that the text is, whatever type it is said to have."""
    if "json" not in mime_type and text[:64].lstrip()[:1] not in ("{", "[", ")"):
        return None
    try:
        guard = _GUARD.match(text)
        value = msgspec.json.decode(text[guard.end() :] if guard else text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
