"""The index of an object store: a searchable copy of its metadata in PostgreSQL or SQLite."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar, cast
from urllib.parse import unquote

import msgspec

from ..._internal.database import (
    Connection,
    Cursor,
    PostgresConnection,
    SqliteConnection,
    Transactions,
    Value,
    without_nul,
    without_password,
)
from ...errors import StoreUnavailable, UsageError
from ...protocol._plain_text import redact_url
from .._ref import ID, Metadata, OtherCase, Query, Scope, age_key, scope_condition
from .._retention import Entry, Retention

logger = logging.getLogger("transports.artifacts")

#: The columns of a row, after the number of its store. A new layout gets new table names.
COLUMNS = (
    "id", "e_tag", "metadata", "size", "mime", "created", "stored", "used", "capability", "app",
    "tenant", '"user"', "session", "trace",
)  # fmt: skip
T = TypeVar("T")
#: Seconds in which the index is not used after it could not be reached.
_PAUSE = 10.0
_INSERT = (
    f"INSERT INTO abp_artifacts_1 (store, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * (1 + len(COLUMNS)))}) "
    "ON CONFLICT (store, id) DO "
)
_SET = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])
_UPDATE = (
    f"UPDATE abp_artifacts_1 SET {', '.join(f'{name} = ?' for name in COLUMNS[1:])} "
    "WHERE store = ? AND id = ? AND e_tag = ?"
)
_ENTRY = 'SELECT id, size, stored, used, tenant, "user", session, trace FROM abp_artifacts_1 WHERE store = ?'


class Indexed(NamedTuple):
    """The metadata of an artifact, and the ETag of its object ("" if the server has none)."""

    metadata: Metadata
    e_tag: str


def table_statements(text: str) -> tuple[str, ...]:
    """Return the statements that create the tables. ``text`` is the database's type for text that is compared by its
    bytes. The last two statements create ``abp_artifacts_1_session`` and ``abp_artifact_changes_2``."""
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
    """Return the values of an artifact's row, in the order of :data:`COLUMNS`."""
    metadata = indexed.metadata
    scope = metadata.scope
    created, _ = age_key(metadata)
    capability = metadata.source.get("capability")
    if not isinstance(capability, str):
        capability = ""
    app = metadata.source.get("app")
    if not isinstance(app, str):
        app = ""
    # A negative indent makes one line without spaces.
    document = msgspec.json.format(metadata.encode(), indent=-1).decode()
    return (
        metadata.id,
        indexed.e_tag,
        document,
        metadata.size_bytes,
        indexed_text(metadata.mime_type),
        indexed_text(created),
        metadata.stored,
        # The time of the last use is at first that of the storing.
        metadata.stored,
        indexed_text(capability),
        indexed_text(app),
        scope.tenant,
        scope.user,
        scope.session,
        scope.trace,
    )


def indexed_text(text: str) -> str:
    """Return text without NUL, short enough for an entry of a PostgreSQL index, which has 2.7 KB at most."""
    max_chars = 200
    return (without_nul(text) or "")[:max_chars]


def metadata_of(text: Value, key: Value) -> Metadata | None:
    """Return the metadata in a row; ``None``, with a warning, if this library did not write it."""
    try:
        if not ID.fullmatch(str(key)):
            raise ValueError("not an id")
        return Metadata.decode(str(text).encode(), str(key))
    except (ValueError, OtherCase) as error:
        logger.warning("a row of the index is skipped (%s); `abp artifacts reindex` repairs it", error)
        return None


