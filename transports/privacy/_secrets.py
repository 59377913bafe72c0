"""Secrets by name: ``${SECRET:NAME}`` in texts, and the values that this process knows and never shows. No I/O.

A value is known once it was read (:mod:`transports.session.secrets`). From then on each text of the kind that leaves
this process towards a person, a model, a file or a log has the placeholder in its place, whichever session it is of.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from ..errors import ABPError
from ._masking import Finder, masked_tree, replaced, starred, to_bytes, to_text

E = TypeVar("E", bound=ABPError)

#: Characters of a value: of any, of one without letters, and different ones. A user who may have a secret and does not
#: see it could find a shorter one by guessing, as the right one is masked; and it would stand in ids by chance.
_MIN_CHARS, _MIN_DIGITS, _MIN_DIFFERENT = 8, 10, 5
#: Bytes of a file up to which secrets in its text are masked; a larger one stays as the app made it.
MAX_MASKED_BYTES = 1 << 20
#: Users whose values are remembered without a session of theirs.
_MAX_USERS = 10_000
#: Values that are known at a time; a secret that changes each hour is forgotten after a month and more.
_MAX_KNOWN = 1000
_PLACEHOLDER = re.compile(r"\$\{SECRET:([A-Za-z0-9_.-]{1,64})\}")
_HEAD = "${SECRET:"
_NUMBER = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,300})?")
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

    A value is found however it is spelled: :class:`~.spellings.Finder`. Parts of it are not found, nor what is no
    spelling but an encryption or a compression: an app that writes a password backwards shows it.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._finder = Finder({})
        #: What stands for values that are numbers: an app may answer them as such.
        self.numbers: Mapping[float, str] = {}
        #: The values and their placeholders.
        self.values: Mapping[str, str] = {}

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
        self._learned()

    def forget(self) -> None:
        """Know nothing any more."""
        self._names.clear()
        self._learned()
        if self is KNOWN_SECRETS:
            for known in (*_OF_USERS.values(),):
                known.forget()
            _GIVEN.clear()

    def _learned(self) -> None:
        self.values = {value: f"{_HEAD}{name}}}" for value, name in self._names.items()}
        self._finder = Finder(self.values)
        self.numbers = {float(one): label for one, label in self.values.items() if _NUMBER.fullmatch(one)}

    def text(self, text: str) -> str:
        """Return text with placeholders in the place of values."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return texts of which each goes on where the one before it ended, with placeholders in the place of values;
        a value that lies across several has one in each."""
        return replaced(texts, self._finder)

    def tree(self, node: object) -> object:
        """Return JSON values with placeholders in the place of values, in keys and names of files too; what has none is
        returned as it is. A file as base64 is masked (:meth:`mask`); content beside the JSON stays, as it is masked
        where it is read."""
        return masked_tree(node, self._finder, self.numbers, file=self._file)

    def are_in(self, content: bytes) -> bool:
        """Whether a value stands in these bytes."""
        return bool(self._finder.find(content))

    def mask(self, content: bytes) -> bytes:
        """Return the bytes of a file with asterisks in the place of values, if it is a text of at most
        :data:`MAX_MASKED_BYTES`; else as they are. The length stays, so that a size that was declared still holds."""
        if not self._names or len(content) > MAX_MASKED_BYTES or b"\0" in content:
            return content
        return starred(content, self._finder.find(content))

    def _file(self, text: str, described: bool) -> str | None:
        """Return the text of a file that stands in an answer, masked with its size as it was: one as base64, with or
        without the head of a ``data:`` URL, or one that is ``described`` as a file. ``None`` for any other text."""
        head, _, encoded = text.rpartition(";base64,") if text.startswith("data:") else ("", "", text)
        content = _decoded(encoded)
        if content is None:
            return to_text(starred(whole := to_bytes(text), self._finder.find(whole))) if described else None
        if content.decode(errors="replace") in self._names and not described and not head:
            return None
        if (masked := self.mask(content)) == content:
            return text if described or head else None
        return (f"{head};base64," if head else "") + b64encode(masked).decode()

    def error(self, error: E) -> E:
        """Return an error, changed in place, without values."""
        if self._names:
            error.message = self.text(error.message)
            error.args = (error.message,)
            error.details = {self.text(key): self.tree(one) for key, one in error.details.items()}
            error.alternatives = tuple(map(self.text, error.alternatives))
        return error


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a text that is base64 as a whole and may hold a value; else ``None``."""
    if not _MIN_CHARS <= len(text) <= 2 * MAX_MASKED_BYTES or len(text) % 4 or not _BASE64.fullmatch(text):
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


#: What this process knows: for the operator, whose logs, files of evidence and recordings show none of it.
KNOWN_SECRETS = KnownSecrets()
#: No value.
NO_SECRETS = KnownSecrets()
#: What users were given; those that were given something are remembered when their last session is closed.
_OF_USERS: WeakValueDictionary[str, KnownSecrets] = WeakValueDictionary()
_GIVEN: dict[str, KnownSecrets] = {}


def is_guessable(value: str) -> str | None:
    """Return what makes a value too easy to guess for a secret, in words; ``None`` if nothing does."""
    if len(value) < _MIN_CHARS:
        return f"{len(value) or 'no'} characters; it needs at least {_MIN_CHARS}"
    if len(value) < _MIN_DIGITS and not any(map(str.isalpha, value)):
        return f"{len(value)} characters and no letter, as a PIN; it needs at least {_MIN_DIGITS}"
    if (different := len(set(value))) < _MIN_DIFFERENT:
        return f"{different} different characters; it needs at least {_MIN_DIFFERENT}"
    return None


def known_to(user: str | None) -> KnownSecrets:
    """Return what is masked in what a user sees: the values that they were given. To mask another would tell them that
    it is one. ``None`` is the operator, who sees no value that this process knows."""
    if user is None:
        return KNOWN_SECRETS
    return _OF_USERS.setdefault(user, KnownSecrets())


def give(user: str | None, name: str, value: str) -> None:
    """Know a value that this user was given, from now on."""
    KNOWN_SECRETS.add(name, value)
    if user is not None:
        known = _GIVEN.pop(user, None) or known_to(user)
        known.add(name, value)
        _GIVEN[user] = known
        if len(_GIVEN) > _MAX_USERS:
            del _GIVEN[next(iter(_GIVEN))]


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
