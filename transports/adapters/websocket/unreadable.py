"""Messages that cannot be read: their errors, and the requests that they answer."""

from __future__ import annotations

import re

from ...errors import ProtocolError

__all__ = ["answered_request", "is_utf8", "unreadable_error"]

_ID_PATTERN = re.compile(rb'"id"\s*:\s*"([^"\\]{1,128})"')


def unreadable_error(error: Exception) -> ProtocolError:
    """Return what reading a message raised as an error of ours."""
    if isinstance(error, ProtocolError):
        return error
    return ProtocolError(f"the app sent a message that cannot be read ({type(error).__name__})")


def answered_request(data: bytes) -> str | None:
    """Return the id that stands near the beginning or the end of a message that cannot be parsed."""
    found = _ID_PATTERN.search(data[:4096]) or _ID_PATTERN.search(data[-4096:])
    return found[1].decode(errors="replace") if found else None


def is_utf8(data: bytes) -> bool:
    """Return whether text frames may hold ``data`` (RFC 6455 §8.1)."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
