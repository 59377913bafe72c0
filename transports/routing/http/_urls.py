"""URLs of downloads and manifests: parsing, origins, credentials in headers and queries, and redaction for messages."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from yarl import URL

from ...protocol._http_headers import HEADER_NAME
from ...protocol._plain_text import plain_line, redact_url

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_NUMERIC_HOST = re.compile(r"[0-9][0-9a-fx]*(\.[0-9a-fx]+){0,3}\.?", re.IGNORECASE)
#: Characters that browsers strip from both ends of a URL.
_CONTROLS_AND_SPACE = "".join(map(chr, range(33)))
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


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. ``url`` has no user info and no fragment; ``authorization`` is the user info as an
    ``Authorization`` header."""

    url: URL
    authorization: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> Origin:
        return Origin(self.url.scheme, self.url.raw_host or "", self.url.port or 0)

    @property
    def display_url(self) -> str:
        return redact_url(str(self.url))


def parse(text: str, base_url: str | None = None) -> Target:
    """Parse an absolute URL, or a relative one that is resolved against ``base_url``.

    Path and query keep their spelling, which a signature may cover; only characters that are invalid in a URL are
    quoted. A numeric host in decimal, octal, hexadecimal or short form becomes a dotted address, as in every resolver.
    Raises :class:`BadUrl`."""
    text = re.sub(r"[\t\r\n]", "", text.strip(_CONTROLS_AND_SPACE))
    # Browsers read backslashes so, which servers on Windows write.
    address = re.split("[?#]", text, maxsplit=1)[0]
    text = address.replace("\\", "/") + text.removeprefix(address)
    match = _SCHEME.match(text)
    if match is None:
        if base_url is None:
            raise BadUrl("it is relative and the page it belongs to is not known")
        match = _SCHEME.match(base_url.strip())
    # A base URL may have no scheme either; the message then says "no:".
    scheme = match[1].lower() if match else "no"
    if scheme not in ("http", "https"):
        raise BadUrl(f"its scheme is {scheme[:20]}:, and only http: and https: can be fetched from outside the page")

    try:
        # The standard library's urljoin merges slashes.
        parts = urlsplit(str(URL(base_url or "", encoded=True).join(URL(text, encoded=True))))
        return Target(_encoded_url(scheme, parts), _basic_authorization(parts))
    except BadUrl:
        raise
    except ValueError:
        # Its text quotes the URL, which may hold a secret.
        raise BadUrl("it is not a valid URL") from None


def _encoded_url(scheme: str, parts: SplitResult) -> URL:
    """Return a URL without user info and fragment, and with its invalid characters quoted."""
    authority = _canonical_host(parts.hostname or "")
    # The default port is left out, because URLs with and without it are not equal.
    default_port = 80 if scheme == "http" else 443
    if parts.port not in (None, default_port):
        authority += f":{parts.port}"
    safe = "/:@!$&'()*+,;=~-._%[]|"
    path = quote(parts.path or "/", safe=safe, errors="surrogateescape")
    query = quote(parts.query, safe=f"{safe}?", errors="surrogateescape")
    if query:
        path += f"?{query}"
    return URL(f"{scheme}://{authority}{path}", encoded=True)


def _basic_authorization(parts: SplitResult) -> str | None:
    if parts.username is None and parts.password is None:
        return None
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(credentials.encode()).decode()


def resolve_redirect(source: Target, location: str) -> Target:
    """Resolve a redirect, or a link. Raises :class:`BadUrl` for user info, and for a step from https: to http:."""
    target = parse(location, str(source.url))
    if target.authorization:
        raise BadUrl("it holds user info")
    if source.url.scheme == "https" and target.url.scheme != "https":
        raise BadUrl(f"it leads from https: to http: ({target.display_url})")
    return target


def _canonical_host(name: str) -> str:
    """Return a host in the form of a URL: IDNA, canonical IPv4, IPv6 in brackets."""
    if not name:
        raise BadUrl("it has no host")
    host = URL.build(scheme="http", host=name).raw_host or ""
    if ":" in host:
        return f"[{host}]"
    if "%" in host:
        raise BadUrl("its host is not valid")
    if _NUMERIC_HOST.fullmatch(host):
        # inet_aton reads all the forms that resolvers do. A name such as 999.1.1.1 looks numeric, too.
        with suppress(OSError):
            return socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    return host


def origin_of(base_url: str | None) -> Origin | None:
    """Return the origin of a page, or ``None`` if no download can share it (``file:``, an extension)."""
    if base_url is None:
        return None
    try:
        return parse(base_url).origin
    except BadUrl:
        return None


def add_query(url: URL, extra: Mapping[str, str], *, keep: bool = False) -> URL:
    """Add credentials to the query of a URL. With ``keep`` (after a redirect), parameters keep the values they have."""
    present = parse_qsl(url.raw_query_string, keep_blank_values=True)
    present_names = {name for name, _ in present}
    missing: list[tuple[str, str]] = []
    for name, value in extra.items():
        keeps_value = keep and name in present_names
        if (name, value) not in present and not keeps_value:
            missing.append((name, value))
    if not missing:
        return url

    query = urlencode(missing, quote_via=quote)
    if url.raw_query_string:
        query = f"{url.raw_query_string}&{query}"
    return URL(f"{str(url).partition('?')[0]}?{query}", encoded=True)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise :class:`BadHeader` unless these are headers for credentials with valid values."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise BadHeader("the name of a header of its auth is not valid")
        if name.lower() not in _CREDENTIALS:
            raise BadHeader(
                f"its auth may not set the header {name[:40]}; use Authorization, X-API-Key or X-Auth-Token"
            )
        if not value.isprintable():
            raise BadHeader(f"the value of its header {name[:40]} holds characters that no header may hold")


def secret_forms(*texts: str) -> set[str]:
    """Return the whole texts, their words, the decoded parts of ``Basic`` credentials, and each of them quoted and
    unquoted. Forms of less than four characters are left out: masking them would make a message unreadable."""
    forms: set[str] = set()
    for text in texts:
        parts = [text, *text.split()]
        if text.startswith("Basic "):
            # The text after Basic need not be Base64. The decoder ignores more padding than is needed.
            with suppress(ValueError):
                credentials = base64.b64decode(text.removeprefix("Basic ") + "==").decode()
                parts += [credentials, *credentials.split(":", 1)]
        for part in parts:
            forms |= {part, quote(part), quote(part, safe=""), unquote(part)}
    min_chars = 4
    return {form for form in forms if len(form) >= min_chars}


def display_unparsed_url(text: str) -> str:
    """Return a URL for a message: shortened, and only its scheme if it has an ``@``, which may follow user info."""
    text = text.strip()
    if "@" not in text:
        return plain_line(redact_url(text), 200)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return "…"
    return f"{scheme[0][:20]}…"
