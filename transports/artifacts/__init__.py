"""Where binary results are kept: the :class:`ArtifactStore` contract and its implementations."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import UsageError, redact_url
from .base import ArtifactRef, ArtifactStore, Staged
from .local import DEFAULT_MAX_BYTES, LocalStore
from .none import NoneStore

__all__ = ["ArtifactRef", "ArtifactStore", "LocalStore", "NoneStore", "Staged", "open_store"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_store(url: str | Path | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES) -> ArtifactStore:
    """A store by its address: ``None`` (``<temp folder>/abp-mcp-bridge``), a folder, ``file:///…`` or ``none:``.

    ``max_bytes`` is the largest artifact in bytes. Nothing on the disk is touched. Raises
    :class:`~transports.errors.UsageError` for anything else.
    """
    if max_bytes < 0:
        raise UsageError(f"max_bytes must not be negative (it is {max_bytes})")
    if url is None:
        return LocalStore(max_bytes=max_bytes)
    if url == "none:":
        return NoneStore(max_bytes=max_bytes)
    if isinstance(url, str) and url[:5].lower() == "file:":
        return LocalStore(_path(url), max_bytes=max_bytes)
    if not str(url) or "\0" in str(url) or (isinstance(url, str) and _SCHEME.match(url)):
        raise _unsupported(str(url))
    return LocalStore(Path(url), max_bytes=max_bytes)


def _path(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsupported(url) from None
    path = unquote(parts.path, errors="surrogateescape")
    extra = parts.query or parts.fragment or parts.netloc.lower() not in ("", "localhost")
    if extra or not path.startswith("/") or "\0" in path:
        raise _unsupported(url)
    return Path(path)


def _unsupported(url: str) -> UsageError:
    return UsageError(
        f"no artifact store is known for {redact_url(url)!r}; use a folder (./out), file:///absolute/folder "
        "(# as %23, ? as %3F), or none: to keep nothing"
    )
