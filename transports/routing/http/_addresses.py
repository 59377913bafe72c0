"""The guard for the addresses that a download may connect to.

A web page chooses the URL, so an address outside the public Internet is refused unless it belongs to the app's own
origin. Even then it must be the address at which the browser or the socket reached the app: a name could lead elsewhere
at the next look-up (DNS rebinding). The check sits in the socket factory, where it sees each address that is really
connected to: from the URL, from DNS (also if the second answer of DNS differs), from a redirect, and each address that
"happy eyeballs" tries side by side.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp.connector import AddrInfoType

#: Addresses whose last 32 bits are an IPv4 address (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def own_addresses(host: str, port: int, server_address: tuple[str, int] | None) -> frozenset[str]:
    """Return the addresses at which a host may be reached even if they are not public.

    A numeric host is its own address, and ``localhost`` is this machine in every browser (RFC 6761 §6.3). Any other
    name has the address of ``server_address``, at which the app was reached, unless the port there is not ``port``:
    then the address is a proxy's."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return frozenset({"127.0.0.1", "::1"})
    address = canonical_address(host)
    if address is None and server_address is not None:
        server_host, server_port = server_address
        if server_port == port:
            address = canonical_address(server_host)
    if address is None:
        return frozenset()
    return frozenset({address})


def canonical_address(address: str) -> str | None:
    """Return a numeric address in canonical form, without its zone index (``%eth0``), or ``None`` for anything else."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip)


def is_public(address: str) -> bool:
    """Return whether a numeric address is globally routable unicast. An IPv4 address inside an IPv6 one (mapped, NAT64,
    6to4) is judged as the IPv4 address, or it would bypass the check."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False

    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        elif ip.sixtofour is not None:
            # is_global of Python 3.14 is False for all 6to4 addresses.
            ip = ip.sixtofour

    # is_global alone accepts multicast, reserved and site-local addresses.
    is_site_local = isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local
    is_special = ip.is_multicast or ip.is_reserved or ip.is_link_local or ip.is_loopback or ip.is_unspecified
    return ip.is_global and not is_special and not is_site_local


class AddressGuard:
    """A socket factory for :class:`aiohttp.TCPConnector`. ``app_addresses`` are always allowed, and with
    ``allow_private`` nothing is refused. ``blocked`` are the refused addresses in order, and ``allowed`` is the number
    of the others: aiohttp tries one address after the other, and raises only the last error, wrapped."""

    def __init__(self, *, allow_private: bool, app_addresses: Collection[str] = ()) -> None:
        self.allow_private = allow_private
        self._app_addresses = app_addresses
        self._sockets: list[tuple[str, socket.socket]] = []
        self.allowed = 0
        self.blocked: list[str] = []

    def __call__(self, addr_info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = addr_info
        host = str(address[0])
        is_allowed = self.allow_private or is_public(host) or canonical_address(host) in self._app_addresses
        if not is_allowed:
            self.blocked.append(host)
            raise PermissionError(f"{host} is not a public address")

        self.allowed += 1
        new_socket = socket.socket(family=family, type=kind, proto=proto)
        self._sockets.append((host, new_socket))
        return new_socket

    def connected_address(self) -> str | None:
        """Return the address of the one open connection, or ``None`` if there is none or more than one."""
        # If only one address was tried, it counts even if the connection is closed by now.
        if len(self._sockets) == 1:
            return self._sockets[0][0]
        hosts = [host for host, opened in self._sockets if _is_connected(opened)]
        if len(hosts) == 1:
            return hosts[0]
        return None


def _is_connected(opened: socket.socket) -> bool:
    try:
        opened.getpeername()
    except OSError:
        return False
    return True
