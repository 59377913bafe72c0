"""Stored artifacts on stdout: a line for each, or their documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from .output import print_json, print_note, print_text

if TYPE_CHECKING:
    from ...artifacts import ArtifactRef

__all__ = ["document_of", "print_list"]


def document_of(ref: ArtifactRef) -> dict[str, object]:
    """Return an artifact as JSON values, with what is known of its origin."""
    return {**ref.as_dict(), "source": dict(ref.source)}


def print_list(refs: Sequence[ArtifactRef], as_json: bool, none: str) -> None:
    """Print artifacts; ``none`` is the note if there are none."""
    if as_json:
        print_json({"success": True, "artifacts": [document_of(ref) for ref in refs]})
        return
    id_width = max((len(ref.id) for ref in refs), default=0)
    type_width = max((len(ref.mime_type) for ref in refs), default=0)
    for ref in refs:
        start = f"{ref.id:<{id_width}} {ref.size_bytes:>12,}  {ref.mime_type:<{type_width}}"
        print_text(f"{start} {_date(ref):<16}  {ref.filename}")
    if not refs:
        print_note(none)


def _date(ref: ArtifactRef) -> str:
    """When the artifact was stored first, in local time to the minute."""
    try:
        return f"{datetime.fromisoformat(str(ref.source.get('created'))).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # a store of a host need not say it
        return ""
