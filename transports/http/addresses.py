"""The guard for the addresses that a download may connect to.

A web page decides what is fetched, so an address that is not on the public Internet is refused unless it belongs to the
app's own origin. The check sits in the socket factory, where it sees each address that is really connected to: one in
the URL, one from DNS (also if DNS answers differently the second time), one from a redirect, and each of those that
"happy eyeballs" tries side by side.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aiohttp.connector import AddrInfoType

__all__ = ["AddressGuard", "is_public"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


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
        elif ip.sixtofour is not None and not _routable(ip.sixtofour):
            return False
    return _routable(ip)


def _routable(ip: _Address) -> bool:
    """Return whether an address is public: ``is_global`` alone accepts multicast, reserved and site-local ones."""
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

    With ``allow_private`` nothing is refused. After the error of one address aiohttp tries the next and raises only the
    last error, wrapped; so the guard itself keeps the refused addresses (``blocked``, in order) and counts the
    ``allowed`` ones.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self.allow_private = allow_private
        self.allowed = 0
        self.blocked: list[str] = []

    def __call__(self, addr_info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = addr_info
        host = str(address[0])
        if not self.allow_private and not is_public(host):
            self.blocked.append(host)
            raise PermissionError(f"{host} is not a public address")
        self.allowed += 1
        return socket.socket(family=family, type=kind, proto=proto)
