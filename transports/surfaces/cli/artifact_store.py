"""The store that ``abp artifacts`` works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...artifacts import ArtifactStore, Retention

__all__ = ["store_at"]


def store_at(url: str | None, retention: Retention | None = None) -> ArtifactStore:
    """Return the store at ``url``, by default that of the settings, as is the retention."""
    from ...session.retention import retention_settings
    from ...session.settings import Settings
    from ...session.stores import open_configured_store

    return open_configured_store(Settings.load(), url, retention=retention or retention_settings())
