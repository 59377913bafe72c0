"""The head of a page: which link is the manifest's, whatever the page looks like."""

import time

import pytest
from hypothesis import given, strategies as st

from tests.support.rows import each_row
from tests.support.slow import slow_but
from transports.session._manifest import PageHead


def read(page: str | bytes, charset: str | None = "utf-8", *, step: int | None = None) -> PageHead:
    """The head of a whole page, fed in pieces of ``step`` bytes."""
    data = page.encode() if isinstance(page, str) else page
    head = PageHead(charset)
    for start in range(0, len(data), step or len(data) or 1):
        head.feed(data[start : start + (step or len(data))])
    head.feed(b"", last=True)
    return head


FOUND = [
    '<link rel="abp-manifest" href="/m.json">',
    "<link href='/m.json' rel='abp-manifest'>",
    "<LINK REL=ABP-Manifest HREF=/m.json>",
    "<link HREF\n=\n'/m.json' title=t type =application/json crossorigin= anonymous\trel=\"icon abp-manifest\"/>",
    '<link rel="preload abp-manifest\n\tx" href="/m.json" />',
    '<link\n  type="application/json"\n  href = "/m.json"\n  rel = "abp-manifest"\n>',
    '<link rel="abp-manifest" rel="icon" href="/m.json" href="/other">',
    '<link rel="abp-manifest"><link rel="abp-manifest" href=" "><link rel="abp-manifest" href=" /m.json ">',
    '<link rel="icon" href="/i"><link rel="abp-manifest" href="/m.json"><link rel="abp-manifest" href="/second">',
    '<link rel="x-abp-manifest" href="/x"><link rel="abp-manifest2" href="/x"><link rel="abp-manifest" href="/m.json">',
    '<a href="/x" rel="abp-manifest"></a><link rel="abp-manifest" href="/m.json">',
    '<script>if (a < b) document.write("<link rel=abp-manifest href=/x>")</script><link rel=abp-manifest href=/m.json>',
    '<script>"</head>"</script><link rel="abp-manifest" href="/m.json">',
    '<!-- </head> <link rel="abp-manifest" href="/x"> --><link rel="abp-manifest" href="/m.json">',
    '<style>a::before { content: "<link rel=abp-manifest href=/x>" }</style><link rel="abp-manifest" href="/m.json">',
    '<title>a </head> <link rel="abp-manifest" href="/x"></title><link rel="abp-manifest" href="/m.json">',
    '<noscript><!-- </noscript><link rel="abp-manifest" href="/m.json"><!-- -->',
    '<template><template><p></template></head><link rel="abp-manifest" href="/x"></template>'
    '<link rel="abp-manifest" href="/m.json">',
    '<svg-icon></svg-icon><link rel="abp-manifest" href="/m.json">',
    '<link rel="abp-manifest" href="&#47;m&period;json">',
    '<![if !IE]><link rel="abp-manifest" href="/m.json"><![endif]>',
    '<![what]><![CDATA[ <a b> ]]><!x><!-><?php ?></ x></><link rel="abp-manifest" href="/m.json">',
]


@pytest.mark.requirement("R6-1c")
@each_row("markup", FOUND)
@each_row("step", [None, 1, 7])
def test_first_manifest_link_is_found(markup: str, step: int | None) -> None:
    page = f"<!doctype html><html><head><meta charset=utf-8>{markup}</head><body></body></html>"
    head = read(page, step=step)
    assert head.href == "/m.json"
    assert head.ended


