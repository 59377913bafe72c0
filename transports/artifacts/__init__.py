"""Artifact stores for binary results: the :class:`ArtifactStore` contract and its implementations."""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
