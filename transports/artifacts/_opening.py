"""Opening a store by its URL, discovery of the store of a host, and care of an open store."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from .._internal.arguments import checked
from .._internal.tasks import begin, cancel_and_wait
from ..errors import ABPError, UsageError
from ..protocol._plain_text import redact_url
from ._audit import AuditLog
from ._base import DEFAULT_MAX_BYTES, ArtifactStore
from ._hosts import HostedStore, HostStore, StoreForHost, is_host_store
from ._memory import MemoryStore, NoneStore
from ._ref import ReindexReport
from ._retention import Retention
from .local._store import LocalStore

logger = logging.getLogger("transports.artifacts")


@checked
def open_store(
    url: str | Path | None = None,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    retention: Retention | None = None,
    audit: AuditLog | str | Path | None = None,
    search_index: bool = False,
    min_free_bytes: int = 0,
) -> ArtifactStore:
    """Return the store at a URL.

    ``url`` is ``None`` (``<temp folder>/abp-mcp-bridge``), a folder, ``file:///…``, ``memory:``, ``s3://bucket/prefix``
    (also ``gs://``, ``az://``; needs the extra ``cloud``) or ``none:``. A bucket may have an index for large stores:
    ``s3://bucket/prefix?index=postgresql://host/database``, or ``?index=sqlite:///file``.

    ``max_bytes`` is the largest artifact in bytes; ``retention`` limits age and number of artifacts (``None``: kept for
    ever); ``audit`` is the file of the audit log. ``search_index`` keeps an index of texts, for :func:`search`, and
    ``min_free_bytes`` of the disk stay free; only a store in a folder uses these two. Nothing on the disk is touched
    before something is stored. Raises :class:`~transports.errors.UsageError` for any other URL.
    """
    if max_bytes < 0:
        raise UsageError(f"max_bytes must not be negative (it is {max_bytes})")
    log = AuditLog(Path(audit)) if isinstance(audit, str | Path) else audit
    if url == "none:":
        return NoneStore(max_bytes=max_bytes, audit=log, warns=False)
    if url == "memory:":
        return MemoryStore(max_bytes=max_bytes, retention=retention, audit=log)
    if isinstance(url, str) and re.match(r"(s3|s3a|gs|az|abfs|abfss|azure|adl)://", url, re.IGNORECASE):
        from .objects._index import split_index
        from .objects._store import ObjectStore  # needs an extra

        bucket, index = split_index(url)
        return ObjectStore(_bucket(bucket), max_bytes=max_bytes, retention=retention, audit=log, index=index)
    return LocalStore(
        _folder(url),
        max_bytes=max_bytes,
        retention=retention,
        audit=log,
        search_index=search_index,
        min_free_bytes=min_free_bytes,
    )


def _folder(url: str | Path | None) -> Path | None:
    if url is None:
        return None
    if isinstance(url, str) and url[:5].lower() == "file:":
        return _path(url)
    if not str(url) or "\0" in str(url):
        raise _unsupported(str(url))
    if isinstance(url, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) and not Path(url).drive:
        raise _unsupported(url)
    return Path(url)


def _bucket(url: str) -> str:
    """Return the URL if it has nothing but a bucket and a prefix: credentials come from the environment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsupported(url) from None
    container = parts.scheme.lower().startswith("abfs") and parts.password is None  # abfs://container@account…
    odd = (parts.username is not None and not container) or parts.query or parts.fragment or "\0" in url
    if odd or not parts.hostname or ".." in parts.path.split("/"):
        raise _unsupported(url)
    return url


def _path(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsupported(url) from None
    path = unquote(parts.path, errors="surrogateescape")
    extra = parts.query or parts.fragment or parts.netloc.lower() not in ("", "localhost")
    if extra or not path.startswith("/") or "\0" in path:
        raise _unsupported(url)
    return Path(path[1:] if Path(path[1:]).drive else path)  # file:///C:/folder


def _unsupported(url: str) -> UsageError:
    return UsageError(
        f"unknown artifact store {redact_url(url)!r}; use a folder (./out), file:///absolute/folder "
        "(# as %23, ? as %3F), memory:, s3://bucket/prefix, or none: to keep nothing"
    )


_CONTRACT = sorted(
    name for name in vars(ArtifactStore) if not name.startswith("_") and callable(vars(ArtifactStore)[name])
)


def discover_store(host: object, *, max_bytes: int = DEFAULT_MAX_BYTES) -> ArtifactStore | None:
    """Return ``host.artifact_store``, ``host.artifacts`` or ``host`` itself, the first that is a store; ``None``
    otherwise.

    A store is recognised by its methods, not by its class: those of :class:`ArtifactStore`, or those of a host's own
    store (:class:`HostStore`) or facade (:class:`HostFacade`), which is wrapped in a :class:`HostedStore` with
    ``max_bytes``. Use ``NoneStore()`` in place of ``None``.
    """
    for candidate in (getattr(host, "artifact_store", None), getattr(host, "artifacts", None), host):
        if isinstance(candidate, StoreForHost):
            return candidate.store
        if isinstance(candidate, ArtifactStore) or all(callable(getattr(candidate, name, None)) for name in _CONTRACT):
            return cast(ArtifactStore, candidate)
        if is_host_store(candidate):
            return HostedStore(cast(HostStore, candidate), max_bytes=max_bytes)
    return None


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
