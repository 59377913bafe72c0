"""Rows of the index of a local store: made of metadata, and read as references. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from ...protocol.strict_json import encode_json
from ..metadata import Metadata
from ..ref import ArtifactRef, Scope

__all__ = ["Row", "ref_from_row", "row_of", "where"]

#: id, sha256, size, MIME type, names and source as JSON, inode, tenant, user, session, trace.
Row: TypeAlias = tuple[str, str, int, str, bytes, bytes, int, str | None, str | None, str | None, str | None]


def row_of(metadata: Metadata, inode: int) -> tuple[object, ...]:
    """Return the row of metadata whose file has that ``inode``."""
    names = encode_json([name.name for name in reversed(metadata.names)])
    created = str(metadata.source.get("created", ""))
    scope = metadata.scope
    source = encode_json(metadata.source)
    head = (metadata.id, metadata.sha256, metadata.size_bytes, metadata.mime_type, names, source, created)
    return (*head, metadata.stored, inode, metadata.stored, scope.tenant, scope.user, scope.session, scope.trace)


_names = msgspec.json.Decoder(list[str]).decode
_source = msgspec.json.Decoder(dict[str, object]).decode


def ref_from_row(
    row: Row, folder: str, exists: Callable[[str], object], scopes: dict[tuple[str | None, ...], Scope]
) -> ArtifactRef:
    """Return the reference of a row.

    Its file is the newest of its names for which ``exists`` is true; ``folder`` ends in a slash. ``scopes`` caches the
    scopes that were made before: a store has many artifacts and few scopes.
    """
    key, digest, size, mime, encoded, source = row[:6]
    owner = row[7:]
    scope = scopes.get(owner)
    if scope is None:
        scope = scopes[owner] = Scope(*owner)
    names = _names(encoded)
    name = next(filter(exists, names), None)
    path = None if name is None else folder + name
    return ArtifactRef(key, f"artifact://{key}", path, name or names[0], mime, size, digest, _source(source), scope)


def where(scope: Scope) -> tuple[str, list[str]]:
    """Return the SQL condition for what ``scope`` covers, and its values."""
    given = scope.items()
    conditions = " AND ".join(f'"{name}" = ?' for name, _ in given)  # "user" is a word of PostgreSQL's own
    return (f"WHERE {conditions}" if given else ""), [value for _, value in given]
