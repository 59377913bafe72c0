"""Known secrets, and masking: labels or asterisks in place of values, in texts, JSON values and bytes. No I/O.

:class:`Finder` finds values as they are and in one step of each usual encoding; :class:`KnownSecrets` replaces them.
:data:`KNOWN_SECRETS` has the values that this process never shows, and their ``${SECRET:NAME}`` placeholders. A value
is known once it was read (:mod:`transports.session._secrets`). From then on, texts of all sessions that leave this
process towards a person, a model, a file or a log have the placeholder in its place.
"""

from __future__ import annotations

import contextlib
import html
import logging
import math
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary

from ..errors import ABPError
from .recent import Recent

#: Bytes that are searched at a time: a longer search would hold the GIL for too long.
_PIECE = 1 << 18
#: Fields that make the `content` beside them a file (docs/protocol.md 9).
_DESCRIBING: Final = {"mimeType", "encoding", "size", "filename"}


def to_bytes(text: str) -> bytes:
    """Return text as UTF-8, with lone surrogates encoded like characters."""
    return text.encode("utf-8", "surrogatepass")


def to_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def _utf16_pattern(mark: bytes) -> bytes:
    """Return a pattern for an escaped character in UTF-16: a surrogate pair or a single unit, each unit written as four
    hexadecimal digits after ``mark``."""
    high = mark + rb"[dD][89abAB][0-9A-Fa-f]{2}"
    low = mark + rb"[dD][c-fC-F][0-9A-Fa-f]{2}"
    return high + low + b"|" + mark + rb"[0-9A-Fa-f]{4}"


def _from_units(digits: bytes) -> bytes:
    return to_bytes(bytes.fromhex(digits.decode()).decode("utf-16-be", "surrogatepass"))


@lru_cache(maxsize=1024)
def _from_percent(escape: bytes) -> bytes:
    if escape.startswith(b"%u"):
        return _from_units(escape.replace(b"%u", b""))
    return bytes.fromhex(escape[1:].decode())


@lru_cache(maxsize=1024)
def _from_backslash(escape: bytes) -> bytes:
    """Decode an escape with a backslash, of JSON, JavaScript, Python or CSS, into UTF-8."""
    if escape.startswith(rb"\u{"):
        return to_bytes(chr(int(escape[3:-1], 16)))
    if escape.startswith(rb"\u"):
        return _from_units(escape.replace(rb"\u", b""))
    # CSS escapes a digit at the beginning of a name: ``\31 `` with the space is 1.
    is_css_digit = escape.endswith(b" ") and len(escape) == 4
    if is_css_digit:
        return escape[2:3]
    if len(escape) > 2 or escape[1:] in b"abfnrtv":
        return to_bytes(escape.decode("unicode_escape"))
    return escape[1:]


@lru_cache(maxsize=1024)
def _from_entity(escape: bytes) -> bytes:
    return to_bytes(html.unescape(escape.decode()))


#: Encodings that escape single characters: the pattern of an escape, and its decoder into UTF-8. Encoders escape
#: different characters, so content is decoded, rather than the value encoded.
ESCAPES: tuple[tuple[re.Pattern[bytes], Callable[[bytes], bytes]], ...] = (
    # percent-encoding, and escape() of JavaScript
    (re.compile(_utf16_pattern(b"%u") + rb"|%[0-9A-Fa-f]{2}"), _from_percent),
    # JSON, JavaScript, Python, CSS
    (
        re.compile(
            _utf16_pattern(rb"\\u") + rb"|\\u\{0{0,5}(?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4}\}"
            rb"|\\U00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[0-3][0-7]{2}|\\3[0-9] |\\.",
            re.DOTALL,
        ),
        _from_backslash,
    ),
    # HTML
    (
        re.compile(rb"&#[0-9]{1,8};?|&#[xX][0-9A-Fa-f]{1,8};?|&(?:[A-Za-z][A-Za-z0-9]{1,31};|amp|lt|gt|quot)"),
        _from_entity,
    ),
)


