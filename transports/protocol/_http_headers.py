"""Headers of requests as a caller gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit

from ..errors import UsageError
from ._plain_text import redact_url

#: A token of RFC 9110.
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def without_values(text: str, url: str, headers: Mapping[str, str]) -> str:
    """Return what a server says without the values that it was sent: those of headers, and those in its address."""
    text = text.replace(url, redact_url(url))
    address = urlsplit(url)
    values = [value for _, value in parse_qsl(address.query)]
    # A value may be a scheme and a token.
    values += [part for value in headers.values() for part in (value, *value.split())]
    return without_secrets(text, [*values, address.password or ""])


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """A secret under six characters stays, since it may be an ordinary word."""
    long_secrets = {secret for secret in secrets if len(secret) >= 6}
    # A secret may be part of another one.
    for secret in sorted(long_secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def check_headers(headers: Mapping[str, str], receiver: str) -> None:
    """Raise :class:`~transports.errors.UsageError`, without the value, for a header that cannot be sent."""
    for name, value in headers.items():
        # A tab may be part of a value.
        if not (name.isascii() and value.isascii() and value.replace("\t", " ").isprintable()):
            raise UsageError(f"the header {name[:100]!r} of {receiver} has a line end or a character beyond ASCII")
        if not HEADER_NAME.fullmatch(name):
            raise UsageError(f"{name[:100]!r} of {receiver} is not the name of a header")
