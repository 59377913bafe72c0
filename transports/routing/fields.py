"""The layer for configured fields (docs/requirements.md R2-3.4): the fields that rules name, and their templates. No
I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..artifacts import ArtifactRef
from ..binary import BinaryData, Encoded
from ..binary.detect import Place, sniff_base64
from ..binary.media import OCTET_STREAM, extension_for
from .paths import walk_path
from .policy import FieldRule

__all__ = ["FieldMatch", "fill_summary", "human_size", "match_fields"]

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
#: Characters below which base64 without a signature is taken for a word such as ``pending``, not for a file.
_MAX_WORD_CHARS = 100
_MAX_VALUE_CHARS = 200  # of an app's value in a summary


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """A field that a rule names, with its content and the fields beside it."""

    place: Place
    binary: BinaryData
    rule: FieldRule
    siblings: Mapping[str, object]

    def summary(self, ref: ArtifactRef) -> str:
        """Return the rule's summary of the file, its template filled; it says so if the file was not stored."""
        return fill_summary(self.rule.summary, ref, self.siblings)


def fill_summary(template: str, ref: ArtifactRef, siblings: Mapping[str, object]) -> str:
    """Return a template filled with what is known of a file and of the fields beside it; it says so if the file was not
    stored."""
    known = {
        "content_type": extension_for(ref.mime_type)[1:] if ref.mime_type != OCTET_STREAM else "binary",
        "mime_type": ref.mime_type,
        "size": str(ref.size_bytes),
        "size_human": human_size(ref.size_bytes),
        "artifact_id": ref.id,
        "filename": ref.filename,
    }
    text = _fill(template, siblings, known)
    return text if ref.stored else f"{text.rstrip('.')}. Note: binary content not stored."


def match_fields(data: object, rules: Sequence[FieldRule], roots: Sequence[Place] = ((),)) -> list[FieldMatch]:
    """Return the fields of ``data`` that a rule names and that hold text.

    Paths of rules begin at each of ``roots``. If several rules name a field, the first wins.
    """
    found: dict[Place, FieldMatch] = {}
    for root, rule in product(roots, rules):
        for place, node, siblings in walk_path(data, rule.path, root):
            if isinstance(node, str) and node and place not in found:
                binary = _content(node, rule, siblings)
                if binary is not None:
                    found[place] = FieldMatch(place, binary, rule, siblings)
    return list(found.values())


def human_size(size: int) -> str:
    """Return a size in bytes for people: ``531 bytes``, ``488.3 KB``, ``2.3 MB``. A KB has 1,024 bytes."""
    if size < 1024:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KB", "MB", "GB"):
        value /= 1024
        if value < 1024 or unit == "GB":
            break
    return f"{value:.1f} {unit}"


def _content(text: str, rule: FieldRule, siblings: Mapping[str, object]) -> BinaryData | None:
    """The content of a field, or ``None`` if it does not fit the rule."""
    form, declared = siblings.get("format"), siblings.get("encoding")
    if rule.formats and isinstance(form, str) and form and form.lower() not in map(str.lower, rule.formats):
        return None
    if declared is None and rule.encoding == "base64" and text.lstrip().startswith("<"):  # XML or HTML
        return None
    encoding = declared.lower() if isinstance(declared, str) else rule.encoding
    encoded = Encoded(text, "utf-8")
    if encoding != "utf-8":
        if encoding != "base64":  # GitHub says "none" where it leaves the content out
            return None
        head = _DATA_URL.match(text)
        bare = (text[head.end() :] if head else text).replace("\r", "").replace("\n", "")
        if len(bare) < _MAX_WORD_CHARS and rule.mime_type is not None and sniff_base64(bare) is None:
            return None
        encoded = Encoded(bare, "base64")
    filename = _fill(rule.filename, siblings, {}) if rule.filename else None
    return BinaryData(encoded, rule.mime_type, None, filename)


def _fill(template: str, siblings: Mapping[str, object], known: Mapping[str, str]) -> str:
    """``template`` with each ``{name}`` replaced, once: a value of the app is never read as a template. A name without
    a value becomes ``unknown name``."""

    def value(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name in known:
            return known[name]
        found = siblings.get(name)
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            return f"unknown {name}"
        text = " ".join(str(found)[: 4 * _MAX_VALUE_CHARS].split())
        return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"

    return _PLACEHOLDER.sub(value, template)