def _whole_forms(value: bytes) -> Iterator[bytes]:
    """Yield the forms that a whole value has in hexadecimal digits and in base64. In base64 of a longer text, the value
    begins after zero, one or two bytes of a group of three. For each case there are two forms: the characters that hold
    only bits of the value, and the same with the last characters, as they are if nothing follows the value."""
    for digits in (value.hex(), value.hex(" "), value.hex(":")):
        yield digits.encode()
        yield digits.upper().encode()
    for encode in (b64encode, urlsafe_b64encode):
        for bytes_before in range(3):
            encoded = encode(bytes(bytes_before) + value)
            # Three bytes make four characters. Those from begin to end hold bits of the value alone.
            begin = math.ceil(bytes_before * 4 / 3)
            end = (bytes_before + len(value)) * 4 // 3
            yield encoded[begin:end]
            yield encoded[begin:]


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """A place in content where a value occurs, in bytes, and the label for that value."""

    start: int
    end: int
    label: str


class Finder:
    """Finds values in content. ``values`` maps each value to its label. A value is found as it is, with its characters
    escaped by any one of :data:`ESCAPES`, in base64 and hexadecimal digits, and with ``+`` for spaces. A value that was
    encoded twice is not found, unless one of the encodings leaves its characters as they are."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._plain: dict[bytes, str] = {}
        self._whole: dict[bytes, str] = {}
        for value, label in values.items():
            for needle in _byte_strings(value):
                self._plain.setdefault(_with_plus(needle), label)
                for form in _whole_forms(needle):
                    self._whole.setdefault(_with_plus(form), label)
        longest_escape = len("&#x00000027;")  # the longest form of one byte of a value
        self._overlap = max(map(len, self._plain), default=0) * longest_escape

    def find(self, content: bytes) -> list[Occurrence]:
        if not self._plain:
            return []
        # Pieces overlap, so that each value lies in one of them as a whole.
        size = max(_PIECE, self._overlap)
        occurrences: set[Occurrence] = set()
        for begin in range(0, max(1, len(content) - self._overlap), size):
            piece = content[begin : begin + size + self._overlap]
            for match in self._search(piece):
                occurrences.add(Occurrence(begin + match.start, begin + match.end, match.label))
        return _without_overlaps(occurrences)

    def _search(self, content: bytes) -> Iterator[Occurrence]:
        yield from _find_needles(content, self._plain)
        yield from _find_needles(content, self._whole)
        for pattern, decode in ESCAPES:
            decoded = pattern.sub(lambda escape: decode(escape[0]), content)  # noqa: B023 - called at once
            if decoded == content:
                continue
            in_decoded = list(_find_needles(decoded, self._plain))
            if in_decoded:
                origins = _origins(content, pattern, decode)
                for match in in_decoded:
                    yield Occurrence(origins[match.start], origins[match.end], match.label)


def _with_plus(content: bytes) -> bytes:
    return content.replace(b" ", b"+")


def _find_needles(content: bytes, needles: Mapping[bytes, str]) -> Iterator[Occurrence]:
    """Yield all places where ``needles`` occur, which have ``+`` in place of spaces. ``needles`` maps them to
    labels."""
    content = _with_plus(content)
    for needle, label in needles.items():
        start = content.find(needle)
        while start >= 0:
            yield Occurrence(start, start + len(needle), label)
            start = content.find(needle, start + len(needle))


def _origins(content: bytes, pattern: re.Pattern[bytes], decode: Callable[[bytes], bytes]) -> list[int]:
    """Return where each byte of the decoded content begins in ``content``, and the end."""
    origins: list[int] = []
    position = 0
    for escape in pattern.finditer(content):
        origins += range(position, escape.start())
        origins += [escape.start()] * len(decode(escape[0]))
        position = escape.end()
    origins += range(position, len(content) + 1)
    return origins


#: Characters from 128 to 255 in UTF-8.
_UTF8_OF_LATIN1 = re.compile(rb"[\xc2\xc3][\x80-\xbf]")
#: For each control character of Latin-1, the character that Windows-1252 has for this byte, if it has any.
_WINDOWS_1252 = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(128, 160)}


def _byte_strings(value: str) -> set[bytes]:
    """Return the byte strings that a value may become: UTF-8; UTF-8 with its characters below 256 in Latin-1; and both
    after they were read in the wrong encoding: UTF-8 as Latin-1 or as Windows-1252 (browsers do this to a text without
    a charset), and Latin-1 as UTF-8."""
    utf8 = to_bytes(value)
    if value.isascii():
        return {utf8}
    latin1 = _UTF8_OF_LATIN1.sub(lambda character: character[0].decode().encode("latin-1"), utf8)
    utf8_as_latin1 = utf8.decode("latin-1")
    utf8_as_windows = utf8_as_latin1.translate(_WINDOWS_1252)
    latin1_as_utf8 = latin1.decode("utf-8", "replace")
    return {utf8, latin1, *map(to_bytes, (utf8_as_latin1, utf8_as_windows, latin1_as_utf8))}


def _without_overlaps(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """Sort occurrences, and merge those that overlap. The merged one gets the label of the longest."""
    merged: list[Occurrence] = []
    for occurrence in sorted(occurrences, key=lambda occurrence: (occurrence.start, -occurrence.end)):
        if not merged or occurrence.start >= merged[-1].end:
            merged.append(occurrence)
            continue
        last = merged[-1]
        if occurrence.end > last.end:
            longest = max(last, occurrence, key=lambda either: either.end - either.start)
            merged[-1] = Occurrence(last.start, occurrence.end, longest.label)
    return merged


def _occurrences_by_text(contents: Sequence[bytes], finder: Finder, between: bytes) -> dict[int, list[Occurrence]]:
    """Search several contents as one, with ``between`` between them. Return the occurrences by the index of the content
    that they are in; their spans are relative to that content."""
    begins = [0]
    for content in contents:
        begins.append(begins[-1] + len(content) + len(between))

    spans: dict[int, list[Occurrence]] = {}
    for occurrence in finder.find(between.join(contents)):
        index = bisect_right(begins, occurrence.start) - 1
        while index < len(contents) and begins[index] < occurrence.end:
            start = max(occurrence.start - begins[index], 0)
            end = min(occurrence.end - begins[index], len(contents[index]))
            if start < end:
                spans.setdefault(index, []).append(Occurrence(start, end, occurrence.label))
            index += 1
    return spans


def _text_with_labels(content: bytes, occurrences: Iterable[Occurrence]) -> str:
    """Return content as text, with labels in place of the values."""
    pieces: list[str] = []
    position = 0
    for occurrence in occurrences:
        start, end = _whole_characters(content, occurrence.start, occurrence.end)
        # Two values may be parts of one character: then the text between them is empty.
        pieces += (to_text(content[position:start]), occurrence.label)
        position = end
    pieces.append(to_text(content[position:]))
    return "".join(pieces)


def _whole_characters(content: bytes, start: int, end: int) -> tuple[int, int]:
    """Widen a span in UTF-8 so that it begins and ends between characters."""
    continuation = range(0x80, 0xC0)
    while start and content[start] in continuation:
        start -= 1
    while end < len(content) and content[end] in continuation:
        end += 1
    return start, end


#: Smallest number of characters of a secret.
_MIN_CHARS = 8
#: Largest text file, in bytes, in which secrets are masked; a larger file stays unchanged.
MAX_MASKED_BYTES = 1 << 20
_PLACEHOLDER = re.compile(r"\$\{SECRET:([A-Za-z0-9_.-]{1,64})\}")
_NUMBER = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,300})?")
_BASE64 = re.compile(r"[A-Za-z0-9+/]++={0,2}")


def placeholders(node: object) -> set[str]:
    """Return the names of the secrets in the texts of JSON values. Keys and binary content are not searched."""
    return {name for _, text in _texts(node, ()) for name in _PLACEHOLDER.findall(text)}


def placeholder_paths(node: object) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the texts in JSON values that have placeholders."""
    return (path for path, text in _texts(node, ()) if _PLACEHOLDER.search(text))


