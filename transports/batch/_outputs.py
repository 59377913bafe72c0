"""Output of a run: notes about its input, manifest (JSON Lines and Parquet), failed jobs as a new input, and report."""

from __future__ import annotations

import asyncio
import logging
import re
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from .._internal import notebook
from .._internal.tasks import in_thread
from ..artifacts._files import replacing
from ..errors import ABPError, LedgerError
from ..protocol._plain_text import plain_line
from ..protocol._strict_json import JSONValue, encode_json
from ._jobs import Job, State, job_document
from ._reading import first_jobs
from .ledger._ledger import Ledger
from .ledger._schema import Added, Row

logger = logging.getLogger("transports")

#: Names in the hints of one message.
_MAX_HINTS = 10
#: Error codes with a message in the report.
_MAX_FIRST_ERRORS = 10


async def write_parquet(manifest: Path, path: Path) -> bool:
    """Write the lines of a manifest to ``path`` as Parquet. Return whether pyarrow is installed. Raises
    :class:`~transports.errors.LedgerError`."""
    try:
        from . import _parquet_files  # late: it needs an extra
    except ImportError:
        return False
    await asyncio.to_thread(_parquet_files.write_manifest, manifest, path)
    return True


def input_notes(added: Added, path: Path) -> list[str]:
    """Return notes for the user about a newly added input.

    They report lines without a new job. If most lines are duplicates or the first jobs have no parameters, they also
    report columns or fields that may be meant as parameters."""
    notes = []
    if added.copies:
        are_copies = "is the same job as an earlier line" if added.copies == 1 else "are the same jobs as earlier lines"
        notes.append(f"{added.copies} of {added.lines} lines {are_copies}; each job runs once")
    existing = added.lines - added.jobs - added.copies
    if existing:
        are_jobs = "is a job" if existing == 1 else "are jobs"
        notes.append(f"{existing} of {added.lines} lines {are_jobs} that the run has already")
    if added.replaced:
        lines_are = "1 failed line is" if added.replaced == 1 else f"{added.replaced} failed lines are"
        notes.append(f"{lines_are} replaced by one of the same id")

    jobs: list[Job] = []
    # The input may have become unreadable. That does not matter: its jobs are in the run.
    with suppress(ABPError):
        jobs = first_jobs(path)
    are_mostly_copies = added.copies * 2 > added.lines
    have_parameters = any(job.params or job.files for job in jobs)
    if are_mostly_copies or not have_parameters:
        notes += _parameter_hints(name for job in jobs for name in job.carried)
    return notes


def _parameter_hints(names: Iterable[str]) -> list[str]:
    """Return hints for carried fields that may be meant as parameters, at most ten."""
    hints = []
    for name in sorted(set(names))[:_MAX_HINTS]:
        parameter = f"params.{_parameter_name(name)}"
        hints.append(f"{name} is carried along, not a parameter; name it {parameter} if it is one")
    return hints


def _parameter_name(name: str) -> str:
    """Return the name without a misspelt prefix ``params.``, such as ``Params .``."""
    return re.sub(r"^\s*params\s*\.", "", name, flags=re.IGNORECASE).strip()


class Report(dict[str, JSONValue]):
    """Report of a run, as ``report.json`` has it: counts by state and by code, hints, times (docs/batch.md).

    ``folder`` holds the files of the run."""

    def __init__(self, values: Mapping[str, JSONValue], folder: Path) -> None:
        super().__init__(values)
        self.folder = folder

    def _repr_html_(self) -> str:
        """Return the report for a notebook: the jobs by state and by error, hints, and links to the files."""
        parts = [notebook.table(("state", "jobs"), self._counts("states"), title=f"{self.get('jobs', 0)} jobs")]
        codes = self._counts("codes")
        if codes:
            parts.append(notebook.table(("error", "jobs"), codes, count=len(codes)))
        times = self._counts("milliseconds")
        if times:
            parts.append(notebook.table([name for name, _ in times], [[f"{value} ms" for _, value in times]]))
        files = [self.folder / name for name in ("manifest.jsonl", "failed.jsonl", "report.json")]
        links = [notebook.file_link(str(file.absolute()), file.name) for file in files if file.is_file()]
        parts.append(notebook.table([""], [links] if links else []))
        hints = self.get("hints")
        if isinstance(hints, list):
            parts += [notebook.preformatted(f"Hint: {hint}") for hint in hints]
        return "".join(parts)

    def _counts(self, name: str) -> list[tuple[str, JSONValue]]:
        """Return the entries of one part that are not 0."""
        values = self.get(name)
        if not isinstance(values, dict):
            return []
        return [(key, value) for key, value in values.items() if value]


