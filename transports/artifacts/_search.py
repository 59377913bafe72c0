"""Search in the artifacts of a store: by metadata, by file name, and by the words of texts."""

from __future__ import annotations

import re
from contextlib import aclosing

from .._internal.tasks import in_thread
from ..errors import ArtifactNotFound, Corrupt, UsageError
from ..protocol._media import is_binary_mime
from ._base import ArtifactStore
from ._query import Page, Query
from ._ref import ArtifactRef, Scope
from .local._index import TextIndex
from .local._store import LocalStore

#: Bytes at the beginning of a text that are searched.
_MAX_BYTES = 1 << 20
#: Texts added to an index at a time.
_BATCH = 50


async def find(store: ArtifactStore, query: Query) -> Page:
    """Return one page of the artifacts of a view that match a query, the newest first.

    An object store with an index uses it; every other store lists all of its artifacts for each page. Raises
    :class:`~transports.errors.StoreError`, and :class:`~transports.errors.StoreUnavailable` for an index that cannot be
    reached.
    """
    return await store._find_page(query)


def is_named(ref: ArtifactRef, name: str) -> bool:
    """Return whether an artifact was stored under this file name, as suggested or as it is now."""
    requested = ref.source.get("requested_names")
    return name == ref.filename or (isinstance(requested, list) and name in requested)


async def versions(store: ArtifactStore, name: str) -> list[ArtifactRef]:
    """Return the artifacts of a view that were stored under the file name ``name``, the latest last.

    Each artifact is a version. An id stands for its content, so storing other content under a name makes another
    artifact; the older one stays until it is deleted or the retention removes it. Content that is stored again becomes
    the latest version.
    """
    refs = [ref for ref in await store.list() if is_named(ref, name)]
    if len(refs) < 2:
        return refs
    stored = {entry.id: entry.stored for entry in await store._list_entries(store.scope)}
    return sorted(refs, key=lambda ref: stored.get(ref.id, 0.0))


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, in lower case."""
    return re.findall(r"[^\W_]+", text.lower())


async def search(store: ArtifactStore, words: str) -> list[ArtifactRef]:
    """Return the text artifacts of a view that contain all of ``words``, oldest first.

    A word is a run of letters and digits, in upper or lower case; the last one may be the beginning of a word. The
    first MiB of each text is searched. A local store with ``search_index`` uses its index, brought up to date first;
    every other store reads its texts.

    Raises :class:`~transports.errors.UsageError` if there is no word in ``words``.
    """
    searched = words_of(words)
    if not searched:
        raise UsageError("search for one word or more, of letters and digits")
    refs = [ref for ref in await store.list() if not is_binary_mime(ref.mime_type)]
    if isinstance(store, LocalStore) and store.text_index is not None:
        matching = await _search_index(store, store.text_index, searched)
        return [ref for ref in refs if ref.id in matching]
    return [ref for ref in refs if _contains(await _read_text(store, ref), searched)]


def _contains(text: str, searched: list[str]) -> bool:
    *whole, beginning = searched
    words = set(words_of(text))
    return words.issuperset(whole) and any(word.startswith(beginning) for word in words)


async def _read_text(store: ArtifactStore, ref: ArtifactRef) -> str:
    """Return the first MiB of a text; empty if it was deleted or damaged meanwhile.

    These reads are not in the audit log, which records reads of content for a caller only.
    """
    try:
        async with aclosing(store._read_range(ref, 0, min(ref.size_bytes, _MAX_BYTES), _MAX_BYTES)) as chunks:
            data = b"".join([chunk async for chunk in chunks])
    except (ArtifactNotFound, Corrupt):
        return ""
    return data.decode("utf-8", "replace")


async def _search_index(store: LocalStore, index: TextIndex, searched: list[str]) -> set[str]:
    """Bring the index up to date with the store, and return the ids of the texts of any scope that match."""
    refs = {ref.id: ref for ref in await store._list_artifacts(Scope()) if not is_binary_mime(ref.mime_type)}
    missing = await in_thread(index.missing, refs.keys())
    for start in range(0, len(missing), _BATCH):
        batch = missing[start : start + _BATCH]
        await in_thread(index.add, [(key, await _read_text(store, refs[key])) for key in batch])
    return await in_thread(index.find, searched)
