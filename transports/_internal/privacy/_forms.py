"""Forms in texts, read by their structure: multipart bodies, and fields in HTML. No I/O."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.message import Message

#: A form, such as ``a=1&b=2``.
FORM = re.compile(r"[^\s=&<>{}]{1,256}=[^\s&]*+(?:&[^\s=&]{1,256}=[^\s&]*+)*+")
_HEAD_END = re.compile(r"\r?\n\r?\n")
#: The beginning of a start tag or of a comment.
_OPENING = re.compile(r"<(?:(!--)|([A-Za-z][^\s/>]*+))")
#: One attribute of a tag (HTML 13.2.5.32): its name, and its value with quotes. A quote that is left open ends with the
#: text, which may be cut.
_ATTRIBUTE = re.compile(r"""[\s/]*+(=?[^\s/>=]++|=)(?:\s*+=\s*+("[^"]*+"?|'[^']*+'?|[^\s>"'][^\s>]*+))?""")
#: A numeric reference in HTML, without its leading zeros.
_NUMBER = re.compile(r"&#0*([0-9]+)")
#: Elements whose content is text without tags.
_RAW = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "title", "textarea"))
#: Attributes with the value of a field, by the name of the element; the second is that of Playwright's snapshots.
_VALUES = {
    "input": ("value", "__playwright_value_"),
    "textarea": ("value", "__playwright_value_"),
    "button": ("value",),
    "meta": ("content",),
}


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a multipart body: its head with the empty line after it, its content, and where the content begins."""

    head: str
    content: str
    start: int

    def headers(self) -> Message:
        """Return the headers. Half of a surrogate pair, which the parser takes for a byte, is a ``?``."""
        from email.parser import HeaderParser  # late: few texts are forms, and the parser takes long to load

        # The head begins with the line break of its boundary, which the parser would take for the end of the headers.
        return HeaderParser().parsestr(self.head.lstrip("\r\n").encode(errors="replace").decode())


def parts_of(text: str) -> list[Part] | None:
    """Return the parts of a multipart body (RFC 2046 5.1.1), ``None`` if it has none. Text before the first boundary
    does not count."""
    start = 0
    if not text.startswith("--"):
        start = text.find("\n--") + 1
        if start == 0:
            return None if text.strip() else []
    boundary, _, _ = text[start:].partition("\n")
    separator = f"\n{boundary.rstrip()}"

    parts: list[Part] = []
    position = start - 1 + len(separator)
    for piece in f"\n{text[start:]}".split(separator)[1:]:
        # The last boundary is followed by two dashes.
        if piece.startswith("--"):
            break
        head_end = _HEAD_END.search(piece)
        if head_end is None:
            return None
        head, content = piece[: head_end.end()], piece[head_end.end() :]
        parts.append(Part(head, content.removesuffix("\r"), position + len(head)))
        position += len(piece) + len(separator)
    return parts or None


def with_contents(text: str, parts: Sequence[Part], contents: Sequence[str]) -> str:
    """Return a multipart body with other ``contents`` of its parts."""
    pieces: list[str] = []
    position = 0
    for part, content in zip(parts, contents, strict=True):
        pieces += (text[position : part.start], content)
        position = part.start + len(part.content)
    pieces.append(text[position:])
    return "".join(pieces)


def form_parts(text: str) -> list[Part]:
    """Return the parts of a text that is a form in several parts (RFC 7578), whatever its declared type; none of any
    other text."""
    if "--" not in text or "content-disposition" not in text.casefold():
        return []
    parts = parts_of(text) or []
    if not any(field_name(part.headers()) for part in parts):
        return []
    return parts


def field_name(headers: Message) -> str | None:
    """Return the name of the field in a part, decoded."""
    from email.utils import collapse_rfc2231_value

    name = headers.get_param("name", header="content-disposition")
    if name is None:
        return None
    return collapse_rfc2231_value(name)


def value_attributes(element: str) -> tuple[str, ...]:
    """Return the names of the attributes with the value of a field in HTML; none for any other element."""
    return _VALUES.get(element.lower(), ())


def secret_spans(text: str, is_secret_field: Callable[[Mapping[str, str]], bool]) -> Iterator[tuple[int, int]]:
    """Yield the spans in HTML of the values of secret fields, with their quotes. Scripts, styles and other texts
    without tags are left out; comments are read."""
    position = 0
    # Tags are read up to here: the end of the text, or of a comment.
    limit = len(text)
    is_in_open_comment = False
    while True:
        opening = _OPENING.search(text, position, limit)
        if opening is None:
            if limit == len(text):
                return
            # Go on after the comment.
            position, limit = limit, len(text)
            continue

        position = opening.end()
        if opening[1]:
            is_in_comment = is_in_open_comment or limit < len(text)
            if not is_in_comment:
                comment_end = text.find("-->", position)
                if comment_end < 0:
                    is_in_open_comment = True
                else:
                    limit = comment_end
            continue

        tag = _read_start_tag(opening, limit)
        position = tag.end
        is_secret = tag.element in _VALUES and is_secret_field(tag.attributes)
        if is_secret:
            yield from sorted(tag.spans[name] for name in _VALUES[tag.element] if tag.attributes.get(name))
        if tag.element in _RAW:
            begin, position = _raw_content_span(text, tag, limit)
            if is_secret and tag.element == "textarea" and position > begin:
                yield begin, position


@dataclass(frozen=True, slots=True)
class _StartTag:
    """A start tag in HTML, up to its ``>``: its element, its attributes, and where their values are, with quotes."""

    element: str
    attributes: Mapping[str, str]
    spans: Mapping[str, tuple[int, int]]
    end: int


def _read_start_tag(opening: re.Match[str], limit: int) -> _StartTag:
    """Read the attributes that follow the ``opening`` of a tag, up to ``limit``."""
    text, position = opening.string, opening.end()
    attributes: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    while attribute := _ATTRIBUTE.match(text, position, limit):
        name = attribute[1].lower()
        position = attribute.end()
        # The first attribute of a name counts.
        attributes.setdefault(name, attribute_value(attribute[2] or ""))
        spans.setdefault(name, attribute.span(2))
    return _StartTag(opening[2].lower(), attributes, spans, position)


def _raw_content_span(text: str, tag: _StartTag, limit: int) -> tuple[int, int]:
    """Return the span of the content of an element whose content is text without tags."""
    begin = text.find(">", tag.end, limit) + 1 or limit
    closing = re.compile(rf"</{tag.element}(?=[\s/>])", re.IGNORECASE).search(text, begin, limit)
    end = limit if closing is None else closing.start()
    return begin, end


def attribute_value(written: str) -> str:
    """Return the value of an attribute as it is written in HTML, without quotes and entities."""
    if written[:1] in ("'", '"'):
        written = written[1:].removesuffix(written[0])
    return without_entities(written)


def without_entities(text: str) -> str:
    """Return text in which the entities of HTML are decoded."""
    if "&" not in text:
        return text
    # The largest number has seven digits, and ``int()`` refuses thousands.
    max_digits = 8
    return html.unescape(_NUMBER.sub(lambda reference: f"&#{reference[1][:max_digits]}", text))
