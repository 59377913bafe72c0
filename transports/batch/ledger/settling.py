"""What became of jobs, written to their rows."""

from __future__ import annotations

from collections.abc import Sequence

from ...database import Cursor, Value, without_nul
from ..jobs import State
from .database import Database
from .entries import Settlement
from .schema import LEASED
from .texts import encoded

__all__ = ["settle_jobs"]


def settle_jobs(database: Database, cursor: Cursor, run: str, worker: str, settlements: Sequence[Settlement]) -> int:
    """Write what became of jobs that ``worker`` has leased, and return how many it was the holder of."""
    held = 0
    for ended in (True, False):
        rows = [_row(run, worker, one) for one in settlements if one.begun and (one.again_after is None) is ended]
        if rows:
            cursor.executemany(
                f"UPDATE abp_jobs SET state = ?, worker = {'worker' if ended else 'NULL'}, lease = NULL, "
                f"lease_until = NULL, not_before = {database.now} + ?, finished = {database.now if ended else 'NULL'}, "
                "milliseconds = milliseconds + ?, error_code = ?, error = ?, artifacts = ? "
                "WHERE run = ? AND key = ? AND worker = ? AND state IN (?, ?)",
                rows,
            )
            held += cursor.rowcount
    if back := [(State.QUEUED.value, run, one.key, worker) for one in settlements if not one.begun]:
        cursor.executemany(
            "UPDATE abp_jobs SET state = ?, attempts = attempts - 1, worker = NULL, lease = NULL, lease_until = NULL "
            f"WHERE run = ? AND key = ? AND worker = ? AND {LEASED}",
            back,
        )
        held += cursor.rowcount
    return held


def _row(run: str, worker: str, one: Settlement) -> tuple[Value, ...]:
    outcome = one.outcome
    return (
        (outcome.state if one.again_after is None else State.QUEUED).value,
        one.again_after or 0.0,
        outcome.milliseconds,
        without_nul(outcome.error_code),
        without_nul(outcome.error),
        without_nul(encoded(outcome.files())),
        run,
        one.key,
        worker,
        State.LEASED.value,
        State.UNKNOWN.value,
    )
