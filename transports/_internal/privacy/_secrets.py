"""Known secrets: ``${SECRET:NAME}`` placeholders in texts, and the values that this process never shows. No I/O.

A value is known once it was read (:mod:`transports.session._secrets`). From then on, texts of all sessions that leave
this process towards a person, a model, a file or a log have the placeholder in its place.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from ...errors import ABPError
from ._masking import Finder, masked_tree, replaced, starred, to_bytes, to_text

E = TypeVar("E", bound=ABPError)

# A user who may use but not see a secret could find a shorter one by guessing, because the right guess is masked. It
# would also occur in ids by chance.
#: Minimum characters of a value.
_MIN_CHARS = 8
#: Minimum characters of a value without letters.
_MIN_DIGITS = 10
#: Minimum number of different characters.
_MIN_DIFFERENT = 5
#: Largest text file, in bytes, in which secrets are masked; a larger file stays unchanged.
MAX_MASKED_BYTES = 1 << 20
_PLACEHOLDER = re.compile(r"\$\{SECRET:([A-Za-z0-9_.-]{1,64})\}")
_NUMBER = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,300})?")
_BASE64 = re.compile(r"[A-Za-z0-9+/]++={0,2}")


def placeholders(node: object) -> set[str]:
    """Return the names of the secrets in the texts of JSON values. Keys and binary content are not searched."""
    match node:
        case str():
            return set(_PLACEHOLDER.findall(node))
        case Mapping():
            return set[str]().union(*map(placeholders, node.values()))
        case list() | tuple():
            return set[str]().union(*map(placeholders, node))
        case _:
            return set()


def placeholder_paths(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the texts with a placeholder."""
    match node:
        case str():
            if _PLACEHOLDER.search(node):
                yield path
        case Mapping():
            for key, value in node.items():
                yield from placeholder_paths(value, (*path, key))
        case list() | tuple():
            for index, value in enumerate(node):
                yield from placeholder_paths(value, (*path, index))


def with_values(node: object, values: Mapping[str, str]) -> object:
    """Return JSON values with each placeholder replaced by its value, which must be in ``values``."""
    match node:
        case str():
            return _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], node)
        case Mapping():
            return {key: with_values(value, values) for key, value in node.items()}
        case list() | tuple():
            return [with_values(value, values) for value in node]
        case _:
            return node


class KnownSecrets:
    """Values that must not be shown, and the placeholders in their place.

    A value is found in the usual encodings (:class:`~._masking.Finder`). Parts of a value are not found, nor encrypted,
    compressed or otherwise transformed ones: an app that writes a password backwards shows it.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._finder = Finder({})
        #: Placeholders of numeric values, which an app may answer as JSON numbers.
        self.numbers: Mapping[float, str] = {}
        #: Placeholders by value.
        self.values: Mapping[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """Add a value. The first value in :data:`KNOWN_SECRETS` also installs the redaction of logs."""
        if self._names.get(value) == name:
            return
        if not self._names and self is KNOWN_SECRETS:
            _redact_logs()
        # The newest value is the last one.
        self._names.pop(value, None)
        self._names[value] = name
        # Of a secret that changes each hour, these are the values of over a month.
        max_values = 1000
        if len(self._names) > max_values:
            del self._names[next(iter(self._names))]
        self._rebuild()

    def forget(self) -> None:
        """Remove all values; for :data:`KNOWN_SECRETS`, those of all users, too."""
        self._names.clear()
        self._rebuild()
        if self is KNOWN_SECRETS:
            for secrets in list(_OF_USERS.values()):
                secrets.forget()
            _GIVEN.clear()

    def _rebuild(self) -> None:
        """Bring the finder and the placeholders up to date with the values."""
        self.values = {value: f"${{SECRET:{name}}}" for value, name in self._names.items()}
        self._finder = Finder(self.values)
        self.numbers = {float(value): label for value, label in self.values.items() if _NUMBER.fullmatch(value)}

    def text(self, text: str) -> str:
        """Return text with placeholders in place of values."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return consecutive pieces of a text with placeholders in place of values. A value that lies across several
        pieces has a placeholder in each."""
        return replaced(texts, self._finder)

    def tree(self, node: object) -> object:
        """Return JSON values with placeholders in place of values, also in keys and file names. A node without values
        is returned unchanged. A file in base64 is masked (:meth:`mask`). Binary content beside the JSON stays, because
        it is masked where it is read."""
        if not self._names:
            return node
        return masked_tree(node, self._finder, self.numbers, file=self._file)

    def mask(self, content: bytes) -> bytes:
        """Return the bytes of a file with asterisks in place of values, if it is a text of at most
        :data:`MAX_MASKED_BYTES`; unchanged otherwise. The length stays, so that a declared size still holds."""
        if not self._names or len(content) > MAX_MASKED_BYTES or b"\0" in content:
            return content
        return starred(content, self._finder.find(content))

    def _file(self, text: str, described: bool) -> str | None:
        """Return the text of a file in an answer, masked without a change of its size; ``None`` for any other text.

        A file is base64, with or without the head of a ``data:`` URL, or text that is ``described`` as a file.
        """
        head, encoded = "", text
        if text.startswith("data:"):
            before, mark, encoded = text.rpartition(";base64,")
            head = before + mark
        content = _decoded(encoded)
        if content is None:
            if not described:
                return None
            plain = to_bytes(text)
            return to_text(starred(plain, self._finder.find(plain)))

        is_file = described or bool(head)
        # A value in base64 is no file, and gets its placeholder.
        if not is_file and content.decode(errors="replace") in self._names:
            return None
        masked = self.mask(content)
        if masked != content:
            return head + b64encode(masked).decode()
        return text if is_file else None

    def error(self, error: E) -> E:
        """Mask the values in an error, in place, and return the error."""
        if not self._names:
            return error
        error.message = self.text(error.message)
        error.args = (error.message,)
        error.details = {self.text(key): self.tree(value) for key, value in error.details.items()}
        error.alternatives = tuple(map(self.text, error.alternatives))
        if error.download_url:
            error.download_url = self.text(error.download_url)
        return error


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a text that is all base64 and may hold a value; ``None`` for any other text."""
    if not _MIN_CHARS <= len(text) <= 2 * MAX_MASKED_BYTES or len(text) % 4 or not _BASE64.fullmatch(text):
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


