"""What a run leaves in its folder: the manifest, the jobs that failed as an input, and a report."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from ...artifacts.replacing import replacing
from ...errors import LedgerError
from ...protocol.strict_json import JSONValue, encode_json
from ...tasks import in_thread
from ..job_format import job_document
from ..jobs import State
from ..ledger import Ledger, Row
from .notes import CarriedParameters
from .parquet import write_parquet

__all__ = ["export_run"]

#: Points of the throughput over time, and the percentiles of a report.
_POINTS = 60
_PERCENTILES = (50, 90, 95, 99)
#: Rows that are written at once.
_CHUNK = 500


async def export_run(
    ledger: Ledger, folder: Path, extra: Mapping[str, JSONValue] | None = None
) -> dict[str, JSONValue]:
    """Write ``manifest.jsonl``, ``failed.jsonl`` and ``report.json`` to ``folder``, and ``manifest.parquet`` where
    pyarrow is installed; return the report, which has ``extra`` in it.

    Each file replaces its older version at once. Raises :class:`~transports.errors.LedgerError`."""
    times = Times()
    try:
        await in_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"{folder} cannot be made ({error.strerror}); name another folder with --out") from error
    async with _replacing(folder / "manifest.jsonl") as manifest, _replacing(folder / "failed.jsonl") as failed:
        waiting: list[bytes] = []
        async for row in ledger.rows():
            times.add(row)
            waiting.append(encode_json(manifest_line(row)) + b"\n")
            if row.state is State.FAILED:
                failed.write(encode_json(job_document(row.job)) + b"\n")
            if len(waiting) >= _CHUNK:
                manifest.write(b"".join(waiting))
                waiting.clear()
        manifest.write(b"".join(waiting))
    report: dict[str, JSONValue] = {**times.report(), "replaced": await ledger.replaced(), **(extra or {})}
    async with _replacing(folder / "report.json") as file:
        file.write(encode_json(report) + b"\n")
    await write_parquet(folder / "manifest.jsonl", folder / "manifest.parquet")
    return report


@asynccontextmanager
async def _replacing(path: Path) -> AsyncIterator[IO[bytes]]:
    """A new file that takes the place of ``path`` at the end of the block."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise LedgerError(f"{path} cannot be written ({error.strerror}); `abp batch export` writes it again") from error


def manifest_line(row: Row) -> dict[str, JSONValue]:
    """Return a job's line of the manifest. ``uri``, ``sha256`` and ``size_bytes`` are those of its first file, all are
    in ``artifacts``. What the input carried follows, under ``carried.NAME`` where the name is taken."""
    first: Mapping[str, JSONValue] = row.artifacts[0] if row.artifacts else {}
    line: dict[str, JSONValue] = {
        "id": row.job.id,
        "key": row.key,
        "target": row.job.target,
        "capability": row.job.capability,
        "status": row.state.value,
        "error_code": row.error_code,
        "error": row.error,
        "attempts": row.attempts,
        "duration_ms": round(row.milliseconds, 1),
        "started": row.started,
        "finished": row.finished,
        "uri": first.get("uri"),
        "sha256": first.get("sha256"),
        "size_bytes": first.get("size_bytes"),
        "artifacts": [dict(one) for one in row.artifacts],
    }
    return {**line, **{(f"carried.{name}" if name in line else name): v for name, v in row.job.carried.items()}}


class Times:
    """Adds up what a report says, in 16 bytes for each job."""

    def __init__(self) -> None:
        self._states: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._milliseconds = array("d")
        self._finished = array("d")
        self._first = float("inf")
        self._copies = 0
        self._carried = CarriedParameters()

    def add(self, row: Row) -> None:
        """Count one line of the manifest. A copy is told of, but its job counts once."""
        self._carried.look(row)
        if row.copy:
            self._copies += 1
            return
        self._states[row.state] += 1
        if row.error_code is not None and row.state.is_final:
            self._codes[row.error_code] += 1
        if row.started is not None and row.finished is not None:
            self._first = min(self._first, row.started)
            self._finished.append(row.finished)
        if row.state is State.SUCCEEDED:
            self._milliseconds.append(row.milliseconds)

    def report(self) -> dict[str, JSONValue]:
        """Return the counts of lines, copies and jobs, those of the jobs by state and by code, hints at parameters that
        are carried along, percentiles of the jobs that succeeded in milliseconds, and how many jobs ended in each part
        of the run's time."""
        ordered = sorted(self._milliseconds)
        jobs = sum(self._states.values())
        return {
            "lines": jobs + self._copies,
            "copies": self._copies,
            "jobs": jobs,
            "hints": list[JSONValue](self._carried.hints()),
            "states": {state.value: self._states[state] for state in State},
            "codes": dict(self._codes.most_common()),
            "milliseconds": {f"p{p}": round(ordered[(len(ordered) - 1) * p // 100], 1) for p in _PERCENTILES}
            if ordered
            else {},
            "throughput": self._throughput(),
        }

    def _throughput(self) -> JSONValue:
        if not self._finished:
            return {}
        last = max(self._finished)
        step = max((last - self._first) / _POINTS, 1.0)
        counts = [0] * (int((last - self._first) / step) + 1)
        for one in self._finished:
            counts[int((one - self._first) / step)] += 1
        return {
            "started": self._first,
            "seconds": round(last - self._first, 3),
            "step_seconds": round(step, 3),
            "ended": list(counts),
        }
