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

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
