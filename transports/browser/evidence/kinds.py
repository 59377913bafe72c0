"""The kinds of evidence, and one file of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

__all__ = ["KINDS", "EvidenceFile", "EvidenceKind"]

#: Playwright's trace, a video (WebM), a HAR 1.2, the console with the page's errors, a picture of the page at the end.
EvidenceKind: TypeAlias = Literal["trace", "video", "har", "console", "screenshot"]
KINDS: tuple[EvidenceKind, ...] = get_args(EvidenceKind)


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A file with evidence of one call, for the store; ``ending`` is that of its name there."""

    kind: EvidenceKind
    path: Path
    mime_type: str
    ending: str
