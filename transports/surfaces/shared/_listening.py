"""Listening addresses of the kit's servers: parsing, and errors. No I/O."""

from __future__ import annotations

import errno
from urllib.parse import urlsplit

from ...errors import UsageError
from ...protocol._plain_text import is_loopback


def cannot_listen(host: str, port: int, error: OSError, option: str) -> UsageError:
    """Return the error for ``host`` and ``port``, with the code ``ADDRESS_UNAVAILABLE``. ``option`` is the option for
    the port."""
    another = f"name another port with {option}, 0 for a free one"
    if error.errno == errno.EADDRINUSE:
        reason = f"port {port} is taken; end the program that listens there, or {another}"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason = f"port {port} may not be used by this user; {another}"
    else:
        reason = f"{error.strerror or error}; name an address of this machine"
    details = {"host": host, "port": port}
    return UsageError(f"cannot listen on {host}:{port}: {reason}", code="ADDRESS_UNAVAILABLE", details=details)


def parse_address(text: str, option: str, public_url: str | None = None) -> tuple[str, int]:
    """Return the host and port of ``HOST:PORT``, the value of ``option``.

    Raises :class:`~transports.errors.UsageError` for another format, and for a host that is not this machine's loopback
    unless a proxy has a ``public_url``, since the kit's servers do not support TLS."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    fits = bool(host and colon and port.isascii() and port.isdigit()) and int(port) < 1 << 16
    if not fits or not (public_url or is_loopback(host)):
        raise UsageError(
            f"{option} {text}: give HOST:PORT of this machine, such as 127.0.0.1:8765; for others put a proxy with TLS "
            "before it, and name its address as public_url (docs/team.md)"
        )
    return host, int(port)


def base_url(text: str) -> str:
    """Return an address without a trailing slash. Raises :class:`ValueError` unless it is a plain http(s) address."""
    parts = urlsplit(text)  # raises ValueError for http://[ and the like
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in text:
        raise ValueError(f"{text!r} is not the address of a server, such as https://abp.example")
    return text.rstrip("/")
