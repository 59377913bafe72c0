"""Opening a store by its URL, and discovery of the store of a host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from .._internal.arguments import checked
from ..errors import UsageError
from ..protocol._plain_text import redact_url
from ._audit import AuditLog
from ._base import DEFAULT_MAX_BYTES, ArtifactStore
from ._hosts import HostedStore, HostStore, StoreForHost, is_host_store
from ._memory import MemoryStore
from ._none import NoneStore
from ._retention import Retention
from .local._store import LocalStore


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
        f"no artifact store is known for {redact_url(url)!r}; use a folder (./out), file:///absolute/folder "
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
