"""Transports that know the store of their session."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .base import ArtifactStore

__all__ = ["TakesStore"]


@runtime_checkable
class TakesStore(Protocol):
    """A transport that is given the session's store: for its limit of one file, or for handlers that store artifacts
    themselves. References that the store returns may stand in answers: the routing takes them for what they are."""

    def use_store(self, store: ArtifactStore) -> None:
        """Use this store from now on; a session calls it before it opens the transport."""
