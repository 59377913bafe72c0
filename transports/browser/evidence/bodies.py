"""Bodies of requests and responses without secrets, by their MIME type."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from email.utils import collapse_rfc2231_value
from urllib.parse import quote, unquote_plus

import msgspec

from ...protocol.redaction import REDACTED, Redactor
from ...protocol.secret_values import SecretValues

__all__ = [
    "TEXT_FRAME",
    "clean_body",
    "decoded",
    "is_textual",
    "learn_body",
    "learn_json",
    "text_in",
    "text_of",
    "walk",
]

_REDACTOR = Redactor()
#: What can only be meant as JSON, also where it cannot be read.
_MEANT_AS_JSON = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*(?:[\[{\"]|-?\d[\d.eE+-]*\s*,))")
#: A text that is a form, such as ``a=1&b=2``, and one of GraphQL.
_FORM = re.compile(r"[^\s=&<>{}]{1,256}=[^\s&]*(?:&[^\s=&]{1,256}=[^\s&]*)*")
_GRAPHQL = re.compile(r"\s*(?:(?:query|mutation|subscription)\b|\{\s*\w)")
#: A tag of XML that begins an element, and an attribute in one.
_TAG = re.compile(r"<([\w.:-]{1,128})(?:\s[^<>]*)?>")
_ATTRIBUTE = re.compile(r"([\w.-]{1,64})(\s{0,8}=\s{0,8})(?:\"[^\"]*\"|'[^']*')")
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]{1,40})")
#: Types of bodies that are texts.
_TEXTUAL = ("json", "x-www-form-urlencoded", "multipart/", "text/", "xml", "javascript", "graphql")
#: How often a text may be inside of another.
_MAX_NESTED = 8
_HEAD_END = re.compile(r"\r?\n\r?\n")
#: What services write before their JSON, so that no script can load it.
_GUARD = re.compile(r"\s*\)\]\}',?[^\S\n]*\n?")
#: Opcode of a WebSocket's frame of text (RFC 6455 11.8).
TEXT_FRAME = 1


def is_textual(mime_type: str) -> bool:
    """Return whether a body of this type is a text, which must be read to be kept."""
    return any(one in mime_type for one in _TEXTUAL)


def text_in(data: bytes, mime_type: str) -> str | None:
    """Return the text that a body of this type is; ``None`` for one that cannot be read as that, such as one that is
    compressed or has another charset than it says. Of a type that is no text, what looks like one is."""
    if not is_textual(mime_type):
        return text_of(data)
    charset = _CHARSET.search(mime_type)
    try:
        text = data.decode("latin-1" if "multipart/" in mime_type else charset[1] if charset else "utf-8")
    except (LookupError, ValueError):
        return None
    return None if "\0" in text else text


def learn_body(text: str, mime_type: str, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what a body holds. Never raises, whatever the body is."""
    if (value := _json(text, mime_type)) is not None:
        learn_json(value, secrets)
    elif "x-www-form-urlencoded" in mime_type:
        secrets.learn_pairs(text)
        for pair in text.split("&"):
            name, _, given = pair.partition("=")
            if _REDACTOR.is_secret(name):
                secrets.learn_value(given)
                secrets.learn_value(unquote_plus(given))
    elif "multipart/" in mime_type:
        for head, content in _parts(text) or ():
            if _REDACTOR.is_secret(_name_of(head) or ""):
                secrets.learn_value(content)
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
    """Return a body without secrets. What cannot be read as its type is masked whole: JSON that is too deep, broken or
    has a number that no reader takes, and parts of a form without a name."""
    try:
        return _cleaned(text, mime_type, secrets, 0)
    except RecursionError:
        return REDACTED


def _cleaned(text: str, mime_type: str, secrets: SecretValues, depth: int) -> str:
    if depth > _MAX_NESTED:
        return REDACTED
    if (value := _json(text, mime_type)) is not None:
        return msgspec.json.encode(secrets.tree(_cleaned_texts(value, secrets, depth))).decode()
    if "x-www-form-urlencoded" in mime_type:
        return secrets.line(_cleaned_form(text, secrets, depth))
    if "multipart/" in mime_type:
        return secrets.text(_cleaned_parts(text, secrets, depth))
    if "graphql" in mime_type:
        return secrets.line(text)
    if "xml" in mime_type:
        text = _cleaned_xml(text)
    return secrets.text(_cleaned_lines(text, "json" in mime_type, secrets, depth))


