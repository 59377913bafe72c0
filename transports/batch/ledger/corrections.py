"""Corrected lines of a run: they take the places of failed jobs with the same ids."""

from __future__ import annotations

from ...database import Cursor
from ..jobs import State
from .database import Database

__all__ = ["replace_failed"]


def replace_failed(database: Database, cursor: Cursor, run: str, last: int) -> int:
    """Take the lines of failed jobs up to the position ``last`` out of the run whose ids lines behind it have, and
    return how many they were. They are kept beside the run. A failed job stays as long as a line asks for it. So do all
    of an id that names more failed jobs than the addition (``abp_input``) has new lines: which one is corrected cannot
    be told. Those that it repeats as they are do not count."""
    database.lock(cursor, run)  # what is looked at here must not be queued again meanwhile
    cursor.execute("CREATE TEMP TABLE abp_added (id TEXT PRIMARY KEY, lines BIGINT)")
    cursor.execute(_FIND_ADDED, (run, last, run, last))
    cursor.execute("CREATE TEMP TABLE abp_wrong (id TEXT, key TEXT, PRIMARY KEY (id, key))")
    cursor.execute(_FIND_WRONG, (run, State.FAILED.value, last) * 2)
    keep = "INSERT INTO abp_replaced (run, position, job, error_code, error, artifacts) "
    wrong, values = "run = ? AND position <= ? AND (id, key) IN (SELECT id, key FROM abp_wrong)", (run, last)
    cursor.execute(
        f"{keep}SELECT c.run, c.position, c.job, j.error_code, j.error, '[]' FROM (SELECT * FROM abp_copies "
        f"WHERE {wrong}) c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key",
        values,
    )
    replaced = cursor.rowcount
    cursor.execute(f"DELETE FROM abp_copies WHERE {wrong}", values)
    cursor.execute(f"{keep}SELECT run, position, job, error_code, error, artifacts FROM abp_jobs WHERE {wrong}", values)
    replaced += cursor.rowcount
    cursor.execute(
        f"DELETE FROM abp_jobs WHERE {wrong} AND key NOT IN (SELECT key FROM abp_copies WHERE run = ?)", (*values, run)
    )
    cursor.execute(
        "UPDATE abp_jobs SET (position, id, job, idempotent) = (SELECT position, id, job, idempotent FROM abp_copies c "
        f"WHERE c.run = abp_jobs.run AND c.key = abp_jobs.key ORDER BY c.position LIMIT 1) WHERE {wrong}",
        values,
    )
    cursor.execute(
        "DELETE FROM abp_copies WHERE run = ? AND EXISTS (SELECT 1 FROM abp_jobs j "
        "WHERE j.run = abp_copies.run AND j.key = abp_copies.key AND j.position = abp_copies.position)",
        (run,),
    )
    cursor.execute("DROP TABLE abp_added")
    cursor.execute("DROP TABLE abp_wrong")
    return replaced


#: The ids that new lines have, with the number of these lines.
_FIND_ADDED = """INSERT INTO abp_added (id, lines) SELECT id, count(*) FROM (
    SELECT id FROM abp_jobs WHERE run = ? AND position > ?
    UNION ALL SELECT id FROM abp_copies WHERE run = ? AND position > ?
) a WHERE id IS NOT NULL GROUP BY id"""
#: The ids and keys of failed lines that new ones correct.
_FIND_WRONG = """INSERT INTO abp_wrong (id, key)
WITH changed AS (
    SELECT id, key FROM abp_jobs WHERE run = ? AND state = ? AND +position <= ?
    UNION SELECT c.id, c.key FROM abp_copies c JOIN abp_jobs j ON j.run = c.run AND j.key = c.key
    WHERE c.run = ? AND j.state = ? AND c.position <= ?
    EXCEPT SELECT id, key FROM abp_input
)
SELECT c.id, c.key FROM (SELECT id, key, count(*) OVER (PARTITION BY id) AS jobs FROM changed) c
JOIN abp_added a ON a.id = c.id WHERE c.jobs <= a.lines"""
