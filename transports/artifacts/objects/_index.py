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

from ..._internal.database._postgres import PostgresConnection, without_password
from ..._internal.database._sqlite import SqliteConnection
from ..._internal.database._transactions import Connection, Cursor, Transactions, Value, without_nul
from ...errors import StoreUnavailable, UsageError
from ...protocol._plain_text import redact_url
from .._query import Query, scope_condition
from .._ref import ID, Metadata, OtherCase, Scope, now, stamp
from .._retention import Entry, Retention

logger = logging.getLogger("transports.artifacts")

#: The columns of a row, after the number of its store. A new layout gets new table names.
COLUMNS = (
    "id", "e_tag", "metadata", "size", "mime", "created", "stored", "used", "capability", "app",
    "tenant", '"user"', "session", "trace",
)  # fmt: skip
T = TypeVar("T")
_PAUSE = 10.0  # seconds in which the index is not used after it could not be reached
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
    metadata: Metadata
    e_tag: str


def tables(text: str) -> tuple[str, ...]:
    """Return the statements that create the tables and indexes.

    ``text`` is the database's type for text compared by its bytes. The last two statements create
    ``abp_artifacts_1_session`` and ``abp_artifact_changes_2``.
    """
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
    """Return the values of an artifact's row, in the order of the columns of ``abp_artifacts_1``."""
    metadata = indexed.metadata
    capability = metadata.source.get("capability")
    app = metadata.source.get("app")
    scope = metadata.scope
    # On one line, without spaces.
    document = msgspec.json.format(metadata.encode(), indent=-1).decode()
    return (
        metadata.id,
        indexed.e_tag,
        document,
        metadata.size_bytes,
        key_of(metadata.mime_type),
        key_of(metadata.age_key[0]),
        metadata.stored,
        # The time of its last use: when it was stored.
        metadata.stored,
        key_of(capability) if isinstance(capability, str) else "",
        key_of(app) if isinstance(app, str) else "",
        scope.tenant,
        scope.user,
        scope.session,
        scope.trace,
    )


def key_of(text: str) -> str:
    """Return a text as it is indexed: without NUL, at most 200 characters, since an entry of a PostgreSQL index has
    2.7 KB at most."""
    return (without_nul(text) or "")[:200]


def metadata_of(text: Value, key: Value) -> Metadata | None:
    """Return the metadata in a row; ``None``, with a warning, if this library did not write it."""
    try:
        if not ID.fullmatch(str(key)):
            raise ValueError("not an id")
        return Metadata.decode(str(text).encode(), str(key))
    except (ValueError, OtherCase) as error:
        logger.warning("a row of the index is skipped (%s); `abp artifacts reindex` repairs it", error)
        return None


def condition(scope: Scope, query: Query) -> tuple[str, list[Value]]:
    """Return the SQL condition for artifacts of ``scope`` that match ``query``, to follow another, and its values."""
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
        filters.append(("capability = ?", key_of(query.capability)))
    if query.app is not None:
        filters.append(("app = ?", key_of(query.app)))
    if query.mime_type is not None:
        mime = key_of(query.mime_type)
        if query.mime_type.endswith("/"):
            largest = "\U0010ffff"  # code point
            filters += [("mime >= ?", mime), ("mime < ?", mime + largest)]
        else:
            filters.append(("mime = ?", mime))
    for comparison, value in filters:
        if value is not None:
            text += f" AND {comparison}"
            values.append(value)
    if query.after is not None:
        text += " AND (created, id) < (?, ?)"
        values += [key_of(value) for value in query.after]
    return text, values


class NotBuilt(Exception):
    """Raised if the index was not compared with all metadata yet: it cannot answer a query over all artifacts."""