def _cleaned_texts(node: object, secrets: SecretValues, depth: int) -> object:
    """JSON values with each text in them cleaned that is JSON, a form or GraphQL itself."""
    match node:
        case str():
            return _cleaned_text(node, secrets, depth)
        case dict():
            return {key: _cleaned_texts(value, secrets, depth) for key, value in node.items()}
        case list():
            return [_cleaned_texts(value, secrets, depth) for value in node]
        case _:
            return node


def _cleaned_text(text: str, secrets: SecretValues, depth: int) -> str:
    if _MEANT_AS_JSON.match(text):
        return _cleaned(text, "", secrets, depth + 1)
    if _FORM.fullmatch(text):
        return _cleaned_form(text, secrets, depth + 1)
    return secrets.line(text) if _GRAPHQL.match(text) else text


def _cleaned_form(text: str, secrets: SecretValues, depth: int) -> str:
    return "&".join(_cleaned_pair(pair, secrets, depth) for pair in text.split("&"))


def _cleaned_pair(pair: str, secrets: SecretValues, depth: int) -> str:
    name, equals, value = pair.partition("=")
    if equals and _REDACTOR.is_secret(name):
        return f"{name}={REDACTED}"
    plain = unquote_plus(value)
    if not _MEANT_AS_JSON.match(plain):
        return pair
    return f"{name}={quote(_cleaned(plain, '', secrets, depth + 1))}"


def _cleaned_lines(text: str, only_json: bool, secrets: SecretValues, depth: int) -> str:
    """Lines of which some are JSON, all of them if ``only_json``. From the first on that cannot be read, nothing
    stays: it may go on in the next."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if _MEANT_AS_JSON.match(text) and not _is_json(first):
        return REDACTED
    done: list[str] = []
    for line in lines:
        head, rest = _head_and_json(line)
        if (value := _json(rest)) is not None:
            # written anew, also where it is the same: of a key that stands there twice, one value was read
            done.append(head + msgspec.json.encode(secrets.tree(_cleaned_texts(value, secrets, depth))).decode())
        elif _MEANT_AS_JSON.match(rest) or (only_json and rest.strip() and not _is_json(rest)):
            return "\n".join([*done, head + REDACTED])
        else:
            done.append(line)
    return "\n".join(done)


def _cleaned_parts(text: str, secrets: SecretValues, depth: int) -> str:
    """``multipart/form-data`` (RFC 7578) and its like."""
    parts = _parts(text)
    if parts is None:
        return REDACTED
    for head, value in parts:
        message = HeaderParser().parsestr(head)
        readable = message.get("Content-Transfer-Encoding", "7bit").strip().lower() in ("7bit", "8bit", "binary")
        name = _name_of(head)
        if not readable or _REDACTOR.is_secret(name or "") or (name is None and "form-data" in head.lower()):
            cleaned = REDACTED
        else:
            mime_type = message.get_content_type() if "Content-Type" in message else ""
            cleaned = _cleaned(value, mime_type, secrets, depth + 1)
        text = text if cleaned == value else text.replace(f"{head}{value}", f"{head}{cleaned}")
    return text


def _parts(text: str) -> list[tuple[str, str]] | None:
    """The heads, with the empty line below, and the values of the parts; ``None`` for a text that has none."""
    boundary = text[: text.find("\n")].rstrip("\r") if "\n" in text else text
    if not boundary.startswith("--"):
        return None if text.strip() else []
    found = []
    for part in f"\n{text}".split(f"\n{boundary}")[1:]:
        if part.startswith("--"):
            break
        end = _HEAD_END.search(part)
        if end is None:
            return None
        found.append((part[: end.end()], part[end.end() :].removesuffix("\r")))
    return found or None


def _name_of(head: str) -> str | None:
    name = HeaderParser().parsestr(head.lstrip("\r\n")).get_param("name", header="content-disposition")
    return collapse_rfc2231_value(name) if name is not None else None


def _cleaned_xml(text: str) -> str:
    """XML without the elements and attributes of secret names. Entities can stand for anything: with some, nothing."""
    if "<!ENTITY" in text:
        return REDACTED
    done: list[str] = []
    at = 0
    for tag in _TAG.finditer(text):
        if tag.start() < at:
            continue
        done += (text[at : tag.start()], _ATTRIBUTE.sub(_cleaned_attribute, tag[0]))
        at = tag.end()
        if _REDACTOR.is_secret(tag[1].rpartition(":")[2]) and not tag[0].endswith("/>"):
            end = text.find(f"</{tag[1]}", at)
            at = len(text) if end < 0 else end
            done.append(REDACTED)
    return "".join((*done, text[at:]))


def _cleaned_attribute(found: re.Match[str]) -> str:
    return f'{found[1]}{found[2]}"{REDACTED}"' if _REDACTOR.is_secret(found[1]) else found[0]


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


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


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
