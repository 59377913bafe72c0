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
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp.connector import AddrInfoType

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_LOOPBACK = frozenset({"127.0.0.1", "::1"})


def own_addresses(host: str, port: int, server_address: tuple[str, int] | None) -> frozenset[str]:
    """Return the addresses that may be connected to for the app's own ``host`` and ``port``, public or not.

    A numeric host is its own address, and ``localhost`` is this machine in every browser (RFC 6761 §6.3). For any other
    name it is ``server_address``, the address and port at which the app was reached. If that port differs from
    ``port``, the address is a proxy's and does not count.
    """
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return _LOOPBACK
    numeric = _canonical(host)
    if numeric is not None:
        return frozenset({numeric})
    if server_address is None or server_address[1] != port:
        return frozenset()
    address = _canonical(server_address[0])
    return frozenset() if address is None else frozenset({address})


def _canonical(address: str) -> str | None:
    """Return a numeric address in canonical form, without its zone index (``%eth0``), or ``None`` for anything else."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def is_public(address: str) -> bool:
    """Return whether a numeric address is globally routable unicast; ``False`` for anything but a numeric address.

    An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4) is judged as the IPv4 address, or it would bypass the
    check.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        elif ip.sixtofour is not None:  # is_global of Python 3.14 is False for all 6to4 addresses
            ip = ip.sixtofour
    return _routable(ip)


def _routable(ip: _Address) -> bool:
    """Return whether an address is public. ``is_global`` alone accepts multicast, reserved and site-local ones."""
    return ip.is_global and not (
        ip.is_multicast
        or ip.is_reserved
        or ip.is_link_local
        or ip.is_loopback
        or ip.is_unspecified
        or (isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local)
    )


class AddressGuard:
    """A socket factory for :class:`aiohttp.TCPConnector` that refuses addresses that are not public.

    ``app_addresses`` are always allowed. With ``allow_private`` nothing is refused. After the error of one address
    aiohttp tries the next and raises only the last error, wrapped. So the guard itself keeps the refused addresses
    (``blocked``, in order) and counts the ``allowed`` ones.
    """

    def __init__(self, *, allow_private: bool, app_addresses: Collection[str] = ()) -> None:
        self.allow_private = allow_private
        self._app_addresses = app_addresses
        self._sockets: list[tuple[str, socket.socket]] = []
        self.allowed = 0
        self.blocked: list[str] = []

    def __call__(self, addr_info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = addr_info
        host = str(address[0])
        if not self.allow_private and not is_public(host) and _canonical(host) not in self._app_addresses:
            self.blocked.append(host)
            raise PermissionError(f"{host} is not a public address")
        self.allowed += 1
        opened = socket.socket(family=family, type=kind, proto=proto)
        self._sockets.append((host, opened))
        return opened

    def connected_address(self) -> str | None:
        """Return the address of the one open connection, or ``None`` if there is none or more than one."""
        if len(self._sockets) == 1:
            return self._sockets[0][0]
        connected = [host for host, opened in self._sockets if _is_connected(opened)]
        return connected[0] if len(connected) == 1 else None


def _is_connected(opened: socket.socket) -> bool:
    try:
        opened.getpeername()
    except OSError:
        return False
    return True
