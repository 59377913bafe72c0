"""Which hosts a model may connect. Only the address that it gives is judged, not where the page leads."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from ...errors import UsageError

__all__ = ["check_host"]

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
#: What browsers and we read alike; they take ``\`` for ``/``, decode ``%61`` and fold ``ａ``.
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def check_host(url: str, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    """Raises :class:`~transports.errors.UsageError` if the host of ``url`` fits no pattern of ``allowed``, or one of
    ``blocked``. Patterns are of hosts, or of hosts with ports. Without rules nothing is looked at."""
    if tuple(allowed) == ("*",) and not blocked:
        return
    host, port = _host(url)
    names = (host,) if ":" in host else (host, f"{host}:{port}")

    def fits(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in names)

    if not fits(allowed) or fits(blocked):
        raise UsageError(
            f"{host} (port {port}) may not be connected; ask the user, who can allow it (allowed_hosts, blocked_hosts)"
        )


def _host(url: str) -> tuple[str, int]:
    """Host and port as a browser would have them; an IPv6 address without its brackets."""
    wrong = UsageError("url: write the host plainly, such as app.example, 127.0.0.1 or xn--…, without a user before it")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise wrong from None
    if "@" in parts.netloc or not host:
        raise wrong
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise wrong from None
        return str(address.ipv4_mapped or address), port
    if not _NAME.fullmatch(host):
        raise wrong
    if re.fullmatch(r"(0x[0-9a-f]*|\d+)", host.rpartition(".")[2]):  # 127.1 and 0x7f.1 are 127.0.0.1
        try:
            return socket.inet_ntoa(socket.inet_aton(host)), port
        except OSError:
            raise wrong from None
    return host, port
