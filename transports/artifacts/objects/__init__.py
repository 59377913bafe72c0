"""The store in a bucket: S3, Google Cloud Storage, Azure (extra ``cloud``)."""

from __future__ import annotations

from .store import ObjectStore

__all__ = ["ObjectStore"]
