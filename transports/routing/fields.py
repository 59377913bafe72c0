"""The layer of configured fields (seed 002 §3.4): where the rules point, and what they say about it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..artifacts import ArtifactRef
from ..binary import BinaryData, Encoded
from ..binary.detect import MAX_DEPTH, Place, sniff_base64
from ..binary.media import OCTET_STREAM, extension_for
from .policy import FieldRule

__all__ = ["FieldMatch", "human_size", "match_fields"]

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_HOLE = re.compile(r"\{([^{}]*)\}")
_STEP = re.compile(r"(?:[^.\\]|\\.)+")
#: Shorter text without a signature, where a file of a known type should stand, is a word about it.
_WORD = 100
_LONGEST = 200  # characters of an app's value in a summary


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """A field that a rule points at: its place, its content, its rule, and the fields beside it."""

    place: Place
    binary: BinaryData
    rule: FieldRule
    beside: Mapping[str, object]

    def summary(self, ref: ArtifactRef) -> str:
        """The rule's summary of what was stored."""
        known = {
            "content_type": extension_for(ref.mime_type)[1:] if ref.mime_type != OCTET_STREAM else "binary",
            "mime_type": ref.mime_type,
            "size": str(ref.size_bytes),
            "size_human": human_size(ref.size_bytes),
            "artifact_id": ref.id,
            "filename": ref.filename,
        }
        return _filled(self.rule.summary, self.beside, known)


def match_fields(data: object, rules: Sequence[FieldRule], roots: Sequence[Place] = ((),)) -> list[FieldMatch]:
    """The fields of ``data`` that hold text where a rule points, beginning at each of ``roots``; the first rule that
    points at a field has it. Where there is no text, there is nothing to take out."""
    found: dict[Place, FieldMatch] = {}
    for root, rule in product(roots, rules):
        for start, tree, _ in _reached(data, root, (), {}):
            for place, node, beside in _reached(tree, _steps(rule.path), start, {}):
                if isinstance(node, str) and node and place not in found:
                    binary = _content(node, rule, beside)
                    if binary is not None:
                        found[place] = FieldMatch(place, binary, rule, beside)
    return list(found.values())


def human_size(size: int) -> str:
    """``531 bytes``, ``488.3 KB``, ``2.3 MB``."""
    if size < 1024:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KB", "MB", "GB"):
        value /= 1024
        if value < 1024 or unit == "GB":
            break
    return f"{value:.1f} {unit}"


def _steps(path: str) -> list[str]:
    """``a.b\\.c.*`` as its steps; ``\\*`` is a key of that name."""
    return _STEP.findall(path)[:MAX_DEPTH]


def _reached(
    node: object, steps: Sequence[str | int], place: Place, beside: Mapping[str, object]
) -> Iterator[tuple[Place, object, Mapping[str, object]]]:
    if not steps:
        yield place, node, beside
        return
    step, rest = str(steps[0]), steps[1:]
    key = re.sub(r"\\(.)", r"\1", step)
    if isinstance(node, dict):
        chosen = node.items() if step == "*" else [(key, node[key])] if key in node else []
        for name, value in chosen:
            yield from _reached(value, rest, (*place, str(name)), node)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if step in ("*", str(index)):
                yield from _reached(value, rest, (*place, index), beside)


def _content(text: str, rule: FieldRule, beside: Mapping[str, object]) -> BinaryData | None:
    said = beside.get("encoding")
    encoding = said.lower() if isinstance(said, str) else rule.encoding
    encoded = Encoded(text, "utf-8")
    if encoding != "utf-8":
        if encoding != "base64":  # GitHub says "none" where it leaves the content out
            return None
        head = _DATA_URL.match(text)
        bare = (text[head.end() :] if head else text).replace("\r", "").replace("\n", "")
        if len(bare) < _WORD and rule.mime_type is not None and sniff_base64(bare) is None:
            return None  # "pending" is base64, too
        encoded = Encoded(bare, "base64")
    filename = _filled(rule.filename, beside, {}) if rule.filename else None
    return BinaryData(encoded, rule.mime_type, None, filename)


def _filled(template: str, beside: Mapping[str, object], known: Mapping[str, str]) -> str:
    """``template`` with its holes filled, once: what an app says is not a template. A hole for which there is nothing
    says so."""

    def value(hole: re.Match[str]) -> str:
        name = hole[1]
        if name in known:
            return known[name]
        given = beside.get(name)
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            return f"unknown {name}"
        text = " ".join(str(given)[: 4 * _LONGEST].split())
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

    return _HOLE.sub(value, template)
