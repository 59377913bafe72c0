"""Secrets by name: ``${SECRET:NAME}`` in texts, and the values that this process knows and never shows. No I/O.

A value is known once it was read (:mod:`transports.session.secrets`). From then on each text of the kind that leaves
this process towards a person, a model, a file or a log has the placeholder in its place, whichever session it is of.
"""

from __future__ import annotations

import json
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar, cast
from urllib.parse import quote, quote_plus

from ..binary import BinaryData
from ..errors import ABPError
from .messages import Effect, Message

__all__ = [
    "KNOWN_SECRETS",
    "MAX_MASKED_BYTES",
    "MIN_SECRET_CHARS",
    "KnownSecrets",
    "placeholder_paths",
    "placeholders",
    "spellings",
    "with_values",
]

E = TypeVar("E", bound=ABPError)

#: Fewer characters would be found by chance in ids and addresses, which would then lead nowhere.
MIN_SECRET_CHARS = 6
#: Bytes of a file up to which secrets in its text are masked; a larger one stays as the app made it.
MAX_MASKED_BYTES = 1 << 20
#: Values that are known at a time; a secret that changes each hour is forgotten after a month and more.
_MAX_KNOWN = 1000
_PLACEHOLDER = re.compile(r"\$\{SECRET:([A-Za-z0-9_.-]{1,64})\}")
_HEAD = "${SECRET:"
#: Fields beside `content` that say that it is a file (docs/protocol.md 9).
_DESCRIBING = {"mimeType", "encoding", "size", "filename"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]++={0,2}")


def placeholders(node: object) -> set[str]:
    """Return the names of the secrets in the texts of JSON values. Keys and content are not looked at."""
    match node:
        case str():
            return set(_PLACEHOLDER.findall(node)) if _HEAD in node else set()
        case Mapping():
            return set[str]().union(*map(placeholders, node.values()))
        case list() | tuple():
            return set[str]().union(*map(placeholders, node))
        case _:
            return set()


