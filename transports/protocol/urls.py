"""URLs as text: what a message may show of one, whether a target is a page, a host this machine, a text a folder."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["folder_of", "is_address", "is_loopback", "is_page", "origin_of", "redact_url"]

#: What targets begin with that are apps behind a network.
_ADDRESSES = ("http://", "https://", "ws://", "wss://")

_PORTS = {"http": 80, "https": 443}
# possessive, so that the time is in proportion to the length: an app chooses both
_USERINFO = re.compile(r"^((?:[a-z][a-z0-9+.-]*+:)*+[/\\]*+)[^/\\]*@", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Return ``url`` without its secrets, for a message or a log: no user info, no fragment, and no query, which is
    where signed links carry theirs. Of a ``data:`` URL only the head is left, and of the command line of an MCP server
    the command."""
    url = url.strip()
    if url[:10].lower() == "mcp+stdio:":
        head, space, _ = url.partition(" ")
        return head + " …" * bool(space)
    if url[:5].lower() == "data:":
        head, comma, _ = url[:80].partition(",")
        return (head if comma else "data:") + ",…"
    bare, _, _ = url.partition("#")
    bare, mark, _ = bare.partition("?")
    return _USERINFO.sub(r"\1", bare) + ("?…" if mark else "")


def is_address(target: str) -> bool:
    """Whether a target is an ``http(s)://`` or ``ws(s)://`` URL. Other targets run programs, load extensions and read
    files, which only the user may ask for."""
    return target.lower().startswith(_ADDRESSES)


def origin_of(url: str | None) -> str | None:
    """Return the origin of an address (RFC 6454) as a browser writes it: in lower case, international names in ASCII,
    with the port if that is not the scheme's own; ``None`` for an address without a host. A WebSocket, and an MCP
    server, has the origin of the HTTP address."""
    try:
        parts = urlsplit((url or "").strip().removeprefix("mcp+"))
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        host = parts.hostname
        if scheme not in _PORTS or not host:
            return None
        host = f"[{host}]" if ":" in host else host if host.isascii() else host.encode("idna").decode()
        return f"{scheme}://{host}" if parts.port in (None, _PORTS[scheme]) else f"{scheme}://{host}:{parts.port}"
    except ValueError:  # UnicodeError is one
        return None


def is_page(target: str) -> bool:
    """Whether a target is the address of a page: an ``http(s)://`` URL."""
    return target.lower().startswith(("http://", "https://"))


def is_loopback(host: str | None) -> bool:
    """Return whether a host leads to this machine alone: ``localhost``, or an address of the loopback network, with or
    without the brackets of IPv6. Names are not looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address((host or "").strip("[]")).is_loopback
    except ValueError:
        return False


def folder_of(text: str) -> Path:
    """Return a folder of this machine. Raises :class:`ValueError` for the address of a store, of which a path would
    make a folder named ``s3:``."""
    if "://" in text:
        shown = redact_url(text)
        raise ValueError(f"{shown} is no folder of this machine; ABP_STORE={shown} keeps files there")
    return Path(text)