async def export_run(ledger: Ledger, folder: Path, extra: Mapping[str, JSONValue] | None = None) -> Report:
    """Write ``manifest.jsonl``, ``failed.jsonl`` and ``report.json`` to ``folder``, and ``manifest.parquet`` if pyarrow
    is installed. Return the report including ``extra``.

    Each file replaces its older version atomically. Raises :class:`~transports.errors.LedgerError`."""
    statistics = _Statistics()
    try:
        await in_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"{folder} cannot be made ({error.strerror}); name another folder with --out") from error
    async with (
        _replacing_file(folder / "manifest.jsonl") as manifest,
        _replacing_file(folder / "failed.jsonl") as failed,
    ):
        async for row in ledger.rows():
            statistics.add(row)
            manifest.write(encode_json(manifest_line(row)) + b"\n")
            if row.state is State.FAILED:
                failed.write(encode_json(job_document(row.job)) + b"\n")
    report = Report({**statistics.report(), "replaced": await ledger.replaced(), **(extra or {})}, folder)
    async with _replacing_file(folder / "report.json") as file:
        file.write(encode_json(dict(report)) + b"\n")
    await write_parquet(folder / "manifest.jsonl", folder / "manifest.parquet")
    return report


@asynccontextmanager
async def _replacing_file(path: Path) -> AsyncIterator[IO[bytes]]:
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise LedgerError(f"{path} cannot be written ({error.strerror}); `abp batch export` writes it again") from error


def manifest_line(row: Row) -> dict[str, JSONValue]:
    """Return a job's line of the manifest.

    ``uri``, ``sha256`` and ``size_bytes`` describe its first file; ``artifacts`` has all files. Carried fields of the
    input follow, as ``carried.NAME`` if the name is taken."""
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
        "artifacts": [dict(artifact) for artifact in row.artifacts],
    }
    carried = {f"carried.{name}" if name in line else name: value for name, value in row.job.carried.items()}
    return line | carried


class _Statistics:
    """Statistics of a run for its report, in 16 bytes per job."""

    def __init__(self) -> None:
        self._states: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._first_errors: dict[str, JSONValue] = {}
        self._milliseconds = array("d")
        self._finished = array("d")
        self._first = float("inf")
        self._copies = 0
        #: Carried fields that apps report as missing parameters.
        self._missing: set[str] = set()

    def add(self, row: Row) -> None:
        """Count one line of the manifest. Copies have a count of their own: their job counts once."""
        if row.error_code in ("INVALID_PARAMS", "MISSING_PARAM") and len(self._missing) < _MAX_HINTS:
            words_of_error = set(re.findall(r"\w+", row.error or ""))
            named_by_app = words_of_error - row.job.params.keys()
            self._missing |= {name for name in row.job.carried if _parameter_name(name) in named_by_app}
        if row.copy:
            self._copies += 1
            return

        self._states[row.state] += 1
        if row.error_code is not None and row.state.is_final:
            self._codes[row.error_code] += 1
            if row.error_code not in self._first_errors and len(self._first_errors) < _MAX_FIRST_ERRORS:
                error = plain_line(row.error or "", 300)
                self._first_errors[row.error_code] = {"id": row.job.id, "key": row.key, "error": error}
        if row.started is not None and row.finished is not None:
            self._first = min(self._first, row.started)
            self._finished.append(row.finished)
        if row.state is State.SUCCEEDED:
            self._milliseconds.append(row.milliseconds)

    def report(self) -> dict[str, JSONValue]:
        ordered = sorted(self._milliseconds)
        percentiles: dict[str, JSONValue] = {}
        if ordered:
            percentiles = {f"p{p}": round(ordered[(len(ordered) - 1) * p // 100], 1) for p in (50, 90, 95, 99)}
        jobs = sum(self._states.values())
        return {
            "lines": jobs + self._copies,
            "copies": self._copies,
            "jobs": jobs,
            "hints": list[JSONValue](_parameter_hints(self._missing)),
            "states": {state.value: self._states[state] for state in State},
            "codes": dict(self._codes.most_common()),
            "first_errors": self._first_errors,
            "milliseconds": percentiles,
            "throughput": self._throughput(),
        }

    def _throughput(self) -> JSONValue:
        """Return the number of ended jobs in each of about 60 intervals of a second or more."""
        if not self._finished:
            return {}
        seconds = max(self._finished) - self._first
        step = max(seconds / 60, 1.0)
        counts = [0] * (int(seconds / step) + 1)
        for finished in self._finished:
            counts[int((finished - self._first) / step)] += 1
        return {
            "started": self._first,
            "seconds": round(seconds, 3),
            "step_seconds": round(step, 3),
            "ended": list(counts),
        }
