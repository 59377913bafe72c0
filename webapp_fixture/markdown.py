"""A small, safe markdown renderer, a subset of ``static/lib/markdown.js``: no tables, images or task boxes.

What it knows (headings, paragraphs, lists, quotes, fences, rules, emphasis, code, links) comes out the same as there.
"""

import re
from typing import Any

from webapp_fixture.pdf import TextOf

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_SAFE_LINK = re.compile(r"(https?:|mailto:|#|/(?!/)|\.{0,2}/|[\w-]+(\.[\w-]+)*([/?#]|$))", re.IGNORECASE)
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)\s*([\w+-]*)\s*")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*")
_RULE = re.compile(r"\s{0,3}([-*_])(\s*\1){2,}\s*")
_ITEM = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])\s+(.*)")
_QUOTE = re.compile(r"\s{0,3}>\s?(.*)")
_WORD = re.compile(r"[^\W_](?:[^\W_]|['’-])*")
_DEEPEST = 20


def escape_html(text: str) -> str:
    """Escape text for HTML."""
    return re.sub("[&<>\"']", lambda match: _ESCAPES[match[0]], text)


def _inline(source: str) -> str:
    """Spans inside a line. Finished pieces are set aside as private-use characters, so nothing is rendered twice."""
    finished: list[str] = []

    def keep(html: str) -> str:
        finished.append(html)
        return f"\ue000{len(finished) - 1}\ue001"

    def link(match: re.Match[str]) -> str:
        label, url, title = match[1], match[2], match[3]
        if not _SAFE_LINK.match(url.replace("&amp;", "&")):
            return label
        extra = f' title="{title}"' if title else ""
        return keep(f'<a href="{url}"{extra}>') + label + keep("</a>")

    def restore(html: str) -> str:
        return re.sub("\ue000([0-9]+)\ue001", lambda match: restore(finished[int(match[1])]), html)

    text = re.sub("[\ue000\ue001]", "", source)
    text = re.sub(r"\\([\\`*_{}\[\]()#+\-.!|~>])", lambda match: keep(escape_html(match[1])), text)
    text = re.sub(r"(`+)(.+?)\1(?!`)", lambda match: keep(f"<code>{escape_html(match[2].strip())}</code>"), text)
    text = escape_html(text)
    text = re.sub(r"\[([^\]]+)\]\(((?:[^\s()]|\([^\s()]*\))+)(?:\s+&quot;(.*?)&quot;)?\)", link, text)
    bare = r"""(^|[\s(])(https?://[^\s<>"')]+[^\s<>"').,;:!?])"""
    text = re.sub(bare, lambda match: match[1] + keep(f'<a href="{match[2]}">{match[2]}</a>'), text)
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"<strong>\2</strong>", text)
    text = re.sub(r"\*(?=\S)(.+?)(?<=\S)\*", r"<em>\1</em>", text)
    text = re.sub(r"(^|\W)_(?=\S)(.+?)(?<=\S)_(?=\W|$)", r"\1<em>\2</em>", text, flags=re.ASCII)
    text = re.sub(r"~~(?=\S)(.+?)(?<=\S)~~", r"<del>\1</del>", text)
    return restore(text)


def _take_list(lines: list[str], depth: int) -> str:
    first = _ITEM.fullmatch(lines[0])
    assert first is not None, "the caller saw an item"
    indent, ordered = len(first[1]), first[2][0].isdigit()
    items: list[list[str]] = []
    while lines:
        match = _ITEM.fullmatch(lines[0])
        if match is None or len(match[1]) < indent or match[2][0].isdigit() != ordered:
            break
        lines.pop(0)
        inner = [match[3]]
        items.append(inner)
        while lines and lines[0].strip() and len(lines[0]) - len(lines[0].lstrip()) > indent:
            inner.append(re.sub(r"^( {1,4}|\t)", "", lines.pop(0)[indent:]))
        if len(lines) > 1 and not lines[0].strip() and _ITEM.fullmatch(lines[1]):
            lines.pop(0)
    number = int(first[2][:-1]) if ordered else 1
    start = f' start="{number}"' if number != 1 else ""
    html = "".join(
        f"<li>{_inline(item)}{_blocks(rest, depth + 1, tight=True) if rest else ''}</li>" for item, *rest in items
    )
    return f"<{'ol' if ordered else 'ul'}{start}>{html}</{'ol' if ordered else 'ul'}>"


def _take_fence(lines: list[str]) -> str:
    opening = _FENCE.fullmatch(lines.pop(0))
    assert opening is not None, "the caller saw a fence"
    code = []
    while lines and not lines[0].strip().startswith(opening[1]):
        code.append(lines.pop(0))
    del lines[:1]
    kind = f' class="language-{escape_html(opening[2])}"' if opening[2] else ""
    inner = escape_html("\n".join(code))
    return f"<pre><code{kind}>{inner}\n</code></pre>"


def _take_paragraph(lines: list[str], tight: bool) -> str:
    text = [lines.pop(0)]
    while lines and lines[0].strip():
        if any(pattern.fullmatch(lines[0]) for pattern in (_FENCE, _HEADING, _RULE, _ITEM, _QUOTE)):
            break
        text.append(lines.pop(0))
    html = "\n".join(_inline(line.strip()) + ("<br>" if line.endswith(("  ", "\\")) else "") for line in text)
    return f" {html}" if tight else f"<p>{html}</p>"


def _take_quote(lines: list[str], depth: int) -> str:
    quoted = []
    while lines and (match := _QUOTE.fullmatch(lines[0])):
        quoted.append(match[1])
        lines.pop(0)
    return f"<blockquote>{_blocks(quoted, depth + 1)}</blockquote>"


def _blocks(lines: list[str], depth: int = 0, tight: bool = False) -> str:
    html = []
    while lines:
        if not lines[0].strip():
            lines.pop(0)
        elif depth > _DEEPEST:
            html.append(_take_paragraph(lines, tight))
        elif _FENCE.fullmatch(lines[0]):
            html.append(_take_fence(lines))
        elif heading := _HEADING.fullmatch(lines[0]):
            lines.pop(0)
            level = len(heading[1])
            html.append(f"<h{level}>{_inline(heading[2])}</h{level}>")
        elif _RULE.fullmatch(lines[0]):
            lines.pop(0)
            html.append("<hr>")
        elif _QUOTE.fullmatch(lines[0]):
            html.append(_take_quote(lines, depth))
        elif _ITEM.fullmatch(lines[0]):
            html.append(_take_list(lines, depth))
        else:
            html.append(_take_paragraph(lines, tight))
    return "\n".join(html)


def render_markdown(markdown: str, title: str | None = None) -> dict[str, Any]:
    """Render Markdown as ``{html, title, words}``. The title is that of the first heading unless one is given."""
    html = _blocks(re.sub(r"\r\n?", "\n", markdown).split("\n"))
    seen = TextOf(html)
    heading = seen.first_heading()
    words = len(_WORD.findall(seen.content))
    return {"html": html, "title": title if title is not None else heading or "Untitled", "words": words}
