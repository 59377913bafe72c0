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

from .._internal.arguments import validate_arguments
from .._internal.tasks import cancel_and_wait, start_task
from ..errors import ABPError, UsageError
from ..protocol._plain_text import redact_url
from ._base import DEFAULT_MAX_BYTES, ArtifactStore, AuditLog
from ._hosts import HostedStore, HostStore, StoreForHost, is_host_store
from ._memory import MemoryStore, NoneStore
from ._ref import ReindexReport
from ._retention import Retention
from .local._store import LocalStore

logger = logging.getLogger("transports.artifacts")


@validate_arguments
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

        bucket_url, index = split_index(url)
        _check_bucket_url(bucket_url)
        return ObjectStore(bucket_url, max_bytes=max_bytes, retention=retention, audit=log, index=index)
    return LocalStore(
        _folder_of(url),
        max_bytes=max_bytes,
        retention=retention,
        audit=log,
        search_index=search_index,
        min_free_bytes=min_free_bytes,
    )


def _folder_of(url: str | Path | None) -> Path | None:
    """Return the folder that a URL names, or ``None`` for the default folder."""
    if url is None:
        return None
    if isinstance(url, str) and url[:5].lower() == "file:":
        return _path_of_file_url(url)
    if not str(url) or "\0" in str(url):
        raise _unsupported_error(str(url))
    if isinstance(url, str):
        has_scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) is not None
        is_windows_path = bool(Path(url).drive)
        if has_scheme and not is_windows_path:
            raise _unsupported_error(url)
    return Path(url)


def _check_bucket_url(url: str) -> None:
    """Refuse a URL with more than a bucket and a prefix: credentials come from the environment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsupported_error(url) from None

    # abfs://container@account has a container in the place of a user.
    names_container = parts.scheme.lower().startswith("abfs") and parts.password is None
    has_credentials = parts.username is not None and not names_container
    has_extras = parts.query or parts.fragment or "\0" in url
    leaves_bucket = ".." in parts.path.split("/")
    if has_credentials or has_extras or leaves_bucket or not parts.hostname:
        raise _unsupported_error(url)


def _path_of_file_url(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsupported_error(url) from None

    path = unquote(parts.path, errors="surrogateescape")
    is_on_this_machine = parts.netloc.lower() in ("", "localhost")
    has_extras = parts.query or parts.fragment or "\0" in path
    if has_extras or not is_on_this_machine or not path.startswith("/"):
        raise _unsupported_error(url)

    # The path of file:///C:/folder is /C:/folder.
    without_slash = Path(path[1:])
    return without_slash if without_slash.drive else Path(path)


def _unsupported_error(url: str) -> UsageError:
    return UsageError(
        f"unknown artifact store {redact_url(url)!r}; use a folder (./out), file:///absolute/folder "
        "(# as %23, ? as %3F), memory:, s3://bucket/prefix, or none: to keep nothing"
    )


_STORE_METHODS = sorted(
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

        has_store_methods = all(callable(getattr(candidate, name, None)) for name in _STORE_METHODS)
        if has_store_methods or isinstance(candidate, ArtifactStore):
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
    task = start_task(_sweep_forever(store, sleep)) if store.retention else None
    try:
        yield
    finally:
        if task is not None:
            await cancel_and_wait((task,))


async def _sweep_forever(store: ArtifactStore, sleep: Callable[[float], Awaitable[object]]) -> None:
    sweep_number = 0
    last_sweep_failed = False
    while True:
        try:
            # Look for leftovers, too, once an hour: that takes longer.
            sweeps_per_hour = 60
            if sweep_number % sweeps_per_hour == 0:
                removals = await store.gc()
            else:
                removals = await store.enforce_retention()
            if removals:
                size = sum(removal.size_bytes for removal in removals)
                logger.info("the retention removed %d artifacts of %d bytes from %s", len(removals), size, store.url)
            last_sweep_failed = False
        except Exception as error:
            # Report a store that stays unreachable once, not every minute.
            if not last_sweep_failed:
                traceback = None if isinstance(error, ABPError) else error
                logger.warning("%s cannot be swept: %s", store.url, error, exc_info=traceback)
            last_sweep_failed = True

        sweep_number += 1
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
