"""The store that the settings name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..artifacts import ArtifactStore, Retention, open_store
from ..errors import UsageError
from .settings import Settings

__all__ = ["open_configured_store", "uses_own_store"]


def open_configured_store(
    settings: Settings, url: str | Path | None = None, *, retention: Retention | None
) -> ArtifactStore:
    """Return the store at ``url``, by default the one that ``settings`` name, with their limits and audit log.

    ``ABP_MAX_SESSION_BYTES`` is a limit of the retention; without one, what is over it is refused and nothing goes.

    Raises :class:`~transports.errors.UsageError`, which names the variable at fault.
    """
    try:
        return open_store(
            settings.store or settings.output_dir if url is None else url,
            max_bytes=settings.max_artifact_bytes,
            retention=_limited(retention, settings.max_session_bytes),
            audit=settings.audit_log,
            search_index=settings.search_index,
            min_free_bytes=settings.min_free_disk,
        )
    except UsageError as error:
        raise error if url is not None else UsageError(f"ABP_STORE: {error.message}") from None


def _limited(retention: Retention | None, max_session_bytes: int | None) -> Retention | None:
    if max_session_bytes is None:
        return retention
    if retention is None:
        return Retention.only(max_session_bytes=max_session_bytes, cleanup_strategy="none")
    own = retention.max_session_bytes
    return replace(retention, max_session_bytes=max_session_bytes if own is None else min(own, max_session_bytes))


def uses_own_store(settings: Settings) -> bool:
    """Whether nobody named a place for artifacts, so that they go to the kit's own folder or to memory."""
    return settings.store == "memory:" or not (settings.store or settings.output_dir)
