"""Artifact stores for binary results: the :class:`ArtifactStore` contract and its implementations.

* :mod:`._base` — the contract, staging, streaming and eviction, shared by all stores.
* :mod:`.local`, :mod:`.objects`, :mod:`._memory`, :mod:`._none`, :mod:`._hosts` — the kinds of stores.
* :mod:`._content` — measuring and describing content; :mod:`._spool` — staged files of stores without a folder;
  :mod:`._files` — files outside the store, locks and exports.
* :mod:`._ref` — references, scopes, ids and metadata.
* :mod:`._retention` and :mod:`._sweeping` — time to live, limits and cleanup; :mod:`._audit` — the audit log.
* :mod:`._signing` — signed links, and the registry of servers that open them.
* :mod:`._query`, :mod:`._search` — queries by metadata, and by file name or text.
* :mod:`._verified` — blocking files of artifacts, verified piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._audit import AuditLog
    from ._base import DEFAULT_MAX_BYTES as DEFAULT_MAX_BYTES, ArtifactStore, Staged
    from ._content import Durability, PutOptions, readable_copy as readable_copy, too_large as too_large
    from ._files import (
        OPEN_FILES_MOVE as OPEN_FILES_MOVE,
        belongs_to_us as belongs_to_us,
        map_os_errors as map_os_errors,
        open_file as open_file,
        others_may_read as others_may_read,
        pieces_of as pieces_of,
        read_at as read_at,
        remove_left as remove_left,
        replacing as replacing,
        state_folder as state_folder,
        temporary_path as temporary_path,
        try_lock as try_lock,
        write_all as write_all,
    )
    from ._hosts import HostedStore, HostFacade, HostStore, StoreForHost, is_host_store as is_host_store
    from ._memory import MemoryStore
    from ._none import NoneStore
    from ._opening import discover_store, open_store
    from ._query import Page, Query, age_key as age_key, find
    from ._ref import (
        MAX_SCOPE_CHARS as MAX_SCOPE_CHARS,
        ArtifactRef,
        CheckReport,
        Problem,
        ReindexReport,
        Scope,
        files_table as files_table,
        shown_picture as shown_picture,
    )
    from ._retention import Removal, Retention
    from ._search import is_named, search, versions
    from ._signing import (
        MAX_SECONDS as MAX_SECONDS,
        Expired as Expired,
        Signer as Signer,
        download_link as download_link,
        find_server as find_server,
        registered as registered,
        signing_key as signing_key,
    )
    from ._sweeping import reindex, sweeping
    from ._verified import Pieces as Pieces, open_file_of as open_file_of, verified as verified
    from .local._blobs import NO_LINKS as NO_LINKS, place as place
    from .local._store import LocalStore
    from .local._tree import (
        SYMLINK as SYMLINK,
        Folder as Folder,
        PosixFolder as PosixFolder,
        Tree as Tree,
        folder_beneath as folder_beneath,
        open_beneath as open_beneath,
        temporary_name as temporary_name,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_audit": ("AuditLog",),
            "_base": (
                "ArtifactStore",
                "DEFAULT_MAX_BYTES",
                "Staged",
            ),
            "_content": (
                "Durability",
                "PutOptions",
                "readable_copy",
                "too_large",
            ),
            "_files": (
                "OPEN_FILES_MOVE",
                "belongs_to_us",
                "map_os_errors",
                "open_file",
                "others_may_read",
                "pieces_of",
                "read_at",
                "remove_left",
                "replacing",
                "state_folder",
                "temporary_path",
                "try_lock",
                "write_all",
            ),
            "_hosts": (
                "HostFacade",
                "HostStore",
                "HostedStore",
                "StoreForHost",
                "is_host_store",
            ),
            "_memory": ("MemoryStore",),
            "_none": ("NoneStore",),
            "_opening": (
                "discover_store",
                "open_store",
            ),
            "_query": (
                "Page",
                "Query",
                "age_key",
                "find",
            ),
            "_ref": (
                "ArtifactRef",
                "CheckReport",
                "MAX_SCOPE_CHARS",
                "Problem",
                "ReindexReport",
                "Scope",
                "files_table",
                "shown_picture",
            ),
            "_retention": (
                "Removal",
                "Retention",
            ),
            "_search": (
                "is_named",
                "search",
                "versions",
            ),
            "_signing": (
                "Expired",
                "MAX_SECONDS",
                "Signer",
                "download_link",
                "find_server",
                "registered",
                "signing_key",
            ),
            "_sweeping": (
                "reindex",
                "sweeping",
            ),
            "_verified": (
                "Pieces",
                "open_file_of",
                "verified",
            ),
            "local._blobs": (
                "NO_LINKS",
                "place",
            ),
            "local._store": ("LocalStore",),
            "local._tree": (
                "Folder",
                "PosixFolder",
                "SYMLINK",
                "Tree",
                "folder_beneath",
                "open_beneath",
                "temporary_name",
            ),
        },
    )

__all__ = [
    "ArtifactRef",
    "ArtifactStore",
    "AuditLog",
    "CheckReport",
    "Durability",
    "HostFacade",
    "HostStore",
    "HostedStore",
    "LocalStore",
    "MemoryStore",
    "NoneStore",
    "Page",
    "Problem",
    "PutOptions",
    "Query",
    "ReindexReport",
    "Removal",
    "Retention",
    "Scope",
    "Staged",
    "StoreForHost",
    "discover_store",
    "find",
    "is_named",
    "open_store",
    "reindex",
    "search",
    "sweeping",
    "versions",
]
