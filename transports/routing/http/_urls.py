"""URLs of downloads and manifests: parsing, origins, credentials in headers and queries, and redaction for messages."""

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

from ...protocol._plain_text import redact_url
from ._headers import one_line

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host, port (RFC 6454)."""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_NUMERIC_HOST = re.compile(r"[0-9][0-9a-fx]*(\.[0-9a-fx]+){0,3}\.?", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH_SAFE = "/:@!$&'()*+,;=~-._%[]|"
_QUERY_SAFE = _PATH_SAFE + "?"
# Headers with credentials, the only ones that an app may set. Others control how a request travels, undo a check, or
# open the metadata services of clouds (``Metadata-Flavor``, ``X-aws-ec2-metadata-token``).
_CREDENTIALS = {
    "api-key",
    "authorization",
    "cookie",
    "private-token",
    "x-access-token",
    "x-api-key",
    "x-auth-token",
    "x-csrf-token",
    "x-key",
    "x-token",
    "x-xsrf-token",
}


class BadUrl(ValueError):
    """Raised for a URL that cannot be requested. Its text is the reason, without secrets."""


class BadHeader(ValueError):
    """Raised for a header that may not be sent. Its text is the reason; it may hold the name, never the value."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed http(s) URL.

    ``url`` has no user info and no fragment; ``authorization`` is the user info as an ``Authorization`` header.
    """

    url: URL
    authorization: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> Origin:
        return self.url.scheme, self.url.raw_host or "", self.url.port or 0

    @property
    def display_url(self) -> str:
        """The URL for messages and logs, without its query."""
        return redact_url(str(self.url))


def parse(text: str, base_url: str | None = None) -> Target:
    """Parse an absolute URL, or a relative one that is resolved against ``base_url``.

    Path and query keep their spelling, which a signature may cover; only characters that are invalid in a URL are
    quoted. A numeric host in decimal, octal, hexadecimal or short form becomes a dotted address, as in every resolver.
    Raises :class:`BadUrl`.
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
        authority = _host(parts.hostname or "")
        if parts.port not in (None, {"http": 80, "https": 443}[name]):
            authority += f":{parts.port}"
        path = quote(parts.path or "/", safe=_PATH_SAFE, errors="surrogateescape")
        query = quote(parts.query, safe=_QUERY_SAFE, errors="surrogateescape")
        if query:
            path += f"?{query}"
        url = URL(f"{name}://{authority}{path}", encoded=True)
        authorization = None
        if parts.username is not None or parts.password is not None:
            user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(user.encode()).decode()
        return Target(url, authorization)
    except BadUrl:
        raise
    except ValueError:  # its text quotes the URL, which may hold a secret
        raise BadUrl("it is not a valid URL") from None


def resolve_redirect(source: Target, location: str) -> Target:
    """Return the target of a ``Location``, or of a link on a page, at ``source``. Raises :class:`BadUrl` for user info
    and for a step from https: to http:."""
    target = parse(location, str(source.url))
    if target.authorization:
        raise BadUrl("it holds user info")
    if source.url.scheme == "https" and target.url.scheme != "https":
        raise BadUrl(f"it leads from https: to http: ({target.display_url})")
    return target


def _host(name: str) -> str:
    """Return a host in the form of a URL: IDNA, canonical IPv4, IPv6 in brackets."""
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
    """Return the origin of the app's page, or ``None`` if no download can share it (``file:``, an extension)."""
    if base_url is None:
        return None
    try:
        return parse(base_url).origin
    except BadUrl:
        return None


def add_query(url: URL, extra: Mapping[str, str], *, keep: bool = False) -> URL:
    """Return ``url`` with the credentials ``extra`` added to its query. With ``keep`` (after a redirect), names that
    the query has already keep their values."""
    present = parse_qsl(url.raw_query_string, keep_blank_values=True)
    names = {name for name, _ in present}
    missing = [item for item in extra.items() if item not in present and not (keep and item[0] in names)]
    if not missing:
        return url
    query = "&".join(filter(None, (url.raw_query_string, urlencode(missing, quote_via=quote))))
    return URL(f"{str(url).partition('?')[0]}?{query}", encoded=True)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise :class:`BadHeader` for a header that is invalid or that an app may not set."""
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise BadHeader("the name of a header of its auth is not valid")
        if name.lower() not in _CREDENTIALS:
            raise BadHeader(
                f"its auth may not set the header {name[:40]}; use Authorization, X-API-Key or X-Auth-Token"
            )
        if not value.isprintable():
            raise BadHeader(f"the value of its header {name[:40]} holds characters that no header may hold")


def secret_forms(*texts: str) -> set[str]:
    """Return the forms in which the credentials ``texts`` could appear in a message: each as a whole, its words, its
    quoted forms, and the decoded parts of ``Basic`` credentials. Forms of less than four characters are left out:
    masking them would make a message unreadable."""
    forms: set[str] = set()
    for text in texts:
        parts = [text, *text.split()]
        if text.startswith("Basic "):
            with suppress(ValueError):  # the text after Basic need not be Base64
                clear = base64.b64decode(text[6:] + "==").decode()
                parts += [clear, *clear.split(":", 1)]
        for part in parts:
            forms |= {part, quote(part), quote(part, safe=""), unquote(part)}
    return {form for form in forms if len(form) >= 4}


def display_unparsed_url(text: str) -> str:
    """Return a URL that could not be parsed, for a message. With an ``@``, which may follow user info, only its scheme
    is returned."""
    if "@" in text:
        scheme = _SCHEME.match(text.strip())
        return one_line(scheme[0] if scheme else "", 20) + "…"
    return one_line(redact_url(text.strip()), 200)
