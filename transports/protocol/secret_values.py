"""Removes secrets by value: what the rules of :mod:`.redaction` find in one place is removed from all others too.

A name says that a value is secret only where the name stands beside it. The same password in a line of a console, in
the text of a page or in base64 has no name. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import unquote_plus

from .masking import masked_tree, replaced
from .redaction import REDACTED, Redactor
from .secrets import KNOWN_SECRETS, KnownSecrets, placeholders
from .spellings import Finder

__all__ = ["SecretValues"]

#: Characters of a value that is removed wherever it stands. A shorter one is part of too many words, and is removed
#: only beside its name; a longer one is content.
_SHORTEST, _LONGEST = 6, 4096
#: Values that are remembered; an app chooses how many there are.
_MAX_VALUES = 200
#: Words that stand beside secret names in schemas, scripts and forms.
_WORDS = frozenset(
    ("string", "number", "integer", "boolean", "object", "undefined", "function", "required", "password")
)
#: ``name=value``, ``name: value``, ``"name": "value"`` in a line of text.
_PAIR = re.compile(r"(?<![\w.-])([\w.-]{2,64})[\"']?\s{0,4}[:=]\s{0,4}[\"']?([^\s\"',;&{}\[\]<>]{1,4096})")
#: A field of a form in HTML, and its attributes.
_INPUT = re.compile(r"<input\b[^<>]{1,4096}>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"([\w-]{1,64})\s{0,4}=\s{0,4}(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
#: The scheme of a header with credentials (RFC 9110 11.4), and what follows it.
_SCHEME = re.compile(r"(?:basic|bearer|token|apikey|negotiate|digest)\s+(\S+)", re.IGNORECASE)
#: Fields of a cookie that are replaced together with its value and are no secrets.
_ABOUT_COOKIES = frozenset(("name", "domain", "path", "expires", "sameSite"))
#: Characters that the rules look at in one go: a search holds the interpreter's lock, 0.2 s for a megabyte.
_PIECE = 1 << 16


class _Piecewise(Redactor):
    """The rules for long texts, cut where a line or a word ends."""

    def rules(self, text: str) -> str:
        return super().rules(text) if len(text) <= _PIECE else "".join(map(super().rules, _pieces(text)))


class SecretValues:
    """The secret values of one call, and texts without them.

    :meth:`learn` and its like take what holds secrets; :meth:`text` and :meth:`tree` redact by the rules and by the
    values, of which ``known`` are those of the caller who gets it. For one thread at a time.
    """

    def __init__(self, known: KnownSecrets = KNOWN_SECRETS) -> None:
        self._known = known
        self._known_to_finder: object = None
        self._redactor = _Piecewise(known=known)
        self._values: set[str] = set()
        self._finder: Finder | None = None

    # --- learning -----------------------------------------------------------------------------------------------------

    def learn(self, node: object) -> None:
        """Remember what the rules call secret in JSON values or in a text. Raises :class:`RecursionError` as
        :meth:`tree`."""
        node = self._known.tree(node)  # the placeholders are no values
        for original, clean in _differences(node, self._redactor.ruled(node)):
            for value in _removed(original, clean):
                self.learn_value(value)

    def learn_pairs(self, text: str) -> None:
        """Remember the secret values in a line such as ``password=…&user=…`` or ``{token: …}``."""
        for found in _PAIR.finditer(text):
            if self._redactor.is_secret(found[1]):
                self.learn_value(found[2])
                self.learn_value(unquote_plus(found[2]))

    def learn_html(self, text: str) -> None:
        """Remember the values of fields for passwords, and of those with secret names, in HTML."""
        import html  # late, as in :mod:`.secrets`

        for field in _INPUT.finditer(text):
            attributes = {one[1].lower(): html.unescape(one[2] or one[3] or one[4] or "")
                          for one in _ATTRIBUTE.finditer(field[0])}  # fmt: skip
            if self.is_secret_field(attributes):
                self.learn_value(attributes.get("value", ""))

    def learn_value(self, value: str) -> None:
        """Remember one value, of 6 to 4,096 characters; the first 200 are. Of a header, what it holds too."""
        value = value.strip()
        if (scheme := _SCHEME.match(value)) is not None:
            self._learn(unquote_plus(scheme[1]))
            self._learn(scheme[1])
        for cookie in value.split(";") if "=" in value[:64] else ():
            self._learn(cookie.partition("=")[2].strip())
            self._learn(unquote_plus(cookie.partition("=")[2].strip()))
        self._learn(value)

    def _learn(self, value: str) -> None:
        known = value in self._values or value.lower() in _WORDS or value == REDACTED
        known = known or any(value == f"${{SECRET:{name}}}" for name in placeholders(value))
        if _SHORTEST <= len(value) <= _LONGEST and not known and len(self._values) < _MAX_VALUES:
            self._values.add(value)
            self._finder = None

    def is_secret_field(self, attributes: dict[str, str]) -> bool:
        """Return whether a field of a form with these attributes holds a secret."""
        names = (attributes.get(key, "") for key in ("name", "id", "autocomplete"))
        return attributes.get("type", "").lower() == "password" or any(
            map(self._redactor.is_secret, filter(None, names))
        )

    # --- redacting ----------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a text without secrets: without the known values, and by the rules of forms."""
        return self._redactor.rules(self.by_value(text))

    def line(self, text: str) -> str:
        """Return a line of a console or a body of a form without secrets: as :meth:`text`, and pairs of a secret name
        and its value, without a URL around them."""
        return self._redactor.rules(_PAIR.sub(self._pair, self.by_value(text)))

    def pieces(self, texts: Sequence[str]) -> list[str]:
        """Return frames, or lines, without the known values: also without one that goes on in the next."""
        return replaced(texts, self._found())

    def tree(self, node: object, keep: Callable[[str], bool] | None = None) -> object:
        """Return JSON values without secrets, their keys, too. The values of keys that ``keep`` names stay as they are;
        with ``keep`` a key that is a known value, and no more, is taken for a name of the format.

        Raises :class:`RecursionError` for what is nested too deeply to be looked through: it is not kept."""
        names = () if keep is None else self._values
        return self._redactor.ruled(masked_tree(node, self._found(), self._known.numbers, keep=keep, names=names))

    def by_value(self, text: str) -> str:
        """Return a text without the known values, however they are spelled."""
        return replaced([text], self._found())[0]

    def holds_any(self, data: bytes) -> bool:
        """Return whether bytes hold a known value."""
        return bool(self._found().find(data))

    def _found(self) -> Finder:
        """What finds the values that were learned and those that are known."""
        known = self._known.values
        if self._finder is None or self._known_to_finder is not known:
            self._known_to_finder = known
            self._finder = Finder({**dict.fromkeys(self._values, REDACTED), **known})
        return self._finder

    def _pair(self, found: re.Match[str]) -> str:
        if not self._redactor.is_secret(found[1]):
            return found[0]
        at = found.start(2) - found.start()
        return found[0][:at] + REDACTED


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = at + _PIECE
        if end < len(text):
            cut = max(text.rfind("\n", at, end), text.rfind(" ", at, end) if "\n" not in text[at:end] else -1)
            end = cut + 1 if cut > at else end
        yield text[at:end]
        at = end


def _differences(before: object, after: object) -> Iterator[tuple[object, str]]:
    """Pairs of a value and the text that it became."""
    match before, after:
        case dict(), dict():
            for key in before.keys() & after.keys() - (_ABOUT_COOKIES if "domain" in before else set()):
                yield from _differences(before[key], after[key])
        case ((list() | tuple()), (list() | tuple())):
            for one, other in zip(before, after, strict=False):
                yield from _differences(one, other)
        case _, str() if before != after:
            yield before, after


def _removed(before: object, after: str) -> Iterable[str]:
    """The parts of a text that stand as ``<redacted>`` in the other."""
    if not isinstance(before, str):
        return [str(before)]
    pieces = after.split(REDACTED)
    out: list[str] = []
    at = len(pieces[0])
    for piece in pieces[1:]:
        end = before.find(piece, at) if piece else len(before)
        if end < 0:
            break
        out.append(before[at:end])
        at = end + len(piece)
    # an address of a form has them percent-encoded
    return [*out, *map(unquote_plus, out)]
