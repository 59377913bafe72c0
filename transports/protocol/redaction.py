"""What is secret in texts, and what stands in its place. No I/O.

The same rules are applied to what is asked of a replay, so that whatever password is given matches what was recorded
with another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["REDACTED", "Redactor"]

REDACTED = "<scrubbed>"

#: Ends of names, in lower case and without punctuation, whose values are secret: ``api_key``, ``clientSecret``.
_FIELDS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
)
#: An id of a call, which an app gives back in its progress; and what describes values, and holds none.
_NO_SECRETS = ("progressToken", "inputSchema", "outputSchema")
#: In a URL's query a signature is as good as a password, and short names have no other meaning.
_IN_QUERIES = (*_FIELDS, "signature", "sig", "key", "pwd", "auth", "code")
_PATTERNS = (
    r"\b[a-z][a-z0-9+.-]*://(?P<secret>[^/\s@\"'<>]+)@",  # user info
    r"\bbearer\s+(?P<secret>(?=[^\s]*\d)[A-Za-z0-9._~+/=-]{8,})",  # RFC 6750
    r"(?m)^\s*(?:proxy-)?(?:authorization|cookie|set-cookie|x-[\w-]*(?:key|token|secret))\s*:\s*(?P<secret>\S.*)$",
    r"\b(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",  # RFC 7519
)
_QUERY = re.compile(r"([?&;#])([\w.~-]+)=([^&#\s\"'<>]+)")


class Redactor:
    """The rules of one recording. ``fields`` are further names, ``patterns`` further regular expressions; of a match
    the group ``secret`` is replaced, or the whole. Scrubbing twice changes nothing."""

    def __init__(self, fields: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        more = tuple(_bare(name) for name in fields)
        self._fields = (*_FIELDS, *more)
        self._in_queries = (*_IN_QUERIES, *more)
        self._patterns = [re.compile(pattern, re.IGNORECASE) for pattern in (*_PATTERNS, *patterns)]

    def text(self, text: str) -> str:
        """Text without credentials in URLs, header lines, bearer and JSON web tokens."""
        text = _QUERY.sub(self._queried, text)
        for pattern in self._patterns:
            text = pattern.sub(_replaced, text)
        return text

    def tree(self, node: object) -> object:
        """JSON values without secrets; what is no JSON value (content) is left as it is."""
        match node:
            case str():
                return self.text(node)
            case dict():
                return {key: self._field(key, value) for key, value in node.items()}
            case list() | tuple():
                return [self.tree(item) for item in node]
            case _:
                return node

    def _field(self, name: object, value: object) -> object:
        if not isinstance(name, str):
            return self.tree(value)
        if name in _NO_SECRETS:
            return self._texts(value)
        if _bare(name) == "auth" and isinstance(value, Mapping):  # PROTOCOL "Binary references": {type, header | token}
            return {key: item if key == "type" else _emptied(item) for key, item in value.items()}
        return _emptied(value) if _bare(name).endswith(self._fields) else self.tree(value)

    def _texts(self, node: object) -> object:
        """Only what is secret by its form."""
        match node:
            case str():
                return self.text(node)
            case dict():
                return {key: self._texts(value) for key, value in node.items()}
            case list() | tuple():
                return [self._texts(item) for item in node]
            case _:
                return node

    def _queried(self, found: re.Match[str]) -> str:
        mark, name, _ = found.groups()
        return f"{mark}{name}={REDACTED}" if _bare(name).endswith(self._in_queries) else found[0]


def _emptied(value: object) -> object:
    """Nothing of a value but its form. Content that is called ``token`` is content."""
    match value:
        case dict() if "mimeType" not in value:
            return {key: _emptied(item) for key, item in value.items()}
        case list() | tuple():
            return [_emptied(item) for item in value]
        case str() if value:
            return REDACTED
        case int() | float() if not isinstance(value, bool):
            return REDACTED
        case _:
            return value


def _replaced(found: re.Match[str]) -> str:
    if "secret" not in found.re.groupindex or found["secret"] is None:
        return REDACTED
    start, end = found.start("secret") - found.start(), found.end("secret") - found.start()
    return found[0][:start] + REDACTED + found[0][end:]


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
