"""MCP content blocks: JSON that travels as the text of a block is read, links stay links. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ..binary.detect import Heuristics, Place, find, replace
from ..errors import ProtocolError
from ..protocol.strict_json import decode_json
from .fields import match_fields
from .policy import FieldRule, Step

__all__ = ["parse_text_blocks"]


def parse_text_blocks(
    data: object, rules: Sequence[FieldRule], heuristics: Heuristics | None
) -> tuple[object, list[Place], list[Step]]:
    """Return ``data`` with the JSON of text blocks as trees, the places where field rules begin, and the steps taken.

    Servers answer structured results as text (docs/requirements.md R2-3.3). A text becomes a tree only if the tree
    holds a file; then a copy of ``data`` is returned. Field rules begin at the top, at ``structuredContent`` and at
    each such tree. An answer without content blocks is returned as it is.
    """
    roots: list[Place] = [()]
    blocks = data.get("content") if isinstance(data, dict) else None
    if not isinstance(blocks, list) or not isinstance(data, dict):
        return data, roots, []
    steps: list[Step] = []
    parsed: dict[Place, object] = {}
    if isinstance(data.get("structuredContent"), dict):
        roots.append(("structuredContent",))
    for index, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "resource_link":
            steps.append(Step("typed", f"content.{index}", "kept as a link; resources/read fetches it"))
        elif kind == "text" and (tree := _tree(block.get("text"), rules, heuristics)) is not None:
            place = ("content", index, "text")
            parsed[place] = tree
            roots.append(place)
            steps.append(Step("typed", f"content.{index}.text", "JSON in the text, read as such"))
    return replace(data, parsed), roots, steps


def _tree(text: object, rules: Sequence[FieldRule], heuristics: Heuristics | None) -> object:
    """The JSON of a text that holds a file, else ``None``."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        tree = decode_json(text)
        return tree if match_fields(tree, rules) or find(tree, heuristics=heuristics) else None
    except ProtocolError:
        return None
