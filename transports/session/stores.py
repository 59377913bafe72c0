"""The store that the settings name."""

from __future__ import annotations

from pathlib import Path

from ..artifacts import ArtifactStore, Retention, open_store
from ..errors import UsageError
from .settings import Settings

__all__ = ["open_configured_store", "uses_own_store"]


def open_configured_store(
    settings: Settings, url: str | Path | None = None, *, retention: Retention | None
) -> ArtifactStore:
    """Return the store at ``url``, by default the one that ``settings`` name, with their limits and audit log.

    Raises :class:`~transports.errors.UsageError`, which names the variable at fault.
    """
    try:
        return open_store(
            url or settings.store or settings.output_dir,
            max_bytes=settings.max_artifact_bytes,
            retention=retention,
            audit=settings.audit_log,
            search_index=settings.search_index,
        )
    except UsageError as error:
        raise error if url else UsageError(f"ABP_STORE: {error.message}") from None


def uses_own_store(settings: Settings) -> bool:
    """Whether nobody named a place for artifacts, so that they go to the kit's own folder or to memory."""
    return settings.store == "memory:" or not (settings.store or settings.output_dir)