def _texts(node: object, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match node:
        case str():
            yield path, node
        case Mapping():
            for key, value in node.items():
                yield from _texts(value, (*path, key))
        case list() | tuple():
            for index, value in enumerate(node):
                yield from _texts(value, (*path, index))


def is_placeholder(text: str) -> bool:
    return _PLACEHOLDER.fullmatch(text) is not None


def fill_placeholders(node: object, values: Mapping[str, str]) -> object:
    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], text)

    return map_texts(node, fill)


def map_texts(node: object, change: Callable[[str], object]) -> object:
    """Return JSON values with ``change`` applied to each text, except to keys. Values of other types stay."""
    match node:
        case str():
            return change(node)
        case Mapping():
            return {key: map_texts(value, change) for key, value in node.items()}
        case list() | tuple():
            return [map_texts(item, change) for item in node]
        case _:
            return node


class KnownSecrets:
    """Values that must not be shown, and the labels that stand in their place. The label of a value that :meth:`add`
    adds is its placeholder. A part of a value is not found, nor a value that was encrypted, compressed or changed in
    another way: an app that writes a password backwards shows it."""

    def __init__(self) -> None:
        # For a secret that changes each hour, this many values are those of over a month.
        self._names: Recent[str, str] = Recent(1000)
        self._finder = Finder({})
        #: Labels by value.
        self._labels: Mapping[str, str] = {}
        #: Labels of numeric values, which an app may answer as JSON numbers.
        self._numbers: Mapping[float, str] = {}

    def __bool__(self) -> bool:
        return bool(self._labels)

    def add(self, name: str, value: str) -> None:
        """Add a value. The first value in :data:`KNOWN_SECRETS` also installs the redaction of logs."""
        if self._names.get(value) == name:
            return
        if not self._names and self is KNOWN_SECRETS:
            _redact_logs()
        self._names[value] = name
        self._rebuild()

    def forget(self) -> None:
        """Remove all values; for :data:`KNOWN_SECRETS`, those of all users, too."""
        self._names.clear()
        self._rebuild()
        if self is KNOWN_SECRETS:
            for secrets in list(_SECRETS_BY_USER.values()):
                secrets.forget()
            _SECRETS_OF_RECENT_USERS.clear()

    def _rebuild(self) -> None:
        self._labels = {value: f"${{SECRET:{name}}}" for value, name in self._names.items()}
        self._numbers = {float(value): label for value, label in self._labels.items() if _NUMBER.fullmatch(value)}
        self._finder = Finder(self._labels)

    def with_values(self, values: Iterable[str], label: str) -> KnownSecrets:
        """Return these secrets together with further ``values``. In texts ``label`` stands in the place of a further
        value; as a number such a value stays."""
        secrets = KnownSecrets()
        secrets._labels = {**dict.fromkeys(values, label), **self._labels}
        secrets._numbers = self._numbers
        secrets._finder = Finder(secrets._labels)
        return secrets

    def mask_text(self, text: str) -> str:
        return self.mask_texts([text])[0]

    def mask_texts(self, texts: Sequence[str]) -> list[str]:
        """Mask the consecutive pieces of a text. A value that lies across several pieces gets its label in each."""
        masked = list(texts)
        for index, masked_text in self._search(texts, b"").items():
            masked[index] = masked_text
        return masked

    def any_in(self, content: bytes) -> bool:
        return bool(self._finder.find(content))

    def mask_tree(
        self,
        node: object,
        *,
        keep: Callable[[str], bool] | None = None,
        names: Collection[str] = (),
        mask_files: bool = True,
    ) -> object:
        """Return JSON values with labels in place of the known values, also in keys and file names, and in place of
        numbers. Without a known value, ``node`` itself is returned. With ``mask_files`` a file in base64 is masked as
        by :meth:`mask_file`. Binary content beside the JSON stays, because it is masked where it is read. A key for
        which ``keep`` is true stays together with its value. A key in ``names`` stays, but its value is masked."""
        if not self:
            return node
        tree = _Tree(keep, names, self._numbers, self._mask_file_text if mask_files else None)
        texts = list(dict.fromkeys(tree.texts(node)))
        # The line breaks keep a value from being found across two texts.
        masked_texts = self._search(texts, b"\n")
        if not masked_texts and not self._numbers:
            return node
        tree.masked_texts = {texts[index]: masked_text for index, masked_text in masked_texts.items()}
        return tree.with_labels(node)

    def _search(self, texts: Sequence[str], between: bytes) -> dict[int, str]:
        """Return the masked texts by index, only those with a value. The texts are searched as one, with ``between``
        between them: 3,000 short texts would take eight times as long one by one, with 100 secrets 60 times."""
        if not self:
            return {}
        contents = [to_bytes(text) for text in texts]
        spans = _occurrences_by_text(contents, self._finder, between)
        return {index: _text_with_labels(contents[index], occurrences) for index, occurrences in spans.items()}

    def mask_file(self, content: bytes) -> bytes:
        """Put asterisks in place of values, if the file is a text of at most :data:`MAX_MASKED_BYTES`. The length
        stays, so that a declared size still holds."""
        if len(content) > MAX_MASKED_BYTES or b"\0" in content:
            return content
        return self._replace_by_stars(content)

    def _replace_by_stars(self, content: bytes) -> bytes:
        masked = bytearray(content)
        for occurrence in self._finder.find(content):
            masked[occurrence.start : occurrence.end] = b"*" * (occurrence.end - occurrence.start)
        return bytes(masked)

    def _mask_file_text(self, text: str, described: bool) -> str | None:
        """Return the text of a file with asterisks in place of values, which keep its size; ``None`` if ``text`` is not
        a file. A file is base64, with or without the head of a ``data:`` URL, or text that is ``described`` as a
        file."""
        head, encoded = "", text
        if text.startswith("data:"):
            before, mark, encoded = text.rpartition(";base64,")
            head = before + mark
        content = _decode_base64(encoded)
        if content is None:
            if not described:
                return None
            return to_text(self._replace_by_stars(to_bytes(text)))

        is_file = described or bool(head)
        # Base64 of a single value is not taken for a file, so that it gets its placeholder.
        if not is_file and content.decode(errors="replace") in self._labels:
            return None
        masked = self.mask_file(content)
        if masked != content:
            return head + b64encode(masked).decode()
        return text if is_file else None

    def mask_error(self, error: ABPError) -> None:
        """Mask the message and details of an error in place. Its ``args`` are not masked."""
        if not self:
            return
        error.message = self.mask_text(error.message)
        error.details = {self.mask_text(key): self.mask_tree(value) for key, value in error.details.items()}
        error.alternatives = tuple(map(self.mask_text, error.alternatives))
        if error.download_url:
            error.download_url = self.mask_text(error.download_url)


