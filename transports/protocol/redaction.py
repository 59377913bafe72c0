"""The rules of what is secret in text and JSON, and its replacement. No I/O.

Recordings, the ``source`` of artifacts and the message log of failed tests follow the same rules. A replay applies them
to what it is asked, too, so that a call with any password matches what was recorded with another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["REDACTED", "Redactor"]

#: What stands in the place of a secret.
REDACTED = "<redacted>"

#: Ends of names, in lower case and without punctuation, whose values are secret: ``api_key``, ``clientSecret``.
_SECRET_NAMES = (
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "authorisation",
    "cookie",
    "cookies",
    "credential",
    "credentials",
)
#: An id of a call, which an app gives back in its progress; and schemas, which describe values and hold none.
_NEVER_SECRET = ("progressToken", "inputSchema", "outputSchema")
#: In a URL's query a signature is as good as a password, and short names have no other meaning.
_SECRET_IN_QUERIES = (*_SECRET_NAMES, "signature", "sig", "key", "pwd", "auth", "code")
#: An app chooses the text: the time of each must be in proportion to its length, so nothing here may backtrack far.
_PATTERNS = (
    r"://(?P<secret>[^/\s@\"'<>]+)@",  # user info
    r"\bbearer\s++(?P<secret>(?=[^\s]*\d)[A-Za-z0-9._~+/=-]{8,})",  # RFC 6750
    r"\bbasic\s++(?P<secret>(?=[^\s]*[\d=])[A-Za-z0-9+/]{6,}={0,2})",  # RFC 7617
    r"(?m)^[^\S\n]*+(?:proxy-)?(?:authorization|cookie|set-cookie|x-[\w-]*(?:key|token|secret))\s*+:\s*+(?P<secret>\S.*)$",
)
_DOTTED = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+){2,}+")
_JWT_HEAD = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}", re.IGNORECASE)
_NOT_PLAIN = re.compile(r"[^a-z0-9]")
_QUERY = re.compile(r"[?&;#]([\w.~-]+)=")
_QUERY_VALUE = re.compile(r"[^&#\s\"'<>]+")


class Redactor:
    """The rules, with additions. ``fields`` are further ends of names, ``patterns`` further regular expressions without
    regard to case; of a match the group ``secret`` is replaced, or the whole. Redacting twice changes nothing."""

    def __init__(self, fields: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        more = tuple(_bare(name) for name in fields)
        self._names = (*_SECRET_NAMES, *more)
        self._in_queries = (*_SECRET_IN_QUERIES, *more)
        self._patterns = [re.compile(pattern, re.IGNORECASE) for pattern in _PATTERNS]
        self._more_patterns = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]

    def is_secret(self, name: str) -> bool:
        """Return whether values of this name are secret: ``auth``, and names that end with ``password``, ``token``,
        ``api_key`` and their like, in any case and punctuation."""
        bare = _bare(name)
        return name not in _NEVER_SECRET and (bare == "auth" or bare.endswith(self._names))

    def text(self, text: str) -> str:
        """Return text without credentials in URLs, header lines, bearer and basic credentials, JSON web tokens."""
        for pattern in self._more_patterns:  # first, so that they see the text as it was
            text = pattern.sub(_redact_match, text)
        if _may_hold_secrets(text.casefold()):
            text = self._queries(text)
            for pattern in self._patterns:
                text = pattern.sub(_redact_match, text)
            text = _DOTTED.sub(_redact_jwt, text)
        return text

    def tree(self, node: object) -> object:
        """Return JSON values without secrets. A value that JSON does not have (content) stays as it is."""
        match node:
            case str():
                return self.text(node)
            case dict():
                return {key: self.field(key, value) for key, value in node.items()}
            case list() | tuple():
                return [self.tree(item) for item in node]
            case _:
                return node

    def field(self, name: object, value: object) -> object:
        """Return the value of a field without secrets, judged by its name and by itself. Of a reference's
        ``auth: {type, header | token}`` (docs/protocol.md 10.3) the type stays."""
        if not isinstance(name, str):
            return self.tree(value)
        if name in _NEVER_SECRET:
            return self._texts(value)
        if not self.is_secret(name):
            return self.tree(value)
        if _bare(name) == "auth" and isinstance(value, Mapping):
            return {key: item if key == "type" else _blank(item) for key, item in value.items()}
        return _blank(value)

    def _texts(self, node: object) -> object:
        """Redact texts by their form alone, whatever the names of the fields."""
        match node:
            case str():
                return self.text(node)
            case dict():
                return {key: self._texts(value) for key, value in node.items()}
            case list() | tuple():
                return [self._texts(item) for item in node]
            case _:
                return node

    def _queries(self, text: str) -> str:
        """Redact the queries of URLs, also of one that is the value of another's field."""
        done: list[str] = []
        at = 0
        for field in _QUERY.finditer(text):
            if field.start() >= at and _bare(field[1]).endswith(self._in_queries):
                value = _QUERY_VALUE.match(text, field.end())
                if value is not None:
                    done += (text[at : field.end()], REDACTED)
                    at = value.end()
        return "".join((*done, text[at:]))


def _blank(value: object) -> object:
    """Replace texts and numbers, keep the shape. Content that is called ``token`` is content."""
    match value:
        case dict() if "mimeType" not in value:
            return {key: _blank(item) for key, item in value.items()}
        case list() | tuple():
            return [_blank(item) for item in value]
        case str() if value:
            return REDACTED
        case int() | float() if not isinstance(value, bool):
            return REDACTED
        case _:
            return value


def _redact_match(found: re.Match[str]) -> str:
    if "secret" not in found.re.groupindex or found["secret"] is None:
        return REDACTED
    start, end = found.start("secret") - found.start(), found.end("secret") - found.start()
    return found[0][:start] + REDACTED + found[0][end:]


def _redact_jwt(found: re.Match[str]) -> str:
    """Replace JSON web tokens (RFC 7519) in words with dots between them. One pattern for both would be quadratic."""
    words = found[0].split(".")
    done: list[str] = []
    at = 0
    while at < len(words):
        head = _JWT_HEAD.search(words[at]) if at + 2 < len(words) and len(words[at + 1]) >= 8 else None
        done.append(words[at] if head is None else words[at][: head.start()] + REDACTED)
        at += 1 if head is None else 3
    return ".".join(done)


def _may_hold_secrets(folded: str) -> bool:
    """Return whether a text in lower case holds what every match of the rules above and of a query holds; most hold
    none, and need no search. "bas" stands for "basic": without regard to case a pattern's "i" is the Turkish ones too,
    which do not fold to it."""
    return "=" in folded or "@" in folded or ":" in folded or "bas" in folded or "bearer" in folded or "eyj" in folded


def _bare(name: str) -> str:
    return _bare_short(name) if len(name) <= 64 else _NOT_PLAIN.sub("", name.lower())


@lru_cache(maxsize=1024)
def _bare_short(name: str) -> str:
    return _NOT_PLAIN.sub("", name.lower())
