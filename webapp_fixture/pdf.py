"""PDF of one page, written by hand: the text of some HTML in Helvetica."""

import re
import textwrap
from html.parser import HTMLParser

SIZES = {"a4": (595, 842), "letter": (612, 792)}
MARGIN, LEADING, FONT_SIZE = 56, 14, 11
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
BLOCKS = frozenset(
    {
        *HEADINGS,
        *(
            "address",
            "article",
            "blockquote",
            "br",
            "dd",
            "div",
            "dl",
            "dt",
            "figure",
            "footer",
            "form",
            "header",
            "hr",
        ),
        *("li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "title", "tr", "ul"),
    }
)
UNSEEN = ("script", "style", "template", "title")


class TextOf(HTMLParser):
    """The visible text, the title and the headings of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.content = ""
        """The text without breaks between blocks, as ``textContent`` has it."""
        self.title = ""
        self.headings: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        """The text; blocks end with a line break."""
        return "".join(self.parts)

    def first_heading(self, tags: tuple[str, ...] = HEADINGS) -> str:
        """Return the text of the first heading with one of these tags, or an empty text."""
        return next((text for tag, text in self.headings if tag in tags), "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the start of a heading, a block or an element that is not shown."""
        if tag in HEADINGS:
            self.headings.append((tag, ""))
        if tag in (*UNSEEN, *HEADINGS):
            self._open.append(tag)
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element."""
        if tag in self._open:
            self._open.remove(tag)
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Add text to what it belongs to."""
        if "title" in self._open:
            self.title += data
        if any(tag in self._open for tag in UNSEEN):
            return
        self.parts.append(data)
        self.content += data
        if any(tag in self._open for tag in HEADINGS):
            tag, before = self.headings[-1]
            self.headings[-1] = (tag, before + data)


def _literal(text: str) -> bytes:
    return b"(" + re.sub(rb"([()\\])", rb"\\\1", text.encode("cp1252", "replace")) + b")"


def _page(text: str, width: int, height: int) -> bytes:
    columns = int((width - 2 * MARGIN) / (FONT_SIZE * 0.5))
    lines = [line for block in text.splitlines() for line in textwrap.wrap(block, columns)]
    room = (height - 2 * MARGIN) // LEADING
    if len(lines) > room:
        lines = [*lines[: room - 1], "[…]"]
    start = f"BT /F1 {FONT_SIZE} Tf {LEADING} TL {MARGIN} {height - MARGIN} Td\n".encode()
    return start + b"".join(_literal(line) + b" Tj T*\n" for line in lines) + b"ET\n"


def make_pdf(text: str, title: str = "", page_size: str = "a4", landscape: bool = False) -> bytes:
    """Return text as a PDF of one page. What does not fit is replaced by ``[…]``."""
    width, height = SIZES[page_size]
    if landscape:
        width, height = height, width
    content = _page(text, width, height)
    hex_title = (b"\xfe\xff" + title.encode("utf-16-be", "replace")).hex().encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>" % (width, height),
        b"<< /Length %d >>\nstream\n%bendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Title <%b> /Producer (Workbench) >>" % hex_title,
    ]
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info 6 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)