#: Function that returns the text of a file without values, or ``None`` if the text is not a file. Its second argument
#: is true if a descriptor says that the text is a file.
_MaskFile: TypeAlias = Callable[[str, bool], str | None]


class _Tree:
    """Masking of JSON values: their texts are gathered, searched together, and put back."""

    def __init__(
        self,
        keep: Callable[[str], bool] | None,
        names: Collection[str],
        numbers: Mapping[float, str],
        mask_file: _MaskFile | None,
    ) -> None:
        self._keep = keep
        self._names = names
        self._numbers = numbers
        self._mask_file = mask_file
        #: The texts that have a value, each with its masked text.
        self.masked_texts: Mapping[str, str] = {}

    def texts(self, node: object) -> Iterator[str]:
        """Yield the texts to search: keys, values and names of files."""
        match node:
            case str():
                yield node
            case Mapping():
                for key, value in node.items():
                    if self._is_kept(key):
                        continue
                    if isinstance(key, str) and key not in self._names:
                        yield key
                    yield from self.texts(value)
            case list() | tuple():
                for item in node:
                    yield from self.texts(item)
            case object(filename=str(name)):
                # A file.
                yield name

    def with_labels(self, node: object) -> object:
        """Return JSON values with their masked texts."""
        match node:
            case str():
                return self._masked_text(node, is_described=False)
            case Mapping():
                return self._masked_object(node)
            case list() | tuple():
                return [self.with_labels(item) for item in node]
            case object(filename=str(name)):
                # A file.
                return replace(cast(Any, node), filename=self.masked_texts.get(name, name))
            case int() | float() if self._numbers and not isinstance(node, bool):
                with contextlib.suppress(OverflowError):
                    return self._numbers.get(float(node), node)
        return node

    def _masked_object(self, node: Mapping[Any, object]) -> dict[Any, object]:
        """Return an object with masked keys and values. Its ``content`` is a file if another field describes it."""
        is_described = isinstance(node.get("content"), str) and not _DESCRIBING.isdisjoint(node)
        masked: dict[Any, object] = {}
        for key, value in node.items():
            if self._is_kept(key):
                masked[key] = value
                continue
            masked_key = key if key in self._names else self.masked_texts.get(key, key)
            if is_described and key == "content":
                masked[masked_key] = self._masked_text(str(value), is_described=True)
            else:
                masked[masked_key] = self.with_labels(value)
        return masked

    def _masked_text(self, text: str, *, is_described: bool) -> str:
        if text not in self.masked_texts:
            return text
        file_text = None
        if self._mask_file is not None:
            file_text = self._mask_file(text, is_described)
        return self.masked_texts[text] if file_text is None else file_text

    def _is_kept(self, key: object) -> bool:
        return self._keep is not None and isinstance(key, str) and self._keep(key)


