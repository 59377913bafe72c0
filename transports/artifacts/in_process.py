"""Transports whose app runs in this process and may store artifacts itself."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .base import ArtifactStore

__all__ = ["TakesStore"]


@runtime_checkable
class TakesStore(Protocol):
    """A transport whose handlers are given the session's store. References that the store returns may stand in their
    answers: the routing takes them for what they are."""

    def use_store(self, store: ArtifactStore) -> None:
        """Give handlers this store from now on; a session calls it before it opens the transport."""
