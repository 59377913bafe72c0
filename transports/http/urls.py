"""Download URLs: parsed once, compared by origin, and joined by credentials only where those belong."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

from yarl import URL

from ..protocol.urls import redact_url
from .headers import plain

__all__ = [
    "BadHeader",
    "BadUrl",
    "Origin",
    "Target",
    "check_headers",
    "origin_of",
    "parse",
    "redirected",
    "secrets_of",
    "shown_anyway",
    "with_query",
]

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host, port (RFC 6454)."""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_NUMERIC_HOST = re.compile(r"[0-9][0-9a-fx]*(\.[0-9a-fx]+){0,3}\.?", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH_SAFE = "/:@!$&'()*+,;=~-._%[]|"
_QUERY_SAFE = _PATH_SAFE + "?"
# What says how this one request travels is ours: an app that could set it could desynchronise a server or undo a check.
_OURS = {
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_OURS |= {"accept-encoding", "if-range", "proxy-authorization", "proxy-connection", "range"}


class BadUrl(ValueError):
    """The reason, fit for a message."""


class BadHeader(ValueError):
    """The reason, fit for a message: it holds the name at most, never the value."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed http(s) URL. ``url`` has no user info and no fragment; ``authorization`` is what the user info says, as
    the value of an ``Authorization`` header."""

    url: URL
    authorization: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> Origin:
        return self.url.scheme, self.url.raw_host or "", self.url.port or 0

    @property
    def shown(self) -> str:
        """The URL as messages and logs may have it."""
        return redact_url(str(self.url))


def parse(text: str, base_url: str | None = None) -> Target:
    """An absolute URL, or a relative one that is resolved against ``base_url``.

    Path and query keep the spelling they came in (a signature may cover it); only what no URL may hold is quoted.
    Numeric hosts in decimal, octal, hexadecimal or short form become the dotted address that every resolver makes of
    them. Raises :class:`BadUrl`.
    """
    text = re.sub(r"[\t\r\n]", "", text.strip("".join(map(chr, range(33)))))
    scheme = _SCHEME.match(text)
    if scheme is None and base_url is None:
        raise BadUrl("it is relative and the page it belongs to is not known")
    if scheme is None and base_url is not None:
        scheme = _SCHEME.match(base_url.strip())
    name = scheme[1].lower() if scheme else "no"
    if name not in ("http", "https"):
        raise BadUrl(f"its scheme is {name[:20]}:, and only http: and https: can be fetched from outside the page")
    try:
        parts = urlsplit(urljoin(base_url or "", text))
        port, host = parts.port, _host(parts.hostname or "")
        authority = host if port is None or port == {"http": 80, "https": 443}[name] else f"{host}:{port}"
        path = quote(parts.path or "/", safe=_PATH_SAFE, errors="surrogateescape")
        query = quote(parts.query, safe=_QUERY_SAFE, errors="surrogateescape")
        url = URL(f"{name}://{authority}{path}" + (f"?{query}" if query else ""), encoded=True)
        authorization = None
        if parts.username is not None or parts.password is not None:
            user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(user.encode()).decode()
        return Target(url, authorization)
    except BadUrl:
        raise
    except ValueError:  # its text quotes the URL, which may hold a secret
        raise BadUrl("it is not a valid URL") from None


def redirected(source: Target, location: str) -> Target:
    """Where ``source`` sends us: a ``Location``, or a link on its page. Raises :class:`BadUrl` where nobody follows:
    to user info that is not ours, and from https: to http:."""
    target = parse(location, str(source.url))
    if target.authorization:
        raise BadUrl("it holds user info")
    if source.url.scheme == "https" and target.url.scheme != "https":
        raise BadUrl(f"it leads from https: to http: ({target.shown})")
    return target


def _host(name: str) -> str:
    """A host as it stands in a URL: IDNA, canonical IPv4, IPv6 in brackets."""
    if not name:
        raise BadUrl("it has no host")
    raw = URL.build(scheme="http", host=name).raw_host or ""
    if ":" in raw:
        return f"[{raw}]"
    if "%" in raw:
        raise BadUrl("its host is not valid")
    if _NUMERIC_HOST.fullmatch(raw):
        try:
            return socket.inet_ntoa(socket.inet_aton(raw.removesuffix(".")))
        except OSError:
            return raw
    return raw


def origin_of(base_url: str | None) -> Origin | None:
    """The app's own origin, or ``None`` where no download can share it (``file:``, an extension)."""
    if base_url is None:
        return None
    try:
        return parse(base_url).origin
    except BadUrl:
        return None


def with_query(url: URL, extra: Mapping[str, str], *, keep: bool = False) -> URL:
    """``url`` with credentials in its query. With ``keep`` (after a redirect), a value
    that it has already stays the only one."""
    there = parse_qsl(url.raw_query_string, keep_blank_values=True)
    names = {name for name, _ in there}
    missing = [item for item in extra.items() if item not in there and not (keep and item[0] in names)]
    if not missing:
        return url
    query = "&".join(filter(None, (url.raw_query_string, urlencode(missing, quote_via=quote))))
    return URL(f"{str(url).partition('?')[0]}?{query}", encoded=True)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises :class:`BadHeader` for what would not be a header, or is not the app's to set."""
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise BadHeader("a header of its auth has no valid name")
        if name.lower() in _OURS:
            raise BadHeader(f"its auth may not set the header {name[:40]}")
        if not value.isprintable():
            raise BadHeader(f"the value of its header {name[:40]} holds characters that no header may hold")


def secrets_of(*texts: str) -> set[str]:
    """What must not appear in a message if ``texts`` are credentials: each whole, its words, as quoted in URLs, and
    what a ``Basic`` one holds. Shorter than four characters it would only make the message unreadable."""
    found: set[str] = set()
    for text in texts:
        parts = [text, *text.split()]
        if text.startswith("Basic "):
            with suppress(ValueError):  # an app may call anything Basic
                clear = base64.b64decode(text[6:] + "==").decode()
                parts += [clear, *clear.split(":", 1)]
        for part in parts:
            found |= {part, quote(part), quote(part, safe=""), unquote(part)}
    return {part for part in found if len(part) >= 4}


def shown_anyway(text: str) -> str:
    """A URL that could not be parsed, for a message. Where an ``@`` stands in it, what is user info cannot be told:
    then it is the scheme alone."""
    if "@" in text:
        scheme = _SCHEME.match(text.strip())
        return plain(scheme[0] if scheme else "", 20) + "…"
    return plain(redact_url(text.strip()), 200)
