"""A store that a host program brings along (seed 002 §5.2)."""

from __future__ import annotations

from typing import cast

from .base import ArtifactStore

__all__ = ["discover_store"]

_CONTRACT = sorted(
    name for name in vars(ArtifactStore) if not name.startswith("_") and callable(vars(ArtifactStore)[name])
)


def discover_store(host: object) -> ArtifactStore | None:
    """The store that ``host`` has as its ``artifact_store``, or that it is itself; else ``None``.

    What counts is not the class but that every public method of :class:`ArtifactStore` is there. Where nothing is
    found, use ``open_store("none:")``.
    """
    for candidate in (getattr(host, "artifact_store", None), host):
        if isinstance(candidate, ArtifactStore) or all(callable(getattr(candidate, name, None)) for name in _CONTRACT):
            return cast(ArtifactStore, candidate)
    return None