#: All values that this process knows: for the operator, whose logs, evidence files and recordings show none of them.
KNOWN_SECRETS = KnownSecrets()
#: Empty set of known secrets.
NO_SECRETS = KnownSecrets()
#: Values given to each user. ``_GIVEN`` keeps those of users with any value after their last session is closed.
_OF_USERS: WeakValueDictionary[str, KnownSecrets] = WeakValueDictionary()
_GIVEN: dict[str, KnownSecrets] = {}


def why_guessable(value: str) -> str | None:
    """Return the reason why a value is too easy to guess for a secret, in words; ``None`` if it is not."""
    if len(value) < _MIN_CHARS:
        return f"{len(value) or 'no'} characters; it needs at least {_MIN_CHARS}"
    if len(value) < _MIN_DIGITS and not any(map(str.isalpha, value)):
        return f"{len(value)} characters and no letter, as a PIN; it needs at least {_MIN_DIGITS}"
    different = len(set(value))
    if different < _MIN_DIFFERENT:
        return f"{different} different characters; it needs at least {_MIN_DIFFERENT}"
    return None


def known_to(user: str | None) -> KnownSecrets:
    """Return the secrets that are masked for a user: the values given to that user.

    Masking any other value would reveal that it is a secret. ``None`` is the operator, for whom all known values are
    masked.
    """
    if user is None:
        return KNOWN_SECRETS
    return _OF_USERS.setdefault(user, KnownSecrets())


def give(user: str | None, name: str, value: str) -> None:
    """Record that a user was given a value, which is known from now on."""
    KNOWN_SECRETS.add(name, value)
    if user is None:
        return
    secrets = _GIVEN.pop(user, None) or known_to(user)
    secrets.add(name, value)
    _GIVEN[user] = secrets

    # Of users with an open session, the secrets stay known even without an entry here.
    max_users = 10_000
    if len(_GIVEN) > max_users:
        del _GIVEN[next(iter(_GIVEN))]


def _redact_logs() -> None:
    """Install a record factory that removes all known values from every log record of this process, of all libraries.

    A filter of one logger would not see the records of its child loggers.
    """
    make: Callable[..., logging.LogRecord] = logging.getLogRecordFactory()
    if getattr(make, "redacts_secrets", False):
        return

    def make_redacted(*args: object, **options: object) -> logging.LogRecord:
        record = make(*args, **options)
        if KNOWN_SECRETS:
            _redact_record(record)
        return record

    make_redacted.redacts_secrets = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_redacted)


def _redact_record(record: logging.LogRecord) -> None:
    """Remove the known values from a log record. A record without a value stays unchanged: some formatters, as of
    access logs, read its arguments."""
    try:
        message = record.getMessage()
    except (TypeError, ValueError):
        # logging itself reports a message that does not match its arguments.
        return

    redacted = KNOWN_SECRETS.text(message)
    if redacted != message:
        record.msg, record.args = redacted, ()
    if record.exc_info:
        traceback = logging.Formatter().formatException(record.exc_info)
        redacted = KNOWN_SECRETS.text(traceback)
        if redacted != traceback:
            record.exc_text = redacted
