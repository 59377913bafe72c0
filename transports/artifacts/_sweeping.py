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


@asynccontextmanager
async def sweeping(
    store: ArtifactStore, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[None]:
    """Sweep ``store`` at once and every minute while the block lasts; do nothing without a retention.

    A sweep removes artifacts that are expired or over a limit, and once an hour the leftovers of writers that died
    (:meth:`.ArtifactStore.gc`). A failed sweep is logged and does not stop the next one. ``sleep`` replaces
    :func:`asyncio.sleep` in tests.
    """
    task = begin(_sweep_forever(store, sleep)) if store.retention else None
    try:
        yield
    finally:
        if task is not None:
            await cancel_and_wait((task,))


async def _sweep_forever(store: ArtifactStore, sleep: Callable[[float], Awaitable[object]]) -> None:
    sweeps = 0
    failing = False
    while True:
        try:
            if sweeps % 60 == 0:
                removed = await store.gc()  # looks for leftovers, too, which takes longer
            else:
                removed = await store.enforce_retention()
            if removed:
                size = sum(removal.size_bytes for removal in removed)
                logger.info("the retention removed %d artifacts of %d bytes from %s", len(removed), size, store.url)
            failing = False
        except Exception as error:
            if not failing:  # once, not with every sweep
                traceback = None if isinstance(error, ABPError) else error
                logger.warning("%s cannot be swept: %s", store.url, error, exc_info=traceback)
            failing = True
        sweeps += 1
        await sleep(60.0)


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
