"""Corrected lines of a run: they take the places of failed jobs with the same ids."""

from __future__ import annotations

from ...database import Cursor
from ..jobs import State
from .database import Database

__all__ = ["replace_failed"]


def replace_failed(database: Database, cursor: Cursor, run: str, last: int) -> int:
    """Take the lines of failed jobs up to the position ``last`` out of the run whose ids lines behind it have, and
    return how many they were. They are kept beside the run. A failed job stays as long as a line asks for it."""
    database.lock(cursor, run)  # what is looked at here must not be queued again meanwhile
    corrected = "run = ? AND position > ? AND id IS NOT NULL"
    ids = f"id IN (SELECT id FROM abp_jobs WHERE {corrected} UNION ALL SELECT id FROM abp_copies WHERE {corrected})"
    failed, chosen = "run = ? AND state = ?", (run, State.FAILED.value)
    values = (run, last, run, last, run, last)
    keep = "INSERT INTO abp_replaced (run, position, job, error_code, error, artifacts) "
    copies = (
        f"abp_copies WHERE run = ? AND position <= ? AND {ids} AND key IN (SELECT key FROM abp_jobs WHERE {failed})"
    )
    cursor.execute(
        f"{keep}SELECT c.run, c.position, c.job, j.error_code, j.error, '[]' FROM (SELECT * FROM {copies}) c "
        "JOIN abp_jobs j ON j.run = c.run AND j.key = c.key",
        (*values, *chosen),
    )
    replaced = cursor.rowcount
    cursor.execute(f"DELETE FROM {copies}", (*values, *chosen))
    jobs = f"abp_jobs WHERE {failed} AND run = ? AND position <= ? AND {ids}"
    cursor.execute(f"{keep}SELECT run, position, job, error_code, error, artifacts FROM {jobs}", (*chosen, *values))
    replaced += cursor.rowcount
    cursor.execute(
        f"DELETE FROM {jobs} AND key NOT IN (SELECT key FROM abp_copies WHERE run = ?)", (*chosen, *values, run)
    )
    first = "SELECT position, id, job FROM abp_copies c WHERE c.run = abp_jobs.run AND c.key = abp_jobs.key "
    update = jobs.replace(
        "abp_jobs WHERE", f"abp_jobs SET (position, id, job) = ({first}ORDER BY c.position LIMIT 1) WHERE", 1
    )
    cursor.execute(f"UPDATE {update}", (*chosen, *values))
    cursor.execute(
        "DELETE FROM abp_copies WHERE run = ? AND EXISTS (SELECT 1 FROM abp_jobs j "
        "WHERE j.run = abp_copies.run AND j.key = abp_copies.key AND j.position = abp_copies.position)",
        (run,),
    )
    return replaced
