"""The store that the settings choose. It is opened without the rest of a session: ``abp proxy`` needs no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..artifacts._base import ArtifactStore
from ..artifacts._opening import open_store
from ..artifacts._retention import Retention
from ..errors import UsageError
from ._settings import Settings


def open_configured_store(
    settings: Settings, url: str | Path | None = None, *, retention: Retention | None
) -> ArtifactStore:
    """Return the store at ``url``, by default that of ``settings``, with their limits and audit log.
    ``ABP_MAX_SESSION_BYTES`` becomes a limit of the retention. Without a retention, content over the limit is refused
    and nothing is evicted."""
    try:
        return open_store(
            settings.store or settings.output_dir if url is None else url,
            max_bytes=settings.max_artifact_bytes,
            retention=_limited_retention(retention, settings.max_session_bytes),
            audit=settings.audit_log,
            search_index=settings.search_index,
            min_free_bytes=settings.min_free_disk,
        )
    except UsageError as error:
        if url is not None:
            raise
        raise UsageError(f"ABP_STORE: {error.message}") from None


def _limited_retention(retention: Retention | None, max_session_bytes: int | None) -> Retention | None:
    """Return a retention in which a session has at most ``max_session_bytes``; ``None`` adds no limit."""
    if max_session_bytes is None:
        return retention
    if retention is None:
        return Retention.only(max_session_bytes=max_session_bytes, cleanup_strategy="none")
    if retention.max_session_bytes is not None:
        max_session_bytes = min(max_session_bytes, retention.max_session_bytes)
    return replace(retention, max_session_bytes=max_session_bytes)
