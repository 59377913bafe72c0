"""Files of a run: its input (JSON Lines, CSV or Parquet of any length, read in batches), and its output (notes about
the input, manifest, failed jobs as a new input, report)."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import math
import re
import shutil
import stat
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import IO, NamedTuple
from uuid import UUID

from .._internal import notebook
from .._internal.tasks import in_thread
from ..artifacts._files import replacing
from ..errors import ABPError, LedgerError, UsageError
from ..protocol._params import FileToRead, prepare_params
from ..protocol._plain_text import plain_line
from ..protocol._strict_json import JSONValue, encode_json, json_lines, members_of
from ._jobs import Consent, Job, State, job_document, parse_job, require_few_fields, require_job
from .ledger._ledger import Ledger
from .ledger._schema import Added, Row

EXAMPLE = '{"capability": "export.pdf", "params": {}}'


@dataclass(frozen=True, slots=True)
class Limits:
    #: Faults in a message, and characters of each.
    faults: int = 20
    fault_chars: int = 300
    #: Columns in a message, and characters of each name.
    columns: int = 20
    column_chars: int = 60
    cell_chars: int = 64 << 20
    #: Jobs of one batch, and the bytes of input after which a smaller batch is yielded.
    batch: int = 500
    batch_bytes: int = 16 << 20


LIMITS = Limits()


class _InvalidLines:
    """Collects the faults of an input file, which are reported together at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._reports: list[str] = []

    def add(self, number: int, fault: str) -> None:
        """``fault`` follows the words "line 3": ``: a field is missing``, `` is not JSON``."""
        self._count += 1
        if self._count > LIMITS.faults:
            return
        kind = "row" if _is_parquet(self._path) else "line"
        report = " ".join(f"{kind} {number}{fault}".split())
        if len(report) > LIMITS.fault_chars:
            report = report[: LIMITS.fault_chars] + "…"
        self._reports.append(report)

    def check(self) -> None:
        if not self._count:
            return
        if self._count == 1:
            raise UsageError(
                f"{self._path}, {self._reports[0]}; nothing was run: correct it, and give the same command again"
            )

        unreported = self._count - len(self._reports)
        if unreported:
            self._reports.append(f"and {unreported} more")
        refused = "\n".join(self._reports)
        raise UsageError(
            f"{self._path} has {self._count} invalid lines; nothing was run: correct them, and give the same "
            f"command again\n{refused}",
            details={"refused": refused},
        )


def require_columns(path: Path, names: Sequence[str]) -> None:
    """Refuse a table with too many columns, with two columns of the same name, or without the column ``capability``."""
    try:
        require_few_fields(names)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from None
    # Several columns may have no name. A table without any named column has no most common name.
    for name, count in Counter(filter(None, names)).most_common(1):
        if count > 1:
            short_name = name[: LIMITS.column_chars]
            raise UsageError(f'{path}: {count} columns are called "{short_name}"; give each a name of its own')
    if "capability" in names or not names:
        return

    names_shown = ", ".join(f'"{name[: LIMITS.column_chars]}"' for name in names[: LIMITS.columns])
    if len(names) > LIMITS.columns:
        names_shown += f" and {len(names) - LIMITS.columns} more"
    columns = f"the columns are {names_shown}"
    if len(names) == 1:
        columns = f"the only column is {names_shown}"
    raise UsageError(
        f'{path}: {columns}; one must be "capability", in small letters; a .csv separates columns by commas, a .tsv by '
        "tabs"
    )


def fingerprint(path: Path, target: str | None) -> str:
    """Return a hash that identifies an input with its default ``target``."""
    require_input(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); correct the path of the jobs") from error
    digest.update(encode_json(["target", target]))
    return digest.hexdigest()