def query_condition(scope: Scope, query: Query) -> tuple[str, list[Value]]:
    """Return an SQL condition for artifacts of ``scope`` that match ``query``, and its values. It follows another
    condition."""
    text, scope_values = scope_condition(scope)
    values: list[Value] = [*scope_values]
    since, until = query.times
    filters: list[tuple[str, Value]] = [
        ("created >= ?", since),
        ("created < ?", until),
        ("size >= ?", query.min_bytes),
        ("size <= ?", query.max_bytes),
    ]
    if query.capability is not None:
        filters.append(("capability = ?", indexed_text(query.capability)))
    if query.app is not None:
        filters.append(("app = ?", indexed_text(query.app)))
    if query.mime_type is not None:
        mime_type = indexed_text(query.mime_type)
        if query.mime_type.endswith("/"):
            largest_character = "\U0010ffff"
            filters += [("mime >= ?", mime_type), ("mime < ?", mime_type + largest_character)]
        else:
            filters.append(("mime = ?", mime_type))

    for comparison, value in filters:
        if value is not None:
            text += f" AND {comparison}"
            values.append(value)
    if query.after is not None:
        text += " AND (created, id) < (?, ?)"
        values += [indexed_text(value) for value in query.after]
    return text, values


class NotBuilt(Exception):
    """Raised if the index was not compared with all metadata yet: it cannot answer a query over all artifacts."""


