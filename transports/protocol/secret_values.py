"""Removes secrets by value: what the rules of :mod:`.redaction` find in one place is removed from all others too.

A name says that a value is secret only where the name stands beside it. The same password in a line of a console, in
the text of a page or in base64 has no name. No I/O.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote_plus

from .redaction import REDACTED, Redactor
from .secrets import KNOWN_SECRETS, placeholders, spellings

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
_RUN = re.compile(r"[A-Za-z0-9+/_-]{8,}+={0,2}")
#: Characters that the rules look at in one go: a search holds the interpreter's lock, 0.2 s for a megabyte.
_PIECE = 1 << 16


class _Piecewise(Redactor):
    """The rules for long texts, cut where a line or a word ends."""

    def text(self, text: str) -> str:
        return super().text(text) if len(text) <= _PIECE else "".join(map(super().text, _pieces(text)))


class SecretValues:
    """The secret values of one call, and texts without them.

    :meth:`learn` and its like take what holds secrets; :meth:`text` and :meth:`tree` redact by the rules and by the
    values. For one thread at a time.
    """

    def __init__(self) -> None:
        self._redactor = _Piecewise()
        self._values: dict[str, tuple[str, ...]] = {}
        self._cores: set[str] = set()

    # --- learning -----------------------------------------------------------------------------------------------------

    def learn(self, node: object) -> None:
        """Remember what the rules call secret in JSON values or in a text. Raises :class:`RecursionError` as
        :meth:`tree`."""
        node = KNOWN_SECRETS.tree(node)  # the rules do so too, and both texts are compared by their lengths
        for original, clean in _differences(node, self._redactor.whole_tree(node)):
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
            self._values[value] = tuple(sorted(spellings(value), key=len, reverse=True))
            # one value may be the beginning of another
            self._values = dict(sorted(self._values.items(), key=lambda one: -len(one[0])))
            self._cores.update(_base64_cores(value))

    def is_secret_field(self, attributes: dict[str, str]) -> bool:
        """Return whether a field of a form with these attributes holds a secret."""
        names = (attributes.get(key, "") for key in ("name", "id", "autocomplete"))
        return attributes.get("type", "").lower() == "password" or any(
            map(self._redactor.is_secret, filter(None, names))
        )

    # --- redacting ----------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a text without secrets: without the known values, and by the rules of forms."""
        return self._redactor.text(self.by_value(text))

    def line(self, text: str) -> str:
        """Return a line of a console or a body of a form without secrets: as :meth:`text`, and pairs of a secret name
        and its value, without a URL around them."""
        return self._redactor.text(_PAIR.sub(self._pair, self.by_value(text)))

    def tree(self, node: object, keep: Callable[[str], bool] | None = None) -> object:
        """Return JSON values without secrets, their keys, too. The values of keys that ``keep`` names stay as they are;
        with ``keep`` a key that is a known value, and no more, is taken for a name of the format.

        Raises :class:`RecursionError` for what is nested too deeply to be looked through: it is not kept."""
        return self._redactor.whole_tree(self._tree(node, keep))

    def by_value(self, text: str) -> str:
        """Return a text without the known values, as they are, escaped, and in base64."""
        text = KNOWN_SECRETS.text(text)
        for forms in self._values.values():
            for spelling in forms:
                if spelling in text:
                    text = text.replace(spelling, REDACTED)
        cores = [core for core in (*self._cores, *_all_cores(KNOWN_SECRETS.values)) if core in text]
        if not cores:
            return text
        return _RUN.sub(lambda run: REDACTED if any(core in run[0] for core in cores) else run[0], text)

    def holds_any(self, data: bytes) -> bool:
        """Return whether bytes hold a known value, as it is or in base64."""
        spelled = (spelling for forms in self._values.values() for spelling in forms)
        cores = (*self._cores, *_all_cores(KNOWN_SECRETS.values))
        return KNOWN_SECRETS.are_in(data) or any(text.encode(errors="replace") in data for text in (*spelled, *cores))

    def _tree(self, node: object, keep: Callable[[str], bool] | None) -> object:
        match node:
            case str():
                return self.by_value(node)
            case dict():
                return {
                    self._key(key, keep): value if keep is not None and keep(key) else self._tree(value, keep)
                    for key, value in node.items()
                }
            case list() | tuple():
                return [self._tree(item, keep) for item in node]
            case _:
                return node

    def _key(self, key: str, keep: Callable[[str], bool] | None) -> str:
        return key if keep is not None and (keep(key) or key in self._values) else self.by_value(key)

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


def _base64_cores(value: str) -> Iterator[str]:
    """What every base64 text with ``value`` somewhere in it has: one of three, for where in a group of three bytes it
    begins; and the same with the other alphabet."""
    data = value.encode(errors="replace")
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data)
        # characters that depend on the bytes before or after the value are not part of it
        core = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6].decode()
        if len(core) >= _SHORTEST:
            yield core
            if (other := core.translate(str.maketrans("+/", "-_"))) != core:
                yield other


@lru_cache(maxsize=1)
def _all_cores(values: frozenset[str]) -> frozenset[str]:
    """The same of several values, made anew only when they change."""
    return frozenset(core for value in values for core in _base64_cores(value))


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
