"""Periodic sweeps of a store by its retention, and the rebuilding of an index."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from .._internal.tasks import begin, cancel_and_wait
from ..errors import ABPError, UsageError
from ._base import ArtifactStore
from ._ref import ReindexReport

logger = logging.getLogger("transports.artifacts")

#: Seconds between two sweeps. Every 60th sweep also looks for leftovers, which takes longer.
_INTERVAL = 60.0
_LEFTOVERS_EVERY = 60


@asynccontextmanager
async def sweeping(
    store: ArtifactStore, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[None]:
    """Sweep ``store`` at once and every minute while the block lasts; do nothing without a retention.

    A sweep removes artifacts that are expired or over a limit, and once an hour the leftovers of writers that died
    (:meth:`.ArtifactStore.gc`). A failed sweep is logged and does not stop the next one. ``sleep`` replaces
    :func:`asyncio.sleep` in tests.
    """
    task = begin(_sweep(store, sleep)) if store.retention else None
    try:
        yield
    finally:
        if task is not None:
            await cancel_and_wait((task,))


async def _sweep(store: ArtifactStore, sleep: Callable[[float], Awaitable[object]]) -> None:
    sweeps, failing = 0, False
    while True:
        try:
            removed = await (store.enforce_retention() if sweeps % _LEFTOVERS_EVERY else store.gc())
            if removed:
                size = sum(one.size_bytes for one in removed)
                logger.info("the retention removed %d artifacts of %d bytes from %s", len(removed), size, store.url)
            failing = False
        except Exception as error:
            if not failing:  # once, not with every sweep
                expected = isinstance(error, ABPError)
                logger.warning("%s cannot be swept: %s", store.url, error, exc_info=None if expected else error)
            failing = True
        sweeps += 1
        await sleep(_INTERVAL)


async def reindex(store: ArtifactStore) -> ReindexReport:
    """Compare the index of an object store with all of its metadata and correct it, or build a new index.

    Metadata is read only where its ETag differs from that of the row. The store may be used meanwhile. Raises
    :class:`~transports.errors.UsageError` for a store without such an index, and
    :class:`~transports.errors.StoreUnavailable` if the store or the index cannot be reached.
    """
    from .objects._store import ObjectStore

    if not isinstance(store, ObjectStore):
        raise UsageError(f"{store.url} has no index to rebuild; `abp artifacts fsck` checks it")
    return await store.reindex()
