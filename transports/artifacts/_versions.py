"""Versions: the artifacts stored under one file name, in order."""

from __future__ import annotations

from ._base import ArtifactStore
from ._ref import ArtifactRef

__all__ = ["is_named", "versions"]


def is_named(ref: ArtifactRef, name: str) -> bool:
    """Return whether an artifact was stored under this file name, as suggested or as it is now."""
    requested = ref.source.get("requested_names")
    return name == ref.filename or (isinstance(requested, list) and name in requested)


async def versions(store: ArtifactStore, name: str) -> list[ArtifactRef]:
    """Return the artifacts of a view that were stored under the file name ``name``, the latest last.

    Each artifact is a version. An id stands for its content, so storing other content under a name makes another
    artifact; the older one stays until it is deleted or the retention removes it. Content that is stored again becomes
    the latest version.
    """
    found = [ref for ref in await store.list() if is_named(ref, name)]
    stored = {entry.id: entry.stored for entry in await store._entries(store.scope)} if len(found) > 1 else {}
    return sorted(found, key=lambda ref: stored.get(ref.id, 0.0))
