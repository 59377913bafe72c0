"""Texts of an app as they are shown to people and models: nothing in them is obeyed, hidden or turned around. No I/O.

Used where texts leave: lists, messages and descriptions of MCP, terminals. Values of a call are data and stay as they
are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["plain_json", "plain_line", "plain_schema", "plain_text", "plain_tree"]

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
