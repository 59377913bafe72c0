"""Sanitizing of an app's texts for people and models: no control, invisible or direction characters.

Applied where texts are shown: lists, messages and descriptions of MCP, terminals. Values of a call are data and stay
unchanged. Also here: lists of names, and URLs (:func:`redact_url`, :func:`origin_of`).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

#: Control characters except tab and newline, and the marks, embeddings, overrides and isolates of bidirectional text
#: (UAX #9).
_CONTROL_CHARS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
#: Invisible characters, which can hide text: soft hyphens, fillers, zero-width characters, variation selectors, tags.
_INVISIBLE_CHARS = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_VISIBLE = f"[^\x00-\x7f{_CONTROL_CHARS}{_INVISIBLE_CHARS}]"
#: Joiners inside emoji and inside words of scripts that need them, and one variation selector after a character.
_NEEDED_INVISIBLE = (
    rf"(?<={_VISIBLE})[\u200c\u200d\ufe0e\ufe0f]|(?<={_VISIBLE}\ufe0f)\u200d|(?<=[0-9#*])\ufe0f(?=\u20e3)"
)
# Compiled at the first text that is not plain: these two are the slowest patterns of a start.
_NOT_PLAIN = f"(?P<needed>{_NEEDED_INVISIBLE})|(?P<obeyed>[{_CONTROL_CHARS}])|[{_INVISIBLE_CHARS}]"
_NOT_PLAIN_JSON = f"(?P<needed>{_NEEDED_INVISIBLE})|[{_CONTROL_CHARS}{_INVISIBLE_CHARS}\u2028\u2029]"


def plain_text(text: str) -> str:
    """Remove invisible characters, and put U+FFFD in the place of control and direction characters."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return re.sub(_NOT_PLAIN, _plain_character, text)


def plain_json(text: str) -> str:
    """Return a JSON text with the same values, in which the characters that :func:`plain_text` changes are escaped."""
    if text.isascii() and "\x7f" not in text:  # JSON itself escapes the other controls
        return text
    return re.sub(_NOT_PLAIN_JSON, _escape_character, text)


def plain_line(text: str, max_chars: int | None = None) -> str:
    """Return one line, with white space collapsed; over ``max_chars`` characters it is cut and ends in ``…``."""
    if max_chars is not None:
        text = text[: 4 * max_chars]  # bounds the work for a long text
    # Split again, because plain_text() leaves line breaks in the place of some characters.
    line = " ".join(plain_text(" ".join(text.split())).split())
    if max_chars is None or len(line) <= max_chars:
        return line
    return line[: max_chars - 1] + "…"


def refusal_words(body: bytes, hide_secrets: Callable[[str], str]) -> str:
    """Return what a server says with a refusal, after a colon; nothing if that is a page, which is for a browser."""
    # Secrets are hidden before the text is cut: the beginning of one would not be found.
    words = plain_line(hide_secrets(body[: 64 * 1024].decode(errors="replace")), 200)
    if not words or words.startswith("<"):
        return ""
    return f": {words}"


def plain_tree(node: object) -> object:
    """Return JSON values with :func:`plain_text` applied to all texts, keys too. The caller bounds their depth."""
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
    """Return ``None`` if other texts than titles and descriptions are not plain: names and values must not change."""
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
        return {name: _schema_value(name, member) for name, member in value.items()}
    if isinstance(value, list):
        return [_schema_value(key, item) for item in value]
    return value


def _escape_character(match: re.Match[str]) -> str:
    r"""Return a character as JSON escapes it: ``\u200b``, or a pair of surrogates."""
    if match["needed"]:
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))


def _plain_character(match: re.Match[str]) -> str:
    if match["needed"]:
        return match[0]
    return "\ufffd" if match["obeyed"] else ""


def first_names(names: Sequence[str], max_names: int) -> str:
    """Return at most ``max_names`` of the ``names`` as one text: ``a, b and 3 more``."""
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more


def similar_names(name: str, names: Iterable[str], *, max_names: int = 3) -> list[str]:
    """Return the nearest first, never ``name`` itself. Case is ignored. The first 5,000 names are searched."""
    originals = {other.casefold(): other for other in islice(names, 5000) if other != name}
    similar = difflib.get_close_matches(name.casefold()[:200], originals, n=max_names, cutoff=0.6)
    return [originals[folded] for folded in similar]


_PORTS = {"http": 80, "https": 443}
# Possessive quantifiers keep the time linear in the length: the URL may come from an app.
_USERINFO = re.compile(r"^((?:[a-z][a-z0-9+.-]*+:)*+[/\\]*+)[^/\\]*@", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Remove user info, fragment and query (signed links), for messages and logs. A ``data:`` URL is reduced to its
    head, the command line of an MCP server to its command."""
    url = url.strip()
    if url[:10].lower() == "mcp+stdio:":
        command, space, _ = url.partition(" ")
        return f"{command} …" if space else command

    if url[:5].lower() == "data:":
        head, comma, _ = url[:80].partition(",")
        return f"{head},…" if comma else "data:,…"

    without_fragment, _, _ = url.partition("#")
    address, question_mark, _ = without_fragment.partition("?")
    address = _USERINFO.sub(r"\1", address)
    return f"{address}?…" if question_mark else address


def is_address(target: str) -> bool:
    """Targets other than URLs of HTTP and WebSockets run programs, load extensions or read files, so only the user may
    name them."""
    return target.lower().startswith(("http://", "https://", "ws://", "wss://"))


def origin_of(url: str | None) -> str | None:
    """Return the origin of an address (RFC 6454) as browsers write it; ``None`` without a host. WebSockets and MCP
    servers have the origin of the HTTP address."""
    try:
        parts = urlsplit((url or "").strip().removeprefix("mcp+"))
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        host = parts.hostname
        if scheme not in _PORTS or not host:
            return None
        if ":" in host:
            host = f"[{host}]"
        elif not host.isascii():
            host = host.encode("idna").decode()
        if parts.port in (None, _PORTS[scheme]):
            return f"{scheme}://{host}"
        return f"{scheme}://{host}:{parts.port}"
    except ValueError:  # UnicodeError is one
        return None


def is_page(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def is_loopback(host: str | None) -> bool:
    """The host may have the brackets of IPv6. Names are not looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address((host or "").strip("[]")).is_loopback
    except ValueError:
        return False


def proxy_advice(url: str) -> str:
    """Return the end of the message of a failed connection, about a proxy in the environment; empty without one."""
    from urllib.request import getproxies, proxy_bypass  # late: it loads much

    parts = urlsplit(url)
    # For a WebSocket without TLS a proxy for HTTPS is preferred (RFC 6455).
    other_schemes = {"ws": ("https", "http"), "wss": ("https",)}.get(parts.scheme, ())
    has_proxy = not getproxies().keys().isdisjoint((parts.scheme, *other_schemes, "all"))
    if not has_proxy or not parts.hostname or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    return f"; the environment has a proxy for it: add {parts.hostname} to NO_PROXY if it needs none"


def folder_of(text: str) -> Path:
    """Raises :class:`ValueError` for an empty text, and for a store's address, which would make a folder ``s3:``."""
    if not text:
        raise ValueError("the name of the folder is empty; . is the current one")
    if "://" in text:
        url = redact_url(text)
        raise ValueError(f"{url} is not a folder of this machine; ABP_STORE={url} keeps files there")
    return Path(text)
