"""The head of an HTML page, parsed as bytes arrive: its manifest link, base and title. No I/O."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser

__all__ = ["PageHead"]

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_PRESCAN = 1024  # bytes in which a page must name its encoding (HTML §4.2.5.4)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_META_CHARSET = re.compile(rb"""<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]{1,40})[\s"';/>]""", re.IGNORECASE)
_HEAD_ENDS = re.compile(rb"</head\b|<body\b", re.IGNORECASE)
#: Encodings of the web. Python has others that are slow on crafted input or do not encode text.
_LABEL = re.compile(
    r"utf-?8|utf-16(?:le|be)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-125\d|koi8-[ru]"
    r"|shift_jis|euc-(?:jp|kr)|gbk|gb2312|gb18030|big5",
)
_LATIN = {
    "us-ascii",
    "ascii",
    "latin1",
    "latin-1",
    "iso-8859-1",
    "iso8859-1",
}  # every browser reads these as windows-1252
#: Elements whose content is text, not markup; <noscript> is one of them in a browser that runs scripts.
_RAW = {"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "xmp"}
_LONGEST_TITLE = 1000


class PageHead:
    """The head of a page. Bytes go into :meth:`feed` as they arrive, until :attr:`ended`."""

    def __init__(self, charset: str | None = None) -> None:
        """``charset`` is that of the ``Content-Type``, or ``None``."""
        self._declared_charset = charset
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._tags = _Tags()

    @property
    def ended(self) -> bool:
        """Whether the head is over, so that no more bytes are needed."""
        return self._tags.ended

    @property
    def href(self) -> str | None:
        """The ``href`` of the first ``<link rel=abp-manifest>``, as it stands in the page."""
        return self._tags.href

    @property
    def base(self) -> str | None:
        """The ``href`` of the first ``<base>``, as it stands in the page."""
        return self._tags.base

    @property
    def title(self) -> str:
        """The title in one line, or "" if there is none."""
        return " ".join("".join(self._tags.title).split())

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """Parse the next bytes. ``last`` says that there are no more; a tag that is incomplete then does not count."""
        if self._decoder is None:
            self._start += data
            charset = _charset(self._start, self._declared_charset, last)
            if charset is None:
                return
            data = self._start
            self._decoder = codecs.getincrementaldecoder(charset)("replace")
        try:
            self._tags.feed(self._decoder.decode(data, last))
        except ValueError:  # a character reference of thousands of digits, which Python makes no number of
            self._tags.ended = True


def _charset(start: bytes, declared: str | None, last: bool) -> str | None:
    """Return the encoding: that of a byte order mark, else of the header, else of the page itself, else UTF-8; ``None``
    while there are too few bytes to tell."""
    for bom, name in _BOMS.items():
        if start.startswith(bom):
            return name
    if len(start) < 3 and not last:
        return None
    if charset := _codec(declared or ""):
        return charset
    visible = _COMMENT.sub(b"", start[:_PRESCAN])
    if match := _META_CHARSET.search(visible):
        charset = _codec(match[1].decode("ascii", "replace"))
        # the page was readable as ASCII, so it is not UTF-16
        return charset if charset and not charset.startswith("utf-16") else "utf-8"
    return "utf-8" if last or len(start) >= _PRESCAN or _HEAD_ENDS.search(visible) else None


def _codec(label: str) -> str | None:
    label = label.strip().lower()
    if not _LABEL.fullmatch(label):
        return None
    name = "cp1252" if label in _LATIN else "utf-16-le" if label == "utf-16" else label
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


class _Tags(HTMLParser):
    """Collects the tags. It is fed and never closed, so an incomplete tag is not reported."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self.href: str | None = None
        self.base: str | None = None
        self.title: list[str] = []
        self._room = _LONGEST_TITLE
        self._templates = 0
        self._title: bool | None = None  # None before it, True inside it, False after it

    def parse_html_declaration(self, i: int) -> int:
        """Skip ``<![…>``, a comment in HTML; the base class expects SGML there and fails on anything else."""
        return self.parse_bogus_comment(i) if self.rawdata.startswith("<![", i) else super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take up a link, a base, a title, or the end of the head."""
        if tag in _RAW:
            self.set_cdata_mode(tag)
        if self.ended or self._title:
            return
        if tag == "template":
            self._templates += 1
        if self._templates:
            return
        first = {name: value or "" for name, value in reversed(attrs)}  # of equal names the first counts
        href = first.get("href", "").strip()
        if tag in ("body", "frameset"):
            self.ended = True
        elif tag == "title" and self._title is None:
            self._title = True
        elif tag == "base" and self.base is None and "href" in first:
            self.base = href
        elif tag == "link" and self.href is None and href and "abp-manifest" in first.get("rel", "").lower().split():
            self.href = href

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle ``<tag/>`` as ``<tag>``: in HTML the slash means nothing."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """End a title, a template or the head."""
        if self._title:
            self._title = tag != "title"
        elif tag == "template":
            self._templates = max(0, self._templates - 1)
        elif tag == "head" and not self._templates:
            self.ended = True

    def handle_data(self, data: str) -> None:
        """Collect the text of the title, up to a limit."""
        if self._title and not self.ended and self._room:
            self.title.append(data[: self._room])
            self._room -= len(self.title[-1])