class IndexTables:
    """The tables in one database, for the store at ``url``."""

    def __init__(self, database: Connection, url: str) -> None:
        self._url = url
        self._database = database
        self._transactions: Transactions | None = None
        self._prepared = False
        self._turn = asyncio.Lock()
        self._failed: tuple[float, str] | None = None

    async def aclose(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            await transactions.aclose()

    async def run(self, work: Callable[[Cursor, int], T], *, write: bool = True, built: bool = False) -> T:
        """Run ``work`` with the number of this store. Missing tables are created.

        With ``built``, raises :class:`NotBuilt` if the index was not compared with all metadata yet.
        """
        async with self._turn:  # so that callers that wait do not try a database that is down, too
            if self._failed and time.monotonic() < self._failed[0]:
                raise StoreUnavailable(self._failed[1], retryable=True)
            if self._transactions is None:
                self._transactions = Transactions(self._database, 3.0)  # seconds of attempts to reopen a connection
            numbered = partial(self._numbered, work, built)
            try:
                if not self._prepared:
                    await self._transactions.run(self._prepare)
                    self._prepared = True
                try:
                    result = await self._transactions.run(numbered, write=write)
                except StoreUnavailable as error:
                    if error.retryable or not await self._transactions.run(self._prepare):
                        raise
                    result = await self._transactions.run(numbered, write=write)  # the tables were deleted meanwhile
            except StoreUnavailable as error:
                self._prepared = False
                message = f"{error.message}, or leave out ?index= (every list then reads every object)"
                self._failed = time.monotonic() + _PAUSE, message
                raise StoreUnavailable(message, retryable=error.retryable) from error.__cause__
            self._failed = None
            return result

    def _prepare(self, cursor: Cursor) -> bool:
        """Create the tables and the number of this store if they are missing. Return whether any was."""
        self._database.lock(cursor, "artifact index")
        # the last relations that `tables` creates: if both exist, all do
        exist = all(self._exists(cursor, name) for name in ("abp_artifacts_1_session", "abp_artifact_changes_2"))
        if not exist:
            for statement in tables(self._database.text):
                cursor.execute(statement)
            cursor.execute("DELETE FROM abp_artifact_stores_1")  # the rows may have been lost alone
        cursor.execute("SELECT 1 FROM abp_artifact_stores_1 WHERE url = ?", (self._url,))
        if cursor.fetchall():
            return not exist
        cursor.execute(
            # a rebuilt index must not repeat a number or a change token of the old one
            "INSERT INTO abp_artifact_stores_1 (url, number, changes) VALUES (?, ?, ?)",
            (self._url, secrets.randbelow(1 << 31), time.time_ns() // 1000),
        )
        return True

    def _exists(self, cursor: Cursor, name: str) -> bool:
        cursor.execute(self._database.find_relation, (name,))
        return bool(cursor.fetchall())

    def _numbered(self, work: Callable[[Cursor, int], T], built: bool, cursor: Cursor) -> T:
        # read each time: recreated tables have other numbers
        cursor.execute("SELECT number, built FROM abp_artifact_stores_1 WHERE url = ?", (self._url,))
        rows = cursor.fetchall()
        if not rows:
            raise self._database.error(f"{self._database.name} no longer has a row for this store")
        number, built_at = rows[0]
        if built and built_at is None:
            raise NotBuilt
        return work(cursor, cast(int, number))


class StoreIndex:
    """The rows of one store. Many stores, and any number of machines, may use one database.

    Every method raises :class:`~transports.errors.StoreUnavailable` if the database cannot be used; for ten seconds
    after that it raises the same error without trying the database.
    """

    def __init__(self, database: Connection, url: str) -> None:
        """``url`` is the store's, without the index; it is the key of the store in the database."""
        self._database = database
        self._announcement = (
            f"INSERT INTO abp_artifact_changes_2 (store, id, number, since) VALUES (?, ?, ?, {database.now}) "
            "ON CONFLICT (store, id) DO UPDATE SET number = excluded.number, since = excluded.since"
        )
        self._tables = IndexTables(database, url)
        self._run = self._tables.run

    async def aclose(self) -> None:
        await self._tables.aclose()

    # --- changes ------------------------------------------------------------------------------------------------------

    async def announce(self, key: str) -> int:
        """Announce a change of the metadata of an artifact, which :meth:`put` or :meth:`remove` then settles.

        Returns the number of the announcement, which is unique. A time would not be: two may fall into one millisecond,
        or the clock may be set back.
        """
        number = _new_number()
        await self._run(lambda cursor, store: cursor.execute(self._announcement, (store, key, number)))
        return number

    async def put(self, indexed: Indexed, announced: int) -> None:
        """Insert or replace the row of an artifact, and settle the change with the number ``announced`` (0: none).

        If another writer announced a change after that one, the order of the two writes is unknown: the artifact stays
        announced.
        """

        def work(cursor: Cursor, store: int) -> None:
            cursor.execute(f"{_INSERT} UPDATE SET {_SET}", (store, *row_of(indexed)))
            self._settle(cursor, store, indexed.metadata.id, announced)

        await self._run(work)

    async def remove(self, key: str, announced: int) -> None:
        """Remove the row of a deleted artifact, and settle the change as :meth:`put` does.

        Without a row the artifact stays announced, too: a process that builds the index may have read it before.
        """

        def work(cursor: Cursor, store: int) -> None:
            cursor.execute("DELETE FROM abp_artifacts_1 WHERE store = ? AND id = ?", (store, key))
            self._settle(cursor, store, key, announced if cursor.rowcount else 0)

        await self._run(work)

    async def correct(self, records: Sequence[Indexed], gone: Iterable[str], e_tags: dict[str, str]) -> None:
        """Write the rows of ``records`` and remove those of ``gone`` ids. A row whose ETag is no longer the one in
        ``e_tags`` stays: a writer changed it since."""
        new = [record for record in records if record.metadata.id not in e_tags]
        changed = [(record, e_tags[record.metadata.id]) for record in records if record.metadata.id in e_tags]
        dropped = [(key, e_tags[key]) for key in gone if key in e_tags]

        def work(cursor: Cursor, store: int) -> None:
            cursor.executemany(f"{_INSERT} NOTHING", [(store, *row_of(record)) for record in new])
            if changed:
                cursor.executemany(
                    _UPDATE, [(*row_of(record)[1:], store, record.metadata.id, e_tag) for record, e_tag in changed]
                )
            if dropped:
                cursor.executemany(
                    "DELETE FROM abp_artifacts_1 WHERE store = ? AND id = ? AND e_tag = ?",
                    [(store, key, e_tag) for key, e_tag in dropped],
                )
            _count_change(cursor, store)

        if new or changed or dropped:
            await self._run(work)

    async def touch(self, key: str) -> None:
        sql = "UPDATE abp_artifacts_1 SET used = ? WHERE store = ? AND id = ? AND used < ?"
        used = stamp()
        await self._run(lambda cursor, store: cursor.execute(sql, (used, store, key, used)))

    # --- completeness of the index ------------------------------------------------------------------------------------

    async def announced(self, seconds: float) -> list[str]:
        """Return the ids with a change announced at least ``seconds`` ago and not settled: the writer may have died."""
        sql = f"SELECT id FROM abp_artifact_changes_2 WHERE store = ? AND since <= {self._database.now} - ?"
        return [str(key) for (key,) in await self._select(sql, seconds)]

    async def give_up(self, seconds: float) -> None:
        """Drop the announcements that are at least ``seconds`` old."""
        sql = f"DELETE FROM abp_artifact_changes_2 WHERE store = ? AND since <= {self._database.now} - ?"
        await self._run(lambda cursor, store: cursor.execute(sql, (store, seconds)))

    async def state(self) -> tuple[int, bool]:
        """Return the number of this index, which changes when it is recreated, and whether it was compared with all
        metadata once."""
        ((number, built),) = await self._select("SELECT number, built FROM abp_artifact_stores_1 WHERE number = ?")
        return cast(int, number), built is not None

    async def mark_built(self, number: int) -> None:
        sql = f"UPDATE abp_artifact_stores_1 SET built = {self._database.now} WHERE number = ?"
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
        after = ""
        sql = "SELECT id, metadata FROM abp_artifacts_1 WHERE store = ? AND id > ? ORDER BY id LIMIT 5000"

        def work(cursor: Cursor, store: int) -> dict[str, bool]:
            cursor.execute(sql, (store, after))
            return {str(key): metadata_of(text, key) is not None for key, text in cursor.fetchall()}

        while rows := await self._run(work, write=False):
            yield rows
            after = [*rows][-1]

    async def change_token(self) -> int:
        """Return the change counter, which every change increments."""
        sql = "SELECT changes FROM abp_artifact_stores_1 WHERE number = ?"
        ((changes,),) = await self._select(sql, built=True)
        return cast(int, changes)

    # --- queries ------------------------------------------------------------------------------------------------------

    async def find(self, scope: Scope, query: Query) -> tuple[list[Metadata], str | None]:
        text, values = condition(scope, query)
        sql = f"SELECT metadata, id, created FROM abp_artifacts_1 WHERE store = ?{text} ORDER BY created DESC, id DESC"
        if query.limit is not None:
            sql += f" LIMIT {query.limit + 1}"

        def work(cursor: Cursor, store: int) -> tuple[list[Metadata], str | None]:
            cursor.execute(sql, (store, *values))
            rows = cursor.fetchall()
            page = rows[: query.limit]
            cursor_of_next = None
            if len(rows) > len(page):
                _, key, created = page[-1]
                cursor_of_next = f"{created}~{key}"
            readable = [metadata_of(text, key) for text, key, _ in page]
            return [metadata for metadata in readable if metadata], cursor_of_next

        return await self._run(work, write=False, built=True)

    async def entries(self, scope: Scope) -> list[Entry]:
        text, values = scope_condition(scope)
        return [_entry_of_row(row) for row in await self._select(f"{_ENTRY}{text}", *values, built=True)]

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        """Return all entries of ``scope`` that ``policy`` may remove: possibly expired ones, and all entries of each
        session and trace over a limit."""
        text, values = scope_condition(scope)

        def work(cursor: Cursor, store: int) -> list[Entry]:
            entries: dict[str, Entry] = {}
            if policy.ttl_seconds is not None:
                time_now = now()
                # artifacts of the future, by a clock that was set back: included, to track their age early
                cursor.execute(
                    f"{_ENTRY}{text} AND (stored < ? OR stored > ?)",
                    (store, *values, time_now - policy.ttl_seconds, time_now),
                )
                entries = {str(row[0]): _entry_of_row(row) for row in cursor.fetchall()}
            for group in _groups_over(cursor, store, policy, text, values):
                group_text, group_values = scope_condition(group)
                cursor.execute(f"{_ENTRY}{group_text}", (store, *group_values))
                entries |= {str(row[0]): _entry_of_row(row) for row in cursor.fetchall()}
            return [*entries.values()]

        return await self._run(work, write=False, built=True)

    def _settle(self, cursor: Cursor, store: int, key: str, announced: int) -> None:
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


def _new_number() -> int:
    return 1 + secrets.randbits(62)


def _count_change(cursor: Cursor, store: int) -> None:
    # last in its transaction: the next writer waits for this row
    cursor.execute("UPDATE abp_artifact_stores_1 SET changes = changes + 1 WHERE number = ?", (store,))


def _entry_of_row(row: tuple[Value, ...]) -> Entry:
    key, size, stored, used, *owner = row
    scope = Scope(*cast("list[str | None]", owner))
    return Entry(str(key), cast(int, size), cast(float, stored), cast(float, used), scope)


def _groups_over(cursor: Cursor, store: int, policy: Retention, text: str, values: Sequence[Value]) -> list[Scope]:
    """Return the sessions and traces that are over a limit of ``policy``."""
    groups = []
    for level, names in (("trace", 'tenant, "user", session, trace'), ("session", 'tenant, "user", session')):
        max_bytes, max_count = policy.limits(level)
        if policy.cleanup_strategy == "none" or (max_bytes is None and max_count is None):
            continue
        cursor.execute(
            f"SELECT {names} FROM abp_artifacts_1 WHERE store = ?{text} AND {level} IS NOT NULL "
            f"GROUP BY {names} HAVING sum(size) > ? OR count(*) > ?",
            (store, *values, *(1 << 62 if limit is None else limit for limit in (max_bytes, max_count))),
        )
        groups += [Scope(*cast("tuple[str | None, ...]", row)) for row in cursor.fetchall()]
    return groups


def split_index(url: str) -> tuple[str, str | None]:
    """Return the URL of a store without its index, and the URL of the index.

    Everything after ``?index=`` belongs to the index, its own query too. It may be percent-encoded as a whole.
    """
    store, mark, index = url.partition("?index=")
    if not mark:
        return store, None
    return store, index if "://" in index else unquote(index)


def open_index(address: str) -> tuple[Connection, str]:
    """Return the database at ``postgresql://[user@]host[:port]/database`` or ``sqlite:///folder/file``, not connected
    yet, and its URL without a password.

    Raises :class:`~transports.errors.UsageError` for any other URL, or if the extra ``postgres`` is missing.
    """
    name = "the index"
    scheme, _, rest = address.partition("://")
    if scheme in ("postgresql", "postgres"):
        return PostgresConnection(address, name, StoreUnavailable), without_password(address)
    path = unquote(rest)
    if scheme == "sqlite" and path.startswith("/") and not path.endswith("/") and "\0" not in path and "?" not in rest:
        advice = "name another file, or delete this one: it is rebuilt"
        return SqliteConnection(Path(path), name, StoreUnavailable, advice), address
    raise UsageError(
        f"{redact_url(address)!r} is not an index; use postgresql://user@host/database, or "
        "sqlite:///absolute/file.sqlite (# as %23, ? as %3F)"
    )
