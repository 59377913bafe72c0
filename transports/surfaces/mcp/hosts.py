"""Rules for the hosts that a model may connect. They apply to the URL that it gives, not to where the page leads."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from ...errors import UsageError
from ...http.addresses import is_public

__all__ = ["check_host", "check_public_host"]

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
#: Host names that this check and a browser read alike: browsers take ``\`` for ``/``, decode ``%61`` and fold ``ａ``.
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def check_host(url: str, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    """Raise :class:`~transports.errors.UsageError` if the host of ``url`` matches no pattern of ``allowed``, or one of
    ``blocked``. A pattern is for a host, or for a host with a port: ``*.example.com``, ``127.0.0.1:8000``. With
    ``allowed`` ``("*",)`` and nothing blocked, any URL passes."""
    if tuple(allowed) == ("*",) and not blocked:
        return
    host, port = _host(url)
    if not _matches(host, port, allowed) or _matches(host, port, blocked):
        raise UsageError(
            f"{host} (port {port}) may not be connected; ask the user, who can allow it (allowed_hosts, blocked_hosts)"
        )


async def check_public_host(url: str, allowed: Sequence[str], known_urls: Iterable[str]) -> None:
    """Raise :class:`~transports.errors.UsageError` if the host of ``url`` is unknown or has an address that is not
    public, unless a pattern of ``allowed`` other than ``*`` is for it, or it is that of a known URL, with its port."""
    host, port = _host(url)
    named = [pattern for pattern in allowed if pattern != "*"]
    if _matches(host, port, named) or (host, port) in [_host(known) for known in known_urls if _is_web(known)]:
        return
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise UsageError(f"{host}: the host name is not known; correct the address") from None
    if not all(is_public(str(address[0])) for *_, address in found):
        raise UsageError(
            f"{host} (port {port}) is not on the public Internet; connect an app that is there with abp_connect, or "
            "ask the user, who can allow it (allowed_hosts)"
        )


def _is_web(url: str) -> bool:
    return url.lower().startswith(tuple(f"{scheme}://" for scheme in _PORTS))


def _matches(host: str, port: int, patterns: Sequence[str]) -> bool:
    names = (host,) if ":" in host else (host, f"{host}:{port}")
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in names)


def _host(url: str) -> tuple[str, int]:
    """Host and port as a browser reads them; an IPv6 address without its brackets."""
    invalid = UsageError(
        "url: write the host plainly, such as app.example, 127.0.0.1 or xn--…, without a user before it"
    )
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise invalid from None
    if "@" in parts.netloc or not host:
        raise invalid
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise invalid from None
        return str(address.ipv4_mapped or address), port
    if not _NAME.fullmatch(host):
        raise invalid
    if re.fullmatch(r"(0x[0-9a-f]*|\d+)", host.rpartition(".")[2]):  # 127.1 and 0x7f.1 are 127.0.0.1
        try:
            return socket.inet_ntoa(socket.inet_aton(host)), port
        except OSError:
            raise invalid from None
    return host, port