def _decode_base64(text: str) -> bytes | None:
    """Return the bytes of a text that is all base64 and may hold a value; ``None`` for any other text."""
    if not _MIN_CHARS <= len(text) <= 2 * MAX_MASKED_BYTES or len(text) % 4 or not _BASE64.fullmatch(text):
        return None
    return b64decode(text)


#: All values that this process knows: for the operator, whose logs, evidence files and recordings show none of them.
KNOWN_SECRETS = KnownSecrets()
NO_SECRETS = KnownSecrets()
#: The values that each user was given, as long as something holds them: an open session of the user, or
#: ``_SECRETS_OF_RECENT_USERS`` after the last session.
_SECRETS_BY_USER: WeakValueDictionary[str, KnownSecrets] = WeakValueDictionary()
_SECRETS_OF_RECENT_USERS: Recent[str, KnownSecrets] = Recent(10_000)


def why_guessable(value: str) -> str | None:
    """Say why a value is too easy to guess; ``None`` if it is not. A user who may use a secret but not see it could
    find out a short one by guessing, because the right guess is masked. A short one would also occur in ids by
    chance."""
    if len(value) < _MIN_CHARS:
        return f"{len(value) or 'no'} characters; it needs at least {_MIN_CHARS}"

    min_digits = 10
    has_letter = any(map(str.isalpha, value))
    if len(value) < min_digits and not has_letter:
        return f"{len(value)} characters and no letter, as a PIN; it needs at least {min_digits}"

    min_different = 5
    different = len(set(value))
    if different < min_different:
        return f"{different} different characters; it needs at least {min_different}"
    return None


