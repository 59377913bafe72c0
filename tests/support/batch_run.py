"""A run of a batch in a folder, half done: for the page of runs and its pictures."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.support.gallery import PICTURE
from transports.artifacts import LocalStore
from transports.batch import Job, Ledger, Outcome, State, open_ledger
from transports.batch.ledger._schema import Settlement

TARGET = "http://127.0.0.1:8000/"
SOURCE = {"capability": "chart.render", "call": "call-1"}
#: How every so many jobs end, and with which error.
ENDS = {
    11: (State.FAILED, "RENDER_FAILED", "the page has no element #chart"),
    17: (State.FAILED, "RATE_LIMITED", "30 calls a minute are allowed"),
    29: (State.FAILED, "INVALID_PARAMS", "region: must be one of N, E, S, W"),
    71: (State.UNKNOWN, "CALL_TIMEOUT", "chart.render: no answer within 60 seconds; it may have run"),
}


async def plant_run(folder: Path, *, jobs: int = 400, ended: int = 310, seconds: float = 240.0) -> Ledger:
    """Make a run of which ``ended`` jobs have ended over ``seconds`` and two are under way. The ledger is open, its
    worker holds those two."""
    store = LocalStore(folder / "files")
    ref = await store.put_bytes(PICTURE, filename="chart.png", mime_type="image/png", meta=SOURCE)
    await store.aclose()
    ledger = await open_ledger(folder).__aenter__()
    given = [
        Job("chart.render", {"region": "NESW"[n % 4], "year": 1990 + n // 4}, TARGET, f"chart-{n:04}")
        for n in range(jobs)
    ]
    await ledger.add(lambda: [given], "one")
    leased = await ledger.lease(ended + 2, 3600)
    settlements = []
    for n, lease in enumerate(leased[:ended], 1):
        state, code, error = next((end for every, end in ENDS.items() if n % every == 0), (State.SUCCEEDED, None, None))
        files = (ref,) if state is State.SUCCEEDED else ()
        took = 700 + 500 * math.sin(n)
        settlements.append(Settlement(lease.key, Outcome(lease.job, state, None, code, error, 1, took, files)))
    await ledger.settle(settlements)
    with closing(sqlite3.connect(folder / "ledger.sqlite", timeout=30)) as db:
        now = time.time()
        for n, lease in enumerate(leased[:ended]):
            ended_at = now - seconds + seconds * (n / ended) ** 1.15
            db.execute(
                "UPDATE abp_jobs SET started = ?, finished = ? WHERE key = ?", (ended_at - 1, ended_at, lease.key)
            )
        db.commit()
    report = {
        "milliseconds": {"p50": 702.1, "p90": 1121.4, "p99": 1198.0},
        "browsers": {"recycled": {"memory": 2, "calls": 1}},
    }
    (folder / "report.json").write_text(json.dumps(report))
    return ledger