NOT_FOUND = [
    "",
    "<head></head><body></body>",
    '<head></head><link rel="abp-manifest" href="/m.json">',
    '<head><body><link rel="abp-manifest" href="/m.json">',
    '<HEAD></HEAD ><body><link rel="abp-manifest" href="/m.json">',
    '<!-- <link rel="abp-manifest" href="/m.json"> -->',
    '<script><link rel="abp-manifest" href="/m.json"></script>',
    '<script/><link rel="abp-manifest" href="/m.json"></script>',
    '<template><link rel="abp-manifest" href="/m.json"></template>',
    '<template/><link rel="abp-manifest" href="/m.json">',
    '<noscript><link rel="abp-manifest" href="/m.json"></noscript>',
    '<textarea><link rel="abp-manifest" href="/m.json"></textarea>',
    '<title><link rel="abp-manifest" href="/m.json"></title>',
    '<link rel="abp-manifest">',
    '<link rel="abp-manifest" href="">',
    '<link rev="abp-manifest" href="/m.json">',
    '<link data-rel="abp-manifest" href="/m.json">',
    '<link rel="abp-manifest" href="/m.json"',
    "\x00\xff<<<>>>&&&",
]


@each_row("page", NOT_FOUND)
@each_row("step", [None, 1])
def test_page_without_manifest_link_yields_none(page: str, step: int | None) -> None:
    assert read(page, step=step).href is None


PIECES = ["<", "</", "<!", "<![", "<!--", "--", ">", "/>", "head", "script", "title", "a", "CDATA", "if"]
PIECES += ["[", "]", "]]>", "=", " ", "'", '"', "&", "&#", ";", "<?", "\x00", "é"]
MARKUP = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(MARKUP | st.text(), MARKUP | st.text(), st.integers(1, 20))
def test_page_head_parsing_ignores_chunk_boundaries(markup: str, text: str, step: int) -> None:
    page = f"{markup}<title>{text}</title><link rel=abp-manifest href='/{text}'></head>"
    whole, pieces = read(page), read(page, step=step)
    assert (whole.href, whole.base, whole.title, whole.ended) == (pieces.href, pieces.base, pieces.title, pieces.ended)


def test_page_head_reads_base_and_title() -> None:
    head = read(
        '<title> A &amp; B\n C</title><base target=x><base href="/b/"><base href="/c/"><title>no</title></head>'
    )
    assert (head.title, head.base, head.href) == ("A & B C", "/b/", None)
    assert read('<template><base href="/x"></template></head><base href="/y">').base is None
    for characters, step in ((1000, None), (1001, None), (1200, 600), (40_000, 100)):
        cut = read(f"<title>{'x' * characters}</title><link rel=abp-manifest href=/m></head>", step=step)
        assert (cut.title, cut.href) == ("x" * 1000, "/m")


LINK = '<link rel="abp-manifest" href="/ä€.json">'


@each_row(
    ("page", "said"),
    [
        *((LINK.encode(), said) for said in ("utf-8", None, "no-such-charset", "idna", "hex", "iso-8859-12")),
        (LINK.encode("cp1252"), "iso-8859-1"),
        (LINK.encode("cp1252"), " Windows-1252 "),
        (LINK.encode("utf-8-sig"), "iso-8859-1"),
        (LINK.encode("utf-16"), None),
        (LINK.encode("utf-16"), "utf-8"),
        (b"\xfe\xff" + LINK.encode("utf-16-be"), None),
        (LINK.encode("utf-16-le"), "utf-16"),
    ],
)
@each_row("step", [None, 1, 30])
def test_charset_from_bom_then_header(page: bytes, said: str | None, step: int | None) -> None:
    assert read(page, said, step=step).href == "/ä€.json"


def test_page_head_ends_without_waiting_for_more() -> None:
    for page in (b"<link rel=abp-manifest href=/m></head>", b"<link rel=abp-manifest href=/m><body>"):
        head = PageHead()
        head.feed(page)
        assert head.ended and head.href == "/m"
    waiting = PageHead()
    waiting.feed(b"<!-- </head> -->")
    assert not waiting.ended


_PIECES = ["<", "<!--", "<a ", "<a b=", "</", "<![CDATA[", "<template>", "&#", "<a b='", "<?", "<!a"]


@pytest.mark.parametrize("piece", slow_but(_PIECES, "<a b='", "<!--"))
def test_hostile_markup_is_parsed_quickly(piece: str) -> None:
    page = (piece * 50_000)[: 50 * 1024]
    started = time.process_time()
    read(page, step=1000)
    assert time.process_time() - started < 3
