"""The index of an object store: a searchable copy of its metadata in PostgreSQL or SQLite, and what it may lack."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import cast

from ...database import Connection, Cursor, Value
from ..clock import now, stamp
from ..metadata import Metadata
from ..query import Query
from ..ref import Scope
from ..retention import Entry, Retention
from .index_rows import COLUMNS, Indexed, condition, metadata_of, row_of, scope_condition
from .index_tables import IndexTables

__all__ = ["StoreIndex"]

#: Rows that one statement reads.
_PAGE = 5000
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


class StoreIndex:
    """The rows of one store. Many stores, and any number of machines, may use one database.

    Every method raises :class:`~transports.errors.StoreUnavailable` if the database cannot be used; for some seconds
    after that it is not asked again.
    """

    def __init__(self, database: Connection, url: str) -> None:
        """``url`` is the store's, without the index: the name by which the database knows it."""
        self._database = database
        self._announcement = (
            f"INSERT INTO abp_artifact_changes_2 (store, id, number, since) VALUES (?, ?, ?, {database.now}) "
            "ON CONFLICT (store, id) DO UPDATE SET number = excluded.number, since = excluded.since"
        )
        self._tables = IndexTables(database, url)
        self._run = self._tables.run

    async def aclose(self) -> None:
        """Close the connection. The next method opens another one."""
        await self._tables.aclose()

    # --- changes ------------------------------------------------------------------------------------------------------

    async def announce(self, key: str) -> int:
        """Note that the metadata of an artifact is about to change, until :meth:`put` or :meth:`remove` says how.
        Returns the number of the announcement. No two are alike, as times may be: of one millisecond, or of a clock
        that was set back."""
        number = _new_number()
        await self._run(lambda cursor, store: cursor.execute(self._announcement, (store, key, number)))
        return number

    async def put(self, indexed: Indexed, announced: int) -> None:
        """Give an artifact this row, whatever it had. If somebody else announced a change after the one that has the
        number ``announced`` (0: none), nobody knows who was last: it stays announced."""

        def work(cursor: Cursor, store: int) -> None:
            cursor.execute(f"{_INSERT} UPDATE SET {_SET}", (store, *row_of(indexed)))
            self._settle(cursor, store, indexed.metadata.id, announced)

        await self._run(work)

    async def remove(self, key: str, announced: int) -> None:
        """Remove the row of an artifact that was deleted. The same holds for ``announced``. Without a row it stays
        announced, too: who builds the index may have read the artifact before."""

        def work(cursor: Cursor, store: int) -> None:
            cursor.execute("DELETE FROM abp_artifacts_1 WHERE store = ? AND id = ?", (store, key))
            self._settle(cursor, store, key, announced if cursor.rowcount else 0)

        await self._run(work)

    async def correct(self, found: Sequence[Indexed], gone: Iterable[str], seen: dict[str, str]) -> None:
        """Give artifacts the rows of what was ``found``, and remove those of what is ``gone``, unless a row has changed
        since its ETag was ``seen``: then a writer knew better."""
        new = [one for one in found if one.metadata.id not in seen]
        changed = [(one, seen[one.metadata.id]) for one in found if one.metadata.id in seen]
        dropped = [(key, seen[key]) for key in gone if key in seen]

        def work(cursor: Cursor, store: int) -> None:
            cursor.executemany(f"{_INSERT} NOTHING", [(store, *row_of(one)) for one in new])
            if changed:
                cursor.executemany(
                    _UPDATE, [(*row_of(one)[1:], store, one.metadata.id, e_tag) for one, e_tag in changed]
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
        """Note that an artifact was used now."""
        sql = "UPDATE abp_artifacts_1 SET used = ? WHERE store = ? AND id = ? AND used < ?"
        at = stamp()
        await self._run(lambda cursor, store: cursor.execute(sql, (at, store, key, at)))

    # --- what the index may lack --------------------------------------------------------------------------------------

    async def announced(self, seconds: float) -> list[str]:
        """Return the ids whose change was announced so long ago and not told since: their writers may have died."""
        sql = f"SELECT id FROM abp_artifact_changes_2 WHERE store = ? AND since <= {self._database.now} - ?"
        return [str(key) for (key,) in await self._select(sql, seconds)]

    async def give_up(self, seconds: float) -> None:
        """Forget the changes that were announced so long ago."""
        sql = f"DELETE FROM abp_artifact_changes_2 WHERE store = ? AND since <= {self._database.now} - ?"
        await self._run(lambda cursor, store: cursor.execute(sql, (store, seconds)))

    async def state(self) -> tuple[int, bool]:
        """Return the number of this index, which one that is made anew does not have, and whether all metadata was
        compared with it once."""
        ((number, built),) = await self._select("SELECT number, built FROM abp_artifact_stores_1 WHERE number = ?")
        return cast(int, number), built is not None

    async def mark_built(self, number: int) -> None:
        """Note that all metadata was compared with the index of this number."""
        sql = f"UPDATE abp_artifact_stores_1 SET built = {self._database.now} WHERE number = ?"
        await self._run(lambda cursor, _: cursor.execute(sql, (number,)))

    async def e_tags(self, keys: Collection[str]) -> dict[str, str]:
        """Return the ETags in the rows of those of ``keys`` that have one. At most some thousand at once."""
        marks = ", ".join("?" * len(keys))
        sql = f"SELECT id, e_tag FROM abp_artifacts_1 WHERE store = ? AND id IN ({marks})"
        return {str(key): str(e_tag) for key, e_tag in await self._select(sql, *keys)} if keys else {}

    async def keys(self) -> AsyncIterator[dict[str, bool]]:
        """Yield the ids of all rows, some thousand at once, and whether their metadata can be read."""
        after = ""
        sql = f"SELECT id, metadata FROM abp_artifacts_1 WHERE store = ? AND id > ? ORDER BY id LIMIT {_PAGE}"

        def work(cursor: Cursor, store: int) -> dict[str, bool]:
            cursor.execute(sql, (store, after))
            return {str(key): metadata_of(text, key) is not None for key, text in cursor.fetchall()}

        while found := await self._run(work, write=False):
            yield found
            after = [*found][-1]

    async def change_token(self) -> int:
        """Return a number that another one follows with every change."""
        sql = "SELECT changes FROM abp_artifact_stores_1 WHERE number = ?"
        ((changes,),) = await self._select(sql, built=True)
        return cast(int, changes)

    # --- questions ----------------------------------------------------------------------------------------------------

    async def find(self, scope: Scope, query: Query) -> tuple[list[Metadata], str | None]:
        """Return the artifacts of one page, the newest first, and the cursor of the next one."""
        text, values = condition(scope, query)
        sql = f"SELECT metadata, id, created FROM abp_artifacts_1 WHERE store = ?{text} ORDER BY created DESC, id DESC"
        if query.limit is not None:
            sql += f" LIMIT {query.limit + 1}"

        def work(cursor: Cursor, store: int) -> tuple[list[Metadata], str | None]:
            cursor.execute(sql, (store, *values))
            rows = cursor.fetchall()
            page = rows[: query.limit]
            more = f"{page[-1][2]}~{page[-1][1]}" if len(rows) > len(page) else None
            return [one for text, key, _ in page if (one := metadata_of(text, key))], more

        return await self._run(work, write=False, built=True)

    async def entries(self, scope: Scope) -> list[Entry]:
        """Return what ``scope`` covers, as a retention sees it."""
        text, values = scope_condition(scope)
        return [_entry(row) for row in await self._select(f"{_ENTRY}{text}", *values, built=True)]

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        """Return all that ``policy`` may remove from what ``scope`` covers: what may be past its time, and each session
        and trace that is over a limit, as a whole."""
        text, values = scope_condition(scope)

        def work(cursor: Cursor, store: int) -> list[Entry]:
            found: dict[str, Entry] = {}
            if policy.ttl_seconds is not None:
                at = now()
                # what came from a future, by a clock that was set back, is to be noticed early
                cursor.execute(
                    f"{_ENTRY}{text} AND (stored < ? OR stored > ?)", (store, *values, at - policy.ttl_seconds, at)
                )
                found = {str(row[0]): _entry(row) for row in cursor.fetchall()}
            for group in _groups_over(cursor, store, policy, text, values):
                inner, owner = scope_condition(group)
                cursor.execute(f"{_ENTRY}{inner}", (store, *owner))
                found |= {str(row[0]): _entry(row) for row in cursor.fetchall()}
            return [*found.values()]

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


def _entry(row: tuple[Value, ...]) -> Entry:
    key, size, stored, used, *owner = row
    scope = Scope(*cast("list[str | None]", owner))
    return Entry(str(key), cast(int, size), cast(float, stored), cast(float, used), scope)


def _groups_over(cursor: Cursor, store: int, policy: Retention, text: str, values: Sequence[Value]) -> list[Scope]:
    """Return the sessions and traces that are over a limit of ``policy``."""
    found = []
    for names in ('tenant, "user", session, trace', 'tenant, "user", session'):
        max_bytes, max_count = policy.limits(names.rpartition(" ")[2])
        if policy.cleanup_strategy == "none" or (max_bytes is None and max_count is None):
            continue
        cursor.execute(
            f"SELECT {names} FROM abp_artifacts_1 WHERE store = ?{text} AND {names.rpartition(' ')[2]} IS NOT NULL "
            f"GROUP BY {names} HAVING sum(size) > ? OR count(*) > ?",
            (store, *values, *(1 << 62 if limit is None else limit for limit in (max_bytes, max_count))),
        )
        found += [Scope(*cast("tuple[str | None, ...]", row)) for row in cursor.fetchall()]
    return found