def known_to(user: str | None) -> KnownSecrets:
    """Return the values given to that user: masking any other value would reveal that it is a secret. ``None`` is the
    operator, for whom all known values are masked."""
    if user is None:
        return KNOWN_SECRETS
    return _SECRETS_BY_USER.setdefault(user, KnownSecrets())


def record_given_secret(user: str | None, name: str, value: str) -> None:
    """Add a value to the known secrets of the process, and to those that are masked for ``user``, who was given it."""
    KNOWN_SECRETS.add(name, value)
    if user is None:
        return
    secrets = known_to(user)
    secrets.add(name, value)
    # The secrets of a user with an open session stay known even without an entry here.
    _SECRETS_OF_RECENT_USERS[user] = secrets


def _redact_logs() -> None:
    """Install a record factory for all loggers: a filter of one logger would not see the records of its child
    loggers."""
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
    """Mask the message and the traceback of a log record. A record without a known value stays as it is, since some
    formatters, such as those of access logs, read its arguments."""
    try:
        message = record.getMessage()
    except (TypeError, ValueError):
        # logging itself reports a message that does not match its arguments.
        return

    redacted = KNOWN_SECRETS.mask_text(message)
    if redacted != message:
        record.msg, record.args = redacted, ()
    if record.exc_info:
        traceback = logging.Formatter().formatException(record.exc_info)
        redacted = KNOWN_SECRETS.mask_text(traceback)
        if redacted != traceback:
            record.exc_text = redacted
