"""Rows of the index of an object store: made of metadata, chosen by a query, read as metadata. No I/O."""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from ...database import Value, without_nul
from ..local.rows import where
from ..metadata import ID, Metadata, OtherCase
from ..query import Query
from ..ref import Scope

__all__ = ["COLUMNS", "Indexed", "condition", "metadata_of", "row_of", "scope_condition", "tables"]

logger = logging.getLogger("transports.artifacts")

#: The columns of a row, after the number of its store. Another layout gets tables of another name.
COLUMNS = (
    "id", "e_tag", "metadata", "size", "mime", "created", "stored", "used", "capability", "app",
    "tenant", '"user"', "session", "trace",
)  # fmt: skip
#: Characters of a value that is looked up: an entry of PostgreSQL's indexes has 2.7 KB at most.
_LONGEST = 200
#: Above all characters.
_END = "\U0010ffff"


class Indexed(NamedTuple):
    """Metadata and the ETag of the object that it was read from."""

    metadata: Metadata
    e_tag: str


def tables(text: str) -> tuple[str, ...]:
    """Return the statements that make the tables. ``text`` is the database's type of a text compared by its bytes. The
    last two make ``abp_artifacts_1_session`` and ``abp_artifact_changes_2``."""
    artifacts = f"""CREATE TABLE IF NOT EXISTS abp_artifacts_1 (
    store INTEGER NOT NULL, id {text} NOT NULL, e_tag TEXT NOT NULL, metadata TEXT NOT NULL, size BIGINT NOT NULL,
    mime {text} NOT NULL, created {text} NOT NULL, stored DOUBLE PRECISION NOT NULL, used DOUBLE PRECISION NOT NULL,
    capability {text} NOT NULL, app {text} NOT NULL, tenant TEXT, "user" TEXT, session TEXT, trace TEXT,
    PRIMARY KEY (store, id)
)"""
    indexes = {
        "created": "created, id",
        "capability": "capability, created, id",
        "app": "app, created, id",
        "mime": "mime, created, id",
        "size": "size",
        "stored": "stored",
        "session": "session, created, id",
    }
    return (
        "CREATE TABLE IF NOT EXISTS abp_artifact_stores_1 (url TEXT PRIMARY KEY, number INTEGER UNIQUE NOT NULL, "
        "built DOUBLE PRECISION, changes BIGINT NOT NULL)",
        artifacts,
        *(
            f"CREATE INDEX IF NOT EXISTS abp_artifacts_1_{name} ON abp_artifacts_1 (store, {columns})"
            for name, columns in indexes.items()
        ),
        f"CREATE TABLE IF NOT EXISTS abp_artifact_changes_2 (store INTEGER NOT NULL, id {text} NOT NULL, "
        "number BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL, PRIMARY KEY (store, id))",
    )


def row_of(indexed: Indexed) -> tuple[Value, ...]:
    """Return the row of an artifact."""
    one = indexed.metadata
    text = msgspec.json.format(one.encode(), indent=-1).decode()
    found = (one.source.get(name) for name in ("capability", "app"))
    names = [key_of(value) if isinstance(value, str) else "" for value in found]
    owner = one.scope.tenant, one.scope.user, one.scope.session, one.scope.trace
    head = (one.id, indexed.e_tag, text, one.size_bytes, key_of(one.mime_type), key_of(one.age_key[0]))
    return (*head, one.stored, one.stored, *names, *owner)


def key_of(text: str) -> str:
    """Return a text as it is looked up."""
    return (without_nul(text) or "")[:_LONGEST]


def metadata_of(text: Value, key: Value) -> Metadata | None:
    """Return the metadata in a row; ``None``, with a warning, for what we did not write."""
    try:
        if not ID.fullmatch(str(key)):
            raise ValueError("not an id")
        return Metadata.decode(str(text).encode(), str(key))
    except (ValueError, OtherCase) as error:
        logger.warning("a row of the index is skipped (%s); `abp artifacts reindex` repairs it", error)
        return None


def scope_condition(scope: Scope) -> tuple[str, list[Value]]:
    """Return the SQL condition for what ``scope`` covers, to follow another one, and its values."""
    conditions, values = where(scope)
    return conditions.replace("WHERE", " AND", 1), [*values]


def condition(scope: Scope, query: Query) -> tuple[str, list[Value]]:
    """Return the SQL condition for what ``query`` wants of ``scope``, to follow another one, and its values."""
    text, values = scope_condition(scope)
    since, until = query.times
    mime = query.mime_type
    kind = mime is not None and mime[-1:] == "/"
    wanted: tuple[tuple[str, Value], ...] = (
        ("capability = ?", None if query.capability is None else key_of(query.capability)),
        ("app = ?", None if query.app is None else key_of(query.app)),
        ("mime >= ?" if kind else "mime = ?", None if mime is None else key_of(mime)),
        ("mime < ?", f"{key_of(mime or '')}{_END}" if kind else None),
        ("created >= ?", since),
        ("created < ?", until),
        ("size >= ?", query.min_bytes),
        ("size <= ?", query.max_bytes),
    )
    for one, value in wanted:
        if value is not None:
            text += f" AND {one}"
            values.append(value)
    if after := query.after:
        text += " AND (created, id) < (?, ?)"
        values += [*map(key_of, after)]
    return text, values
