"""Making the index of a store agree with what is stored."""

from __future__ import annotations

from ..errors import UsageError
from .base import ArtifactStore
from .ref import ReindexReport

__all__ = ["reindex"]


async def reindex(store: ArtifactStore) -> ReindexReport:
    """Compare the index of an object store with all of its metadata, and correct it; a new index is built.

    Metadata is read where its ETag is not that of the row. The store may be used meanwhile. Raises
    :class:`~transports.errors.UsageError` for a store without such an index, and
    :class:`~transports.errors.StoreUnavailable` if the store or the index cannot be reached.
    """
    from .objects.store import ObjectStore

    if not isinstance(store, ObjectStore):
        raise UsageError(f"{store.url} has no index that could be lost; `abp artifacts fsck` checks it")
    return await store.reindex()
