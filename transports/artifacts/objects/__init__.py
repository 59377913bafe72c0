"""The store in a bucket of Amazon S3 (or a compatible server), Google Cloud Storage or Azure; extra ``cloud``."""

from __future__ import annotations

from ._store import ObjectStore

__all__ = ["ObjectStore"]
