"""Texts of an app as they are shown to people and models: nothing in them is obeyed, hidden or turned around. No I/O.

Used where texts leave: lists, messages and descriptions of MCP, terminals. Values of a call are data and stay as they
are.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

#: Control characters but tab and newline, and the marks, embeddings, overrides and isolates that change the direction
#: of writing (UAX #9).
_OBEYED = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
#: Characters without a picture, in which text can be hidden: soft hyphens, fillers, zero-width characters, variation
#: selectors, tags.
_HIDDEN = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_OTHER = f"[^\x00-\x7f{_OBEYED}{_HIDDEN}]"
#: Joiners inside of emoji and of words of scripts that need them, and one selector after a character.
_NEEDED = rf"(?<={_OTHER})[\u200c\u200d\ufe0e\ufe0f]|(?<={_OTHER}\ufe0f)\u200d|(?<=[0-9#*])\ufe0f(?=\u20e3)"
_NOT_PLAIN = re.compile(f"(?P<needed>{_NEEDED})|(?P<obeyed>[{_OBEYED}])|[{_HIDDEN}]")
_NOT_PLAIN_JSON = re.compile(f"(?P<needed>{_NEEDED})|[{_OBEYED}{_HIDDEN}\u2028\u2029]")


def plain_text(text: str) -> str:
    """Return ``text`` with replacement characters (U+FFFD) for whatever a terminal or the order of writing obeys, and
    without invisible characters; line breaks are ``\\n``."""
    if text.isascii() and text.isprintable():
        return text
    return _NOT_PLAIN.sub(_plain, text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n"))


def plain_json(text: str) -> str:
    """Return a JSON text whose values stay the same and that is plain: what :func:`plain_text` replaces or leaves out
    is escaped."""
    if text.isascii() and "\x7f" not in text:  # JSON itself escapes the other controls
        return text
    return _NOT_PLAIN_JSON.sub(_escaped, text)


def plain_line(text: str, max_chars: int | None = None) -> str:
    """Return :func:`plain_text` in one line, with one space for white space of any kind. Over ``max_chars`` characters
    it is cut and ends in ``…``."""
    if max_chars is not None:
        text = text[: 4 * max_chars]  # a short line need not look at all of a long text
    line = " ".join(plain_text(" ".join(text.split())).split())
    return line if max_chars is None or len(line) <= max_chars else line[: max_chars - 1] + "…"


def plain_tree(node: object) -> object:
    """Return JSON values with :func:`plain_text` for every text in them, keys too. The caller bounds their depth."""
    match node:
        case str():
            return plain_text(node)
        case dict():
            return {plain_text(key) if isinstance(key, str) else key: plain_tree(value) for key, value in node.items()}
        case list() | tuple():
            return [plain_tree(item) for item in node]
        case _:
            return node


def plain_schema(schema: Mapping[str, object]) -> dict[str, object] | None:
    """Return a JSON Schema with :func:`plain_line` for its titles and descriptions. ``None`` if anything else in it is
    not plain, such as the name of a property or a value, which cannot be another text."""
    try:
        return {key: _schema_value(key, value) for key, value in schema.items()}
    except ValueError:
        return None


def _schema_value(key: str, value: object) -> object:
    if plain_text(key) != key:
        raise ValueError(key)
    if isinstance(value, str):
        if key in ("title", "enumNames", "description", "$comment"):
            return plain_line(value)
        if plain_text(value) != value:
            raise ValueError(key)
    if isinstance(value, Mapping):
        return {inner: _schema_value(inner, one) for inner, one in value.items()}
    if isinstance(value, list):
        return [_schema_value(key, one) for one in value]
    return value


def _escaped(found: re.Match[str]) -> str:
    if found["needed"]:
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _plain(found: re.Match[str]) -> str:
    return found[0] if found["needed"] else "\ufffd" if found["obeyed"] else ""


#: How many names are searched.
_MAX_SEARCHED = 5000
#: The likeness of :mod:`difflib`, 0 to 1, from which on a name is one that may have been meant.
_CUTOFF = 0.6


def similar_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return at most ``most`` of the ``known`` names that are spelled like ``name``, the nearest first. Case does not
    count."""
    folded = {one.casefold(): one for one in islice(known, _MAX_SEARCHED)}
    return [folded[one] for one in difflib.get_close_matches(name.casefold()[:200], folded, n=most, cutoff=_CUTOFF)]


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
