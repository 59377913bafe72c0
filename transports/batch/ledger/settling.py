"""What became of jobs, written to their rows."""

from __future__ import annotations

from collections.abc import Sequence

from ...database import Cursor, without_nul
from ..jobs import State
from .database import Database
from .entries import Settlement
from .texts import encoded

__all__ = ["settle_jobs"]


def settle_jobs(database: Database, cursor: Cursor, run: str, worker: str, settlements: Sequence[Settlement]) -> int:
    """Write what became of jobs that ``worker`` has leased, and return how many it was the holder of."""
    held = 0
    for one in settlements:
        again, outcome = one.again_after, one.outcome
        cursor.execute(
            f"UPDATE abp_jobs SET state = ?, worker = {'worker' if again is None else 'NULL'}, lease = NULL, "
            f"lease_until = NULL, not_before = {database.now} + ?, "
            f"finished = {database.now if again is None else 'NULL'}, milliseconds = milliseconds + ?, "
            "error_code = ?, error = ?, artifacts = ? "
            "WHERE run = ? AND key = ? AND worker = ? AND state IN (?, ?)",
            (
                (outcome.state if again is None else State.QUEUED).value,
                again or 0.0,
                outcome.milliseconds,
                without_nul(outcome.error_code),
                without_nul(outcome.error),
                without_nul(encoded(outcome.files())),
                run,
                one.key,
                worker,
                State.LEASED.value,
                State.UNKNOWN.value,
            ),
        )
        held += cursor.rowcount
    return held
