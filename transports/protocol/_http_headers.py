"""Headers of requests as a caller gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import UsageError

#: A token of RFC 9110.
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def check_headers(headers: Mapping[str, str], receiver: str) -> None:
    """Raise :class:`~transports.errors.UsageError`, without the value, for a header that cannot be sent."""
    for name, value in headers.items():
        # A tab may be part of a value.
        if not (name.isascii() and value.isascii() and value.replace("\t", " ").isprintable()):
            raise UsageError(f"the header {name[:100]!r} of {receiver} has a line end or a character beyond ASCII")
        if not HEADER_NAME.fullmatch(name):
            raise UsageError(f"{name[:100]!r} of {receiver} is not the name of a header")
