"""The manifest that a session read of a page, as it is recorded and restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import DiscoveryFailed
from ...http import Discovery
from ...protocol.declarations import Manifest, parse
from ...protocol.redaction import Redactor
from .entries import RecordedError, record_error, restore_error

__all__ = ["pack_discovery", "unpack_discovery"]


def pack_discovery(found: Discovery, scrubber: Redactor) -> object:
    """Return a discovery as JSON, without secrets."""
    return scrubber.tree(
        {
            "page_url": found.page_url,
            "manifest_url": found.manifest_url,
            "title": found.title,
            "manifest": found.manifest and found.manifest.model_dump(by_alias=True),
            "warnings": [*found.warnings],
            "reason": found.reason and record_error(found.reason, scrubber).model_dump(),
        }
    )


def unpack_discovery(recorded: Mapping[str, Any]) -> Discovery:
    """Return the discovery that was recorded. Raises :class:`~transports.errors.ProtocolError` if it was edited."""
    manifest, reason = recorded.get("manifest"), recorded.get("reason")
    return Discovery(
        page_url=str(recorded.get("page_url")),
        manifest_url=recorded.get("manifest_url"),
        title=str(recorded.get("title")),
        manifest=None if manifest is None else parse(Manifest, manifest, "the recorded manifest"),
        warnings=tuple(recorded.get("warnings", ())),
        reason=None if reason is None else _failure(parse(RecordedError, reason, "the recorded reason")),
    )


def _failure(problem: RecordedError) -> DiscoveryFailed:
    error = restore_error(problem)
    return error if isinstance(error, DiscoveryFailed) else DiscoveryFailed(error.message, code=error.code)