def placeholder_paths(node: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the texts with a placeholder in them."""
    match node:
        case str():
            if _HEAD in node and _PLACEHOLDER.search(node):
                yield at
        case Mapping():
            for key, value in node.items():
                yield from placeholder_paths(value, (*at, key))
        case list() | tuple():
            for index, value in enumerate(node):
                yield from placeholder_paths(value, (*at, index))


def with_values(node: object, values: Mapping[str, str]) -> object:
    """Return JSON values with each placeholder replaced by the value of that name; it must be among ``values``."""
    match node:
        case str():
            return _PLACEHOLDER.sub(lambda found: values[found[1]], node) if _HEAD in node else node
        case Mapping():
            return {key: with_values(value, values) for key, value in node.items()}
        case list() | tuple():
            return [with_values(value, values) for value in node]
        case _:
            return node


class KnownSecrets:
    """Values that must not be shown, and the names that stand in their place.

    A value is found as it is, and percent-encoded, as base64, and escaped for JSON or HTML. Parts of it, and other
    encodings, are not found: an app that spells a password backwards shows it.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        #: Each spelling of each value and its placeholder, the longest first.
        self._spellings: list[tuple[str, str]] = []
        #: The values, without their names.
        self.values: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """Know a value from now on. The first one also has log messages redacted."""
        if self._names.get(value) == name:
            return
        if not self._names and self is KNOWN_SECRETS:
            _redact_logs(self)
        self._names.pop(value, None)
        self._names[value] = name
        while len(self._names) > _MAX_KNOWN:
            del self._names[next(iter(self._names))]
        pairs = {form: f"{_HEAD}{named}}}" for one, named in self._names.items() for form in _with_base64(one)}
        self._spellings = sorted(pairs.items(), key=lambda pair: -len(pair[0]))
        self.values = frozenset(self._names)

    def forget(self) -> None:
        """Know nothing any more."""
        self._names.clear()
        self._spellings.clear()
        self.values = frozenset()

    def text(self, text: str) -> str:
        """Return text with placeholders in the place of values."""
        for spelling, placeholder in self._spellings:
            if spelling in text:
                text = text.replace(spelling, placeholder)
        return text

    def tree(self, node: object) -> object:
        """Return JSON values with placeholders in the place of values, in keys and names of files too. A file as base64
        is masked (:meth:`mask`); content beside the JSON stays, as it is masked where it is read."""
        match node:
            case str():
                return self._encoded(node) if self._spellings else node
            case {"content": str(text), **rest} if _DESCRIBING & rest.keys() and _decoded(text) is None:
                return {"content": self._same_length(text), **cast("dict[str, object]", self.tree(rest))}
            case Mapping():
                return {self.text(key) if isinstance(key, str) else key: self.tree(one) for key, one in node.items()}
            case list() | tuple():
                return [self.tree(one) for one in node]
            case BinaryData():
                return replace(node, filename=node.filename and self.text(node.filename))
            case _:
                return node

    def are_in(self, content: bytes) -> bool:
        """Whether a value stands in these bytes."""
        return any(spelling.encode("utf-8", "surrogatepass") in content for spelling, _ in self._spellings)

    def mask(self, content: bytes) -> bytes:
        """Return the bytes of a file with asterisks in the place of values, if it is a text of at most
        :data:`MAX_MASKED_BYTES`; else as they are. The length stays, so that a size that was declared still holds."""
        if len(content) > MAX_MASKED_BYTES or b"\0" in content:
            return content
        for spelling, _ in self._spellings:
            if (found := spelling.encode("utf-8", "surrogatepass")) in content:
                content = content.replace(found, b"*" * len(found))
        return content

    def _same_length(self, text: str) -> str:
        """Mask the text of a file that stands in an answer, whose size may be declared beside it."""
        content = text.encode("utf-8", "surrogatepass")
        for spelling, _ in self._spellings:
            content = content.replace(found := spelling.encode("utf-8", "surrogatepass"), b"*" * len(found))
        return content.decode("utf-8", "surrogatepass")

    def _encoded(self, text: str) -> str:
        """Mask a small file that stands in an answer as base64, with or without the head of a ``data:`` URL. In any
        other text values are replaced."""
        head, _, encoded = text.rpartition(";base64,") if text.startswith("data:") else ("", "", text)
        content = _decoded(encoded)
        if content is None or content.decode(errors="replace") in self._names:
            return self.text(text)
        if (masked := self.mask(content)) == content:
            return self.text(text)
        return (f"{head};base64," if head else "") + b64encode(masked).decode()

    def message(self, message: Message) -> Message:
        """Return a reply or event without values."""
        payload: object = message.payload
        if isinstance(payload, Effect):
            payload = self._effect(payload)
        return replace(
            message,
            payload=self.tree(payload),
            outputs=[replace(one, filename=one.filename and self.text(one.filename)) for one in message.outputs],
            effects=[self._effect(effect) for effect in message.effects],
            warnings=[self.text(warning) for warning in message.warnings],
        )

    def error(self, error: E) -> E:
        """Return an error, changed in place, without values."""
        if self._spellings:
            error.message = self.text(error.message)
            error.args = (error.message,)
            error.details = {self.text(key): self.tree(one) for key, one in error.details.items()}
            error.alternatives = tuple(map(self.text, error.alternatives))
        return error

    def _effect(self, effect: Effect) -> Effect:
        detail = self.tree(dict(effect.detail))
        return replace(effect, detail=detail)  # type: ignore[arg-type]  # a tree keeps its shape


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a text that is base64 as a whole and may hold a value; else ``None``."""
    if not MIN_SECRET_CHARS < len(text) <= 2 * MAX_MASKED_BYTES or len(text) % 4 or not _BASE64.fullmatch(text):
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def spellings(value: str) -> set[str]:
    """Return a value as it is, in JSON (once and twice), in a URL, in a form, in HTML."""
    import html  # late: few programs have secrets, and its table of characters takes 1 ms to load

    once = [json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    twice = [json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in once for ascii_only in (True, False)]
    return {
        value,
        *once,
        *twice,
        # what is not UTF-8, such as a variable's byte, has no percent-encoding
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
        html.escape(value),
        html.escape(value, quote=False),
    }


def _with_base64(value: str) -> set[str]:
    encoded = b64encode(value.encode("utf-8", "surrogatepass")).decode()
    return {*spellings(value), encoded, encoded.rstrip("=")}


#: What this process knows.
KNOWN_SECRETS = KnownSecrets()


def _redact_logs(known: KnownSecrets) -> None:
    """Have every log record of this process made without values, by whichever library: a filter of one logger would
    not see the records of those below it."""
    make: Callable[..., logging.LogRecord] = logging.getLogRecordFactory()
    if getattr(make, "redacts_secrets", False):
        return

    def redacted(*args: object, **options: object) -> logging.LogRecord:
        record = make(*args, **options)
        if known:
            try:
                message = record.getMessage()
            except (TypeError, ValueError):  # logging itself reports a message that does not fit its arguments
                return record
            # a record without a value stays whole: formatters such as that of an access log read its arguments
            if (cleaned := known.text(message)) != message:
                record.msg, record.args = cleaned, ()
            if record.exc_info:
                trace = logging.Formatter().formatException(record.exc_info)
                if (cleaned := known.text(trace)) != trace:
                    record.exc_text = cleaned
        return record

    redacted.redacts_secrets = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(redacted)
