"""The head of an HTML page: its manifest link, base and title, from the first bytes on. No I/O."""

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
#: Encodings of the web. Python has others that are slow on purpose-made text, or no encodings of text at all.
_LABEL = re.compile(
    r"utf-?8|utf-16(?:le|be)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-125\d|koi8-[ru]"
    r"|shift_jis|euc-(?:jp|kr)|gbk|gb2312|gb18030|big5",
)
_LATIN = {"us-ascii", "ascii", "latin1", "latin-1", "iso-8859-1", "iso8859-1"}  # windows-1252 to every browser
#: Elements whose content is text and no markup; a browser runs scripts, so for it <noscript> is one of them.
_RAW = {"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "xmp"}
_LONGEST_TITLE = 1000


class PageHead:
    """A page's head. Bytes go into :meth:`feed` as they come; ``ended`` tells that no more are needed.

    ``href`` is that of the first ``<link rel=abp-manifest>`` and ``base`` that of the first ``<base>``, both as the
    page has them; ``None`` where there is none.
    """

    def __init__(self, charset: str | None = None) -> None:
        """``charset`` is what the ``Content-Type`` says."""
        self._said = charset
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._tags = _Tags()

    @property
    def ended(self) -> bool:
        return self._tags.ended

    @property
    def href(self) -> str | None:
        return self._tags.href

    @property
    def base(self) -> str | None:
        return self._tags.base

    @property
    def title(self) -> str:
        return " ".join("".join(self._tags.title).split())

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """The next bytes; with ``last`` there are no others. A tag that is not whole by then does not count."""
        if self._decoder is None:
            self._start += data
            charset = _charset(self._start, self._said, last)
            if charset is None:
                return
            data = self._start
            self._decoder = codecs.getincrementaldecoder(charset)("replace")
        self._tags.feed(self._decoder.decode(data, last))


def _charset(start: bytes, said: str | None, last: bool) -> str | None:
    """A byte order mark, then the header, then the page itself, then UTF-8; ``None`` while that cannot be told."""
    for bom, name in _BOMS.items():
        if start.startswith(bom):
            return name
    if len(start) < 3 and not last:
        return None
    if charset := _codec(said or ""):
        return charset
    visible = _COMMENT.sub(b"", start[:_PRESCAN])
    if match := _META_CHARSET.search(visible):
        charset = _codec(match[1].decode("ascii", "replace"))
        return charset if charset and not charset.startswith("utf-16") else "utf-8"  # it was read as ASCII, after all
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
    """It is fed and never closed: what is incomplete stays unread."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self.href: str | None = None
        self.base: str | None = None
        self.title: list[str] = []
        self._templates = 0
        self._title: bool | None = None  # not yet, now, over

    def parse_html_declaration(self, i: int) -> int:
        """``<![…>`` is a comment to HTML; the base class knows it from SGML, and fails where it is anything else."""
        return self.parse_bogus_comment(i) if self.rawdata.startswith("<![", i) else super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
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
        self.handle_starttag(tag, attrs)  # in HTML the slash means nothing

    def handle_endtag(self, tag: str) -> None:
        if self._title:
            self._title = tag != "title"
        elif tag == "template":
            self._templates = max(0, self._templates - 1)
        elif tag == "head" and not self._templates:
            self.ended = True

    def handle_data(self, data: str) -> None:
        if self._title and not self.ended and sum(map(len, self.title)) < _LONGEST_TITLE:
            self.title.append(data[:_LONGEST_TITLE])
