"""Rules for the hosts that a model may connect. They apply to the URL that it gives, not to where the page leads; those
for pictures apply to all that the page connects."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from ...errors import UsageError
from ...http.addresses import is_public, own_addresses

__all__ = ["PictureHosts", "check_host"]

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
#: Host names that this check and a browser read alike: browsers take ``\`` for ``/``, decode ``%61`` and fold ``ａ``.
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def check_host(url: str, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    """Raise :class:`~transports.errors.UsageError` if the host of ``url`` matches no pattern of ``allowed``, or one of
    ``blocked``. A pattern is for a host, or for a host with a port: ``*.example.com``, ``127.0.0.1:8000``. With
    ``allowed`` ``("*",)`` and nothing blocked, any URL passes."""
    if tuple(allowed) == ("*",) and not blocked:
        return
    _check(*_host(url), allowed, blocked)


class PictureHosts:
    """The rules for hosts of which a picture may be taken, and which the page in it may connect.

    ``apps`` are the connected apps: their addresses, and where each was reached. ``private`` are patterns of hosts that
    may have an address which is not public; with ``any_address`` every host may.
    """

    def __init__(
        self,
        allowed: Sequence[str],
        blocked: Sequence[str],
        *,
        private: Sequence[str],
        apps: Iterable[tuple[str, tuple[str, int] | None]],
        any_address: bool,
    ) -> None:
        self._allowed, self._blocked = allowed, blocked
        self._private = [pattern for pattern in private if pattern != "*"]
        self._apps = [(*_host(url), reached) for url, reached in apps if _is_web(url)]
        self._any_address = any_address

    async def check(self, url: str) -> None:
        """Judge the host of ``url``, as :meth:`addresses` does."""
        await self.addresses(*_host(url))

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses at which this host may be connected.

        Raises :class:`~transports.errors.UsageError` if the host may not be connected, is unknown, or has an address
        that is neither public nor the one at which a connected app was reached, unless a pattern is for it."""
        host, port = _host(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        _check(host, port, self._allowed, self._blocked)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise UsageError(f"{host}: the host name is not known; correct the address") from None
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        for address in addresses:  # a blocked address stays blocked under any name
            _check(_numeric(address), port, ("*",), self._blocked)
        if self._any_address or _matches(host, port, self._private):
            return addresses
        for known_host, known_port, reached in self._apps:
            if (host, port) == (known_host, known_port) and (own := own_addresses(host, port, reached)):
                return sorted(own)
        if not all(is_public(address) for address in addresses):
            raise UsageError(
                f"{host} (port {port}) is not on the public Internet; connect an app that is there with abp_connect, "
                "or ask the user, who can allow it (allowed_hosts)"
            )
        return addresses


def _check(host: str, port: int, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    if not _matches(host, port, allowed) or _matches(host, port, blocked):
        raise UsageError(
            f"{host} (port {port}) may not be connected; ask the user, who can allow it (allowed_hosts, blocked_hosts)"
        )


def _numeric(address: str) -> str:
    """A numeric address as :func:`_host` spells it."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(ip, "ipv4_mapped", None) or ip)


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
