"""The store that ``abp artifacts`` works on, and the options of all its commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...artifacts import ArtifactStore, Retention

__all__ = ["Folder", "store_at"]

Folder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder of the store (default: ABP_OUTPUT_DIR).")
]


def store_at(folder: Path | None, retention: Retention | None = None) -> ArtifactStore:
    """Return the store in ``folder``, by default that of the settings, as is the retention."""
    from ...session.retention import retention_settings
    from ...session.settings import Settings
    from ...session.stores import open_configured_store

    return open_configured_store(Settings.load(), folder, retention=retention or retention_settings())