def require_input(path: Path) -> None:
    """Refuse anything but a readable regular file: a pipe or a device may have no end, and cannot be read twice."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        if is_file:
            path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); correct the path of the jobs") from error
    if not is_file:
        raise UsageError(f"{path} is not a regular file; name one, or - to read JSON Lines from stdin")


def spool_stream(stream: IO[bytes], path: Path) -> Path:
    """Copy the stream to a file, so that the run can be resumed without it."""
    with _writing_file(path) as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return path


def spool_jobs(jobs: Iterable[Job], path: Path) -> Path:
    with _writing_file(path) as file:
        for job in jobs:
            file.write(_encode_job(require_job(job)) + b"\n")
    return path


def _encode_job(job: Job) -> bytes:
    """Encode a job as a line of JSON. Refuse other values: the encoder alone would write bytes as text, NaN as null."""
    try:
        # A path raises FileToRead here, and bytes are taken out as content.
        _, content = prepare_params(job.params, read_files=False)
        if content:
            raise FileToRead
        return encode_json(job_document(job))
    except FileToRead:
        raise UsageError(f"{job.capability}: params of a job are JSON values; give files as files=") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{job.capability}: the job cannot be written as JSON ({error})") from error


@contextmanager
def _writing_file(path: Path) -> Iterator[IO[bytes]]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise LedgerError(f"{path} cannot be written ({error.strerror}); name another folder with --out") from error


def read_jobs(path: Path, target: str | None = None, consent: Consent | None = None) -> Iterator[list[Job]]:
    """Yield the jobs of a file in batches.

    ``.csv`` and ``.tsv`` have a header line and one job per row, ``.parquet`` one job per row; any other file is JSON
    Lines. Jobs without a target get ``target``. The jobs' files are read to compute the keys. A job beyond ``consent``
    is invalid; relative paths start at its folder. Raises :class:`~transports.errors.UsageError` at the end for all
    invalid jobs, and for an empty input."""
    batch: list[Job] = []
    batch_lines = batch_bytes = 0
    invalid = _InvalidLines(path)
    is_empty = True

    for line in _read_lines(path, invalid):
        is_empty = False
        try:
            batch.append(_read_job(line.fields, target, consent))
        except ABPError as error:
            invalid.add(line.number, f": {error.message}")

        batch_lines += 1
        batch_bytes += line.size_bytes
        if batch_lines >= LIMITS.batch or batch_bytes >= LIMITS.batch_bytes:
            yield batch
            batch = []
            batch_lines = batch_bytes = 0

    invalid.check()
    if is_empty:
        raise UsageError(f"{path} has no jobs; each line is one, such as {EXAMPLE}")
    if batch:
        yield batch


def _read_job(fields: Mapping[str, object], target: str | None, consent: Consent | None) -> Job:
    """Make a job of the fields of a line. Its permissions are checked before its files are read for its key."""
    folder = consent.folder if consent is not None else None
    job = parse_job(fields, target=target, folder=folder)
    if job.target is None:
        raise UsageError("target is missing; name it in the line, or give --target for all")
    if consent is not None:
        job = consent.checked(job)

    # The key is cached. Computing it here reports files that cannot be read.
    _ = job.key
    return job


def first_jobs(path: Path) -> list[Job]:
    lines = islice(_read_lines(path, _InvalidLines(path)), LIMITS.batch)
    return [parse_job(line.fields) for line in lines]


class _Line(NamedTuple):
    """A row of an input file. ``number`` counts from 1; the size is approximate."""

    number: int
    size_bytes: int
    fields: Mapping[str, object]


def _read_lines(path: Path, invalid: _InvalidLines) -> Iterator[_Line]:
    require_input(path)
    try:
        if _is_parquet(path):
            yield from _read_parquet(path, invalid)
        elif path.suffix.lower() == ".csv":
            yield from _read_table(path, ",", invalid)
        elif path.suffix.lower() == ".tsv":
            yield from _read_table(path, "\t", invalid)
        else:
            with path.open("rb") as file:
                yield from starmap(_Line, json_lines(file, "", f"such as {EXAMPLE}", invalid.add))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error})") from error


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _read_table(path: Path, delimiter: str, invalid: _InvalidLines) -> Iterator[_Line]:
    # The default limit would refuse a cell with a document. The limit is for the whole process, so it is never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), LIMITS.cell_chars))
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter, restkey=None, strict=True)
        try:
            require_columns(path, reader.fieldnames or ())
            for row in reader:
                has_surplus_cells = None in row
                if has_surplus_cells:
                    invalid.add(reader.line_num, " has more cells than the first line has names")
                    continue
                size = sum(len(cell or "") for cell in row.values())
                yield _Line(reader.line_num, size, row)
        except csv.Error as error:
            # Reading ends here, since the boundaries of later rows are unknown.
            invalid.add(reader.reader.line_num, f" cannot be read ({error})")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error


def _read_parquet(path: Path, invalid: _InvalidLines) -> Iterator[_Line]:
    try:
        from . import _parquet_files  # late: it needs an extra
    except ImportError as error:
        raise UsageError(
            f"reading {path} needs pyarrow ({error}); install it: pip install 'abp-transports[parquet]'"
        ) from error
    check = partial(require_columns, path)
    for number, size, row in _parquet_files.read_rows(path, batch_size=LIMITS.batch, check=check):
        try:
            fields = {name: _json_cell(name, value) for name, value in row.items()}
        except ValueError as error:
            invalid.add(number, f": {error}")
            continue
        yield _Line(number, size, fields)


def _json_cell(name: str, value: object) -> object:
    """Return the value of a cell as JSON: dates, decimals and UUIDs become text, and NaN becomes null. Objects lose
    their nulls, since Parquet gives each row the fields of all rows. Raises :class:`ValueError` for an infinite number,
    and :class:`~transports.errors.UsageError` for a type that JSON does not have, which concerns all rows."""
    match value:
        case float() if math.isnan(value):
            return None
        case float() if math.isinf(value):
            raise ValueError(f"column {name} has the number {value}, which JSON does not have; give another")
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case list():
            return [_json_cell(name, item) for item in value]
        case dict():
            cells = {str(key): _json_cell(name, item) for key, item in value.items()}
            return {key: cell for key, cell in cells.items() if cell is not None}
    raise UsageError(f"column {name} has {type(value).__name__} values, which JSON does not have; give files as files")


#: Names in the hints of one message.
_MAX_HINTS = 10


async def write_parquet(manifest: Path, path: Path) -> bool:
    """Write the manifest as a Parquet file. Without pyarrow nothing is written; return whether it is installed."""
    try:
        from . import _parquet_files  # late: it needs an extra
    except ImportError:
        return False
    await asyncio.to_thread(_parquet_files.write_manifest, manifest, path)
    return True


def input_notes(added: Added, path: Path) -> list[str]:
    """Return notes about lines without a new job, and, if most lines are copies or the first jobs have no parameters,
    about fields that may be meant as parameters."""
    notes = _line_notes(added)
    jobs: list[Job] = []
    # The input may have become unreadable. That does not matter: its jobs are in the run.
    with suppress(ABPError):
        jobs = first_jobs(path)
    are_mostly_copies = added.copies * 2 > added.lines
    have_parameters = any(job.params or job.files for job in jobs)
    if are_mostly_copies or not have_parameters:
        notes += _parameter_hints(name for job in jobs for name in job.carried)
    return notes


def _line_notes(added: Added) -> list[str]:
    """Say how many lines are no new job: copies of other lines, jobs that the run has already, and corrections."""
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
    return notes


def _named_in_error(row: Row) -> set[str]:
    """Return the carried fields that the error of a job names, and that are not among its parameters. They may be meant
    as parameters."""
    words_of_error = set(re.findall(r"\w+", row.error or ""))
    named_by_app = words_of_error - row.job.params.keys()
    return {name for name in row.job.carried if _parameter_name(name) in named_by_app}


def _parameter_hints(names: Iterable[str]) -> list[str]:
    hints = []
    for name in sorted(set(names))[:_MAX_HINTS]:
        parameter = f"params.{_parameter_name(name)}"
        hints.append(f"{name} is carried along, not a parameter; name it {parameter} if it is one")
    return hints


def _parameter_name(name: str) -> str:
    """Return the name without a misspelt prefix ``params.``, such as ``Params .``."""
    return re.sub(r"^\s*params\s*\.", "", name, flags=re.IGNORECASE).strip()


class Report(dict[str, JSONValue]):
    """Report of a run, as ``report.json`` has it (docs/batch.md). ``folder`` holds the files of the run."""

    def __init__(self, values: Mapping[str, JSONValue], folder: Path) -> None:
        super().__init__(values)
        self.folder = folder

    def _repr_html_(self) -> str:
        parts = [notebook.table(("state", "jobs"), self._nonzero_counts("states"), title=f"{self.get('jobs', 0)} jobs")]
        codes = self._nonzero_counts("codes")
        if codes:
            parts.append(notebook.table(("error", "jobs"), codes, count=len(codes)))
        times = self._nonzero_counts("milliseconds")
        if times:
            parts.append(notebook.table([name for name, _ in times], [[f"{value} ms" for _, value in times]]))
        files = [self.folder / name for name in ("manifest.jsonl", "failed.jsonl", "report.json")]
        links = [notebook.file_link(str(file.absolute()), file.name) for file in files if file.is_file()]
        parts.append(notebook.table([""], [links] if links else []))
        hints = self.get("hints")
        if isinstance(hints, list):
            parts += [notebook.preformatted(f"Hint: {hint}") for hint in hints]
        return "".join(parts)

    def _nonzero_counts(self, name: str) -> list[tuple[str, JSONValue]]:
        return [(key, value) for key, value in members_of(self.get(name)).items() if value]


async def export_run(ledger: Ledger, folder: Path, extra: Mapping[str, JSONValue] | None = None) -> Report:
    """Write ``manifest.jsonl``, ``failed.jsonl`` and ``report.json`` to ``folder``, and ``manifest.parquet`` if pyarrow
    is installed; each replaces its older version atomically. The report includes ``extra``."""
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
    """Describe a row: ``uri``, ``sha256`` and ``size_bytes`` of the first file, ``artifacts`` with all, then the fields
    carried along from the input, as ``carried.NAME`` if the name is taken."""
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
    for name, value in row.job.carried.items():
        # An input that was a manifest may have a name with this prefix already.
        while name in line:
            name = f"carried.{name}"
        line[name] = value
    return line


class _Statistics:
    """Statistics of a run for its report, in 8 bytes per job."""

    def __init__(self) -> None:
        self._states: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._first_errors: dict[str, JSONValue] = {}
        self._milliseconds = array("d")
        self._copies = 0
        #: Carried fields that apps report as missing parameters.
        self._missing: set[str] = set()

    def add(self, row: Row) -> None:
        """Count a row. A copy of an earlier line is counted separately, since its job counts only once."""
        if row.error_code in ("INVALID_PARAMS", "MISSING_PARAM") and len(self._missing) < _MAX_HINTS:
            self._missing |= _named_in_error(row)
        if row.copy:
            self._copies += 1
            return

        self._states[row.state] += 1
        if row.error_code is not None and row.state.is_final:
            self._add_error(row.error_code, row)
        if row.state is State.SUCCEEDED:
            self._milliseconds.append(row.milliseconds)

    def _add_error(self, code: str, row: Row) -> None:
        self._codes[code] += 1
        max_codes = 10  # with the message of their first error
        if code not in self._first_errors and len(self._first_errors) < max_codes:
            error = plain_line(row.error or "", 300)
            self._first_errors[code] = {"id": row.job.id, "key": row.key, "error": error}

    def report(self) -> dict[str, JSONValue]:
        durations = sorted(self._milliseconds)
        percentiles: dict[str, JSONValue] = {}
        if durations:
            for percent in (50, 90, 95, 99):
                duration = durations[(len(durations) - 1) * percent // 100]
                percentiles[f"p{percent}"] = round(duration, 1)
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
        }
