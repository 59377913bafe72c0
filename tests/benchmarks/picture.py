"""Parts of SVG pictures."""

from __future__ import annotations

from xml.sax.saxutils import escape

__all__ = ["COLOURS", "line", "text"]

COLOURS = ("#1a66cc", "#d9822b", "#2f8f4e", "#8a4fbf")


def text(x: float, y: float, words: str, *, anchor: str = "start", extra: str = "") -> str:
    """Words at a place; ``extra`` are more attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, extra: str = "") -> str:
    """A line; ``extra`` are more attributes."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{extra}/>'
