"""Which addresses a download may connect to.

A web page decides what we fetch, so an address that is not on the public Internet is refused unless it belongs to the
app's own origin. The check sits in the socket factory: it sees each address that is really connected to, whether it
came as a literal, from DNS (also when DNS changes its mind), or by a redirect, and for each of the addresses that
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

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are the IPv4 address that is meant


def is_public(address: str) -> bool:
    """Whether a numeric address is globally routable unicast. What is no numeric address is not public.

    An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4) counts as itself, so that it cannot be used to get round
    the check.
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
    """``is_global`` alone lets multicast, reserved and site-local addresses through."""
    return ip.is_global and not (
        ip.is_multicast
        or ip.is_reserved
        or ip.is_link_local
        or ip.is_loopback
        or ip.is_unspecified
        or (isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local)
    )


class AddressGuard:
    """A socket factory for :class:`aiohttp.TCPConnector` that makes no socket for an address that may not be reached.

    aiohttp takes the error of one address as a reason to try the next and wraps the last of them, so what was refused
    is also kept here: ``blocked`` in order, ``allowed`` as a count. With ``allow_private`` nothing is refused.
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