class StoreIndex:
    """The rows of one store. Many stores, and any number of machines, may use one database. Every method raises
    :class:`~transports.errors.StoreUnavailable` if the database cannot be used; for ten seconds after that it raises
    the same error without trying the database."""

    def __init__(self, database: Connection, url: str) -> None:
        """``url`` is the URL of the store without its index: the key of the store in the database."""
        self._url = url
        self._database = database
        self._announcement = (
            f"INSERT INTO abp_artifact_changes_2 (store, id, number, since) VALUES (?, ?, ?, {database.now_sql}) "
            "ON CONFLICT (store, id) DO UPDATE SET number = excluded.number, since = excluded.since"
        )
        self._transactions: Transactions | None = None
        #: True once the tables are known to exist.
        self._prepared = False
        self._turn = asyncio.Lock()
        #: Time until which the database is not tried (monotonic), and the message of its failure.
        self._paused_until = 0.0
        self._failure = ""

    async def aclose(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            await transactions.aclose()

    # --- changes ------------------------------------------------------------------------------------------------------

    async def announce(self, key: str) -> int:
        """Announce a change, which :meth:`put` or :meth:`remove` then settles, and return its unique number. A time
        would not be unique: two may fall into one millisecond, or the clock may be set back."""
        number = _new_number()
        await self._run(lambda cursor, store: cursor.execute(self._announcement, (store, key, number)))
        return number

    async def put(self, indexed: Indexed, announced: int) -> None:
        """Add or replace a row, and settle the change with the number ``announced`` (0: none). If another writer
        announced a change after that, the order of the two writes is unknown: the artifact stays announced."""

        def work(cursor: Cursor, store: int) -> None:
            cursor.execute(f"{_INSERT} UPDATE SET {_SET}", (store, *row_of(indexed)))
            self._settle(cursor, store, indexed.metadata.id, announced)

        await self._run(work)

    async def remove(self, key: str, announced: int) -> None:
        """Remove a row, and settle the change as :meth:`put` does. If there was no row, the artifact stays announced: a
        process that builds the index may have read it before."""

        def work(cursor: Cursor, store: int) -> None:
            cursor.execute("DELETE FROM abp_artifacts_1 WHERE store = ? AND id = ?", (store, key))
            self._settle(cursor, store, key, announced if cursor.rowcount else 0)

        await self._run(work)

    async def apply_differences(self, records: Sequence[Indexed], gone: Iterable[str], e_tags: dict[str, str]) -> None:
        """Correct rows, except those whose ETag differs from ``e_tags`` by now: a writer has changed them since."""
        new = [record for record in records if record.metadata.id not in e_tags]
        changed = [record for record in records if record.metadata.id in e_tags]
        dropped = [key for key in gone if key in e_tags]
        if not (new or changed or dropped):
            return

        def work(cursor: Cursor, store: int) -> None:
            insertions = [(store, *row_of(record)) for record in new]
            updates = [
                (*row_of(record)[1:], store, record.metadata.id, e_tags[record.metadata.id]) for record in changed
            ]
            deletions = [(store, key, e_tags[key]) for key in dropped]
            cursor.executemany(f"{_INSERT} NOTHING", insertions)
            if updates:
                cursor.executemany(_UPDATE, updates)
            if deletions:
                cursor.executemany("DELETE FROM abp_artifacts_1 WHERE store = ? AND id = ? AND e_tag = ?", deletions)
            _count_change(cursor, store)

        await self._run(work)

    async def touch(self, key: str) -> None:
        sql = "UPDATE abp_artifacts_1 SET used = ? WHERE store = ? AND id = ? AND used < ?"
        used_at = time.time()
        await self._run(lambda cursor, store: cursor.execute(sql, (used_at, store, key, used_at)))

    # --- completeness of the index ------------------------------------------------------------------------------------

    async def unsettled_ids(self, seconds: float) -> list[str]:
        """Return the ids with a change that was announced ``seconds`` ago or earlier, but not settled: the writer may
        have died."""
        sql = f"SELECT id FROM abp_artifact_changes_2 WHERE store = ? AND since <= {self._database.now_sql} - ?"
        return [str(key) for (key,) in await self._select(sql, seconds)]

    async def drop_old_announcements(self, seconds: float) -> None:
        sql = f"DELETE FROM abp_artifact_changes_2 WHERE store = ? AND since <= {self._database.now_sql} - ?"
        await self._run(lambda cursor, store: cursor.execute(sql, (store, seconds)))

    async def state(self) -> tuple[int, bool]:
        """Return the number of the index, which is new for a recreated one, and whether it was compared with all
        metadata once."""
        ((number, built),) = await self._select("SELECT number, built FROM abp_artifact_stores_1 WHERE number = ?")
        return cast(int, number), built is not None

    async def mark_built(self, number: int) -> None:
        sql = f"UPDATE abp_artifact_stores_1 SET built = {self._database.now_sql} WHERE number = ?"
        await self._run(lambda cursor, _: cursor.execute(sql, (number,)))

    async def e_tags(self, keys: Collection[str]) -> dict[str, str]:
        """Return the ETags in the rows of ``keys``, at most some thousand ids; ids without a row are left out."""
        if not keys:
            return {}
        marks = ", ".join("?" * len(keys))
        sql = f"SELECT id, e_tag FROM abp_artifacts_1 WHERE store = ? AND id IN ({marks})"
        return {str(key): str(e_tag) for key, e_tag in await self._select(sql, *keys)}

    async def keys(self) -> AsyncIterator[dict[str, bool]]:
        """Yield the ids of all rows, some thousand at once, and whether their metadata can be read."""
        sql = "SELECT id, metadata FROM abp_artifacts_1 WHERE store = ? AND id > ? ORDER BY id LIMIT 5000"

        def keys_after(last_key: str, cursor: Cursor, store: int) -> dict[str, bool]:
            cursor.execute(sql, (store, last_key))
            return {str(key): metadata_of(document, key) is not None for key, document in cursor.fetchall()}

        keys = await self._run(partial(keys_after, ""), write=False)
        while keys:
            yield keys
            *_, last_key = keys
            keys = await self._run(partial(keys_after, last_key), write=False)

    async def change_token(self) -> int:
        sql = "SELECT changes FROM abp_artifact_stores_1 WHERE number = ?"
        ((changes,),) = await self._select(sql, built=True)
        return cast(int, changes)

    # --- queries ------------------------------------------------------------------------------------------------------

    async def find_page(self, scope: Scope, query: Query) -> tuple[list[Metadata], str | None]:
        """Return the readable artifacts of one page, the newest first, and the cursor of the next page."""
        text, values = query_condition(scope, query)
        sql = f"SELECT metadata, id, created FROM abp_artifacts_1 WHERE store = ?{text} ORDER BY created DESC, id DESC"
        if query.limit is not None:
            sql += f" LIMIT {query.limit + 1}"

        def work(cursor: Cursor, store: int) -> tuple[list[Metadata], str | None]:
            cursor.execute(sql, (store, *values))
            rows = cursor.fetchall()
            page = rows[: query.limit]
            next_page = None
            if len(rows) > len(page):
                _, last_key, last_created = page[-1]
                next_page = f"{last_created}~{last_key}"
            readable = [metadata_of(document, key) for document, key, _ in page]
            return [metadata for metadata in readable if metadata], next_page

        return await self._run(work, write=False, built=True)

    async def entries(self, scope: Scope) -> list[Entry]:
        text, values = scope_condition(scope)
        return [_entry_of_row(row) for row in await self._select(f"{_ENTRY}{text}", *values, built=True)]

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        text, values = scope_condition(scope)

        def work(cursor: Cursor, store: int) -> list[Entry]:
            entries: dict[str, Entry] = {}
            if policy.ttl_seconds is not None:
                oldest = time.time() - policy.ttl_seconds
                entries |= _select_entries(cursor, f"{text} AND stored < ?", (store, *values, oldest))

            for group in _groups_over_limit(cursor, store, policy, text, values):
                group_text, group_values = scope_condition(group)
                entries |= _select_entries(cursor, group_text, (store, *group_values))
            return list(entries.values())

        return await self._run(work, write=False, built=True)

    def _settle(self, cursor: Cursor, store: int, key: str, announced: int) -> None:
        """Remove an announced change. If another writer has announced a change since, the artifact stays announced."""
        delete = "DELETE FROM abp_artifact_changes_2 WHERE store = ? AND id = ? AND number = ?"
        cursor.execute(delete, (store, key, announced))
        if announced and not cursor.rowcount:
            cursor.execute(self._announcement, (store, key, _new_number()))
        _count_change(cursor, store)

    async def _select(self, sql: str, *values: Value, built: bool = False) -> Sequence[tuple[Value, ...]]:
        def work(cursor: Cursor, store: int) -> Sequence[tuple[Value, ...]]:
            cursor.execute(sql, (store, *values))
            return cursor.fetchall()

        return await self._run(work, write=False, built=built)

    # --- the tables ---------------------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[Cursor, int], T], *, write: bool = True, built: bool = False) -> T:
        """Run ``work`` with the number of this store. With ``built``, raise :class:`NotBuilt` if the index was not
        compared with all metadata yet."""
        # Run one at a time, so that callers which wait do not try a database that is down, too.
        async with self._turn:
            if time.monotonic() < self._paused_until:
                raise StoreUnavailable(self._failure, retryable=True)

            try:
                return await self._run_prepared(partial(self._run_with_store_number, work, built), write)
            except StoreUnavailable as error:
                self._prepared = False
                self._paused_until = time.monotonic() + _PAUSE
                self._failure = f"{error.message}, or leave out ?index= (every list then reads every object)"
                raise StoreUnavailable(self._failure, retryable=error.retryable) from error.__cause__

    async def _run_prepared(self, work: Callable[[Cursor], T], write: bool) -> T:
        """Run ``work`` in a transaction. Missing tables are created first, also if they were deleted meanwhile."""
        if self._transactions is None:
            patience = 3.0  # seconds of attempts to reopen a connection
            self._transactions = Transactions(self._database, patience)
        if not self._prepared:
            await self._transactions.run(self._prepare)
            self._prepared = True

        try:
            return await self._transactions.run(work, write=write)
        except StoreUnavailable as error:
            if error.retryable:
                raise
            tables_were_missing = await self._transactions.run(self._prepare)
            if not tables_were_missing:
                raise
        return await self._transactions.run(work, write=write)

    def _prepare(self, cursor: Cursor) -> bool:
        """Create the tables and the number of this store if they are missing. Return whether any was."""
        self._database.lock(cursor, "artifact index")
        # These are the last relations that :func:`table_statements` creates: if both exist, all do.
        exist = all(self._has_relation(cursor, name) for name in ("abp_artifacts_1_session", "abp_artifact_changes_2"))
        if not exist:
            for statement in table_statements(self._database.sorted_text_type):
                cursor.execute(statement)
            # If only some tables were lost, the numbers of stores may still exist.
            cursor.execute("DELETE FROM abp_artifact_stores_1")

        cursor.execute("SELECT 1 FROM abp_artifact_stores_1 WHERE url = ?", (self._url,))
        if cursor.fetchall():
            return not exist

        # A rebuilt index must not repeat a number or a change token of the old one.
        number = secrets.randbelow(1 << 31)
        first_token = time.time_ns() // 1000
        cursor.execute(
            "INSERT INTO abp_artifact_stores_1 (url, number, changes) VALUES (?, ?, ?)",
            (self._url, number, first_token),
        )
        return True

    def _has_relation(self, cursor: Cursor, name: str) -> bool:
        cursor.execute(self._database.find_relation, (name,))
        return bool(cursor.fetchall())

    def _run_with_store_number(self, work: Callable[[Cursor, int], T], built: bool, cursor: Cursor) -> T:
        """Run ``work`` with the number of this store, which is read each time: recreated tables have other numbers."""
        cursor.execute("SELECT number, built FROM abp_artifact_stores_1 WHERE url = ?", (self._url,))
        rows = cursor.fetchall()
        if not rows:
            raise self._database.error(f"{self._database.name} no longer has a row for this store")
        number, built_at = rows[0]
        if built and built_at is None:
            raise NotBuilt
        return work(cursor, cast(int, number))


def _new_number() -> int:
    return 1 + secrets.randbits(62)


def _count_change(cursor: Cursor, store: int) -> None:
    """Increment the change counter. This is the last step of a transaction: the next writer waits for the row."""
    cursor.execute("UPDATE abp_artifact_stores_1 SET changes = changes + 1 WHERE number = ?", (store,))


def _select_entries(cursor: Cursor, condition: str, values: Sequence[Value]) -> dict[str, Entry]:
    cursor.execute(f"{_ENTRY}{condition}", values)
    entries = map(_entry_of_row, cursor.fetchall())
    return {entry.id: entry for entry in entries}


def _entry_of_row(row: tuple[Value, ...]) -> Entry:
    key, size, stored, used, *owner = row
    scope = Scope(*cast("list[str | None]", owner))
    return Entry(str(key), cast(int, size), cast(float, stored), cast(float, used), scope)


def _groups_over_limit(
    cursor: Cursor, store: int, policy: Retention, text: str, values: Sequence[Value]
) -> list[Scope]:
    """Return the sessions and traces over a limit. ``text`` is an SQL condition on the rows, with its ``values``."""
    if policy.cleanup_strategy == "none":
        return []

    no_limit = 1 << 62  # more than any sum of sizes
    session_columns = 'tenant, "user", session'
    groups = []
    for level, columns in (("trace", f"{session_columns}, trace"), ("session", session_columns)):
        max_bytes, max_count = policy.limits(level)
        if max_bytes is None and max_count is None:
            continue

        if max_bytes is None:
            max_bytes = no_limit
        if max_count is None:
            max_count = no_limit
        cursor.execute(
            f"SELECT {columns} FROM abp_artifacts_1 WHERE store = ?{text} AND {level} IS NOT NULL "
            f"GROUP BY {columns} HAVING sum(size) > ? OR count(*) > ?",
            (store, *values, max_bytes, max_count),
        )
        groups += [Scope(*cast("tuple[str | None, ...]", row)) for row in cursor.fetchall()]
    return groups


def split_index(url: str) -> tuple[str, str | None]:
    """Split a URL into that of the store and that of the index: all after ``?index=``, even its query. The URL of the
    index may be percent-encoded as a whole."""
    store, mark, index = url.partition("?index=")
    if not mark:
        return store, None
    return store, index if "://" in index else unquote(index)


def open_index(address: str) -> tuple[Connection, str]:
    """Return the database, not connected yet, and its URL without a password."""
    name = "the index"
    scheme, _, rest = address.partition("://")
    if scheme in ("postgresql", "postgres"):
        return PostgresConnection(address, name, StoreUnavailable), without_password(address)
    path = unquote(rest)
    is_absolute_file = path.startswith("/") and not path.endswith("/") and "\0" not in path
    if scheme == "sqlite" and is_absolute_file and "?" not in rest:
        advice = "name another file, or delete this one: it is rebuilt"
        return SqliteConnection(Path(path), name, StoreUnavailable, advice), address
    raise UsageError(
        f"{redact_url(address)!r} is not an index; use postgresql://user@host/database, or "
        "sqlite:///absolute/file.sqlite (# as %23, ? as %3F)"
    )
