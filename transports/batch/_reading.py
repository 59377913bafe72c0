"""Input of a run: JSON Lines, CSV or Parquet of any length, read in batches."""

from __future__ import annotations

import csv
import hashlib
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import IO, NamedTuple

from ..errors import ABPError, LedgerError, UsageError
from ..protocol._strict_json import encode_json, json_lines
from ._jobs import Consent, Job, job_document, parse_job, require_few_fields

#: An example line of JSON Lines.
EXAMPLE = '{"capability": "export.pdf", "params": {}}'
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading an input. Those of messages keep them readable."""

    #: Faults in a message, characters of each, and runs of lines with the same fault.
    faults: int = 20
    fault_chars: int = 300
    runs: int = 10
    #: Columns in a message, and characters of each name.
    columns: int = 20
    column_chars: int = 60
    #: Jobs of one batch, and the bytes of input after which a smaller batch is yielded.
    batch: int = 500
    batch_bytes: int = 16 << 20


LIMITS = Limits()


class _InvalidLines:
    """Invalid lines or rows of the input at ``path``. Lines with the same fault are reported together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._lines_by_fault: dict[str, _LinesWithFault] = {}

    def add(self, number: int, fault: str) -> None:
        """Add the fault of a line. ``fault`` follows the words "line 3": ``: a field is missing``, `` is not JSON``."""
        self._count += 1
        leading_space = " " if fault.startswith(" ") else ""
        shown_fault = leading_space + " ".join(fault.split())
        if len(shown_fault) > LIMITS.fault_chars:
            shown_fault = shown_fault[: LIMITS.fault_chars] + "…"

        if shown_fault not in self._lines_by_fault:
            if len(self._lines_by_fault) >= LIMITS.faults:
                return
            kind = "row" if _is_parquet(self._path) else "line"
            self._lines_by_fault[shown_fault] = _LinesWithFault(shown_fault, kind)
        self._lines_by_fault[shown_fault].add(number)

    def check(self) -> None:
        """Raise :class:`~transports.errors.UsageError` if there is an invalid line."""
        if not self._count:
            return
        reports = [str(lines) for lines in self._lines_by_fault.values()]
        if self._count == 1:
            raise UsageError(
                f"{self._path}, {reports[0]}; nothing was run: correct it, and give the same command again"
            )

        unreported = self._count - sum(lines.count for lines in self._lines_by_fault.values())
        if unreported:
            reports.append(f"and {unreported} more")
        refused = "\n".join(reports)
        raise UsageError(
            f"{self._path} has {self._count} invalid lines; nothing was run: correct them, and give the same "
            f"command again\n{refused}",
            details={"refused": refused},
        )


@dataclass(slots=True)
class _LineRange:
    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}-{self.last}"


class _LinesWithFault:
    """Lines with the same fault; their kind is ``line`` or ``row``."""

    def __init__(self, fault: str, kind: str) -> None:
        self._fault = fault
        self._kind = kind
        self._ranges: list[_LineRange] = []
        self._left_out = 0
        self.count = 0

    def add(self, number: int) -> None:
        """Add a line by its number. Numbers come in order."""
        self.count += 1
        if self._left_out:
            self._left_out += 1
        elif self._ranges and number == self._ranges[-1].last + 1:
            self._ranges[-1].last = number
        elif len(self._ranges) < LIMITS.runs:
            self._ranges.append(_LineRange(number, number))
        else:
            self._left_out = 1

    def __str__(self) -> str:
        """Return such as ``line 3: FAULT``, or ``lines 3, 5-9 and 2 more: each FAULT``."""
        numbers = ", ".join(map(str, self._ranges))
        if self.count == 1:
            return f"{self._kind} {numbers}{self._fault}"

        lines = f"{self._kind}s {numbers}"
        if self._left_out:
            lines += f" and {self._left_out} more"
        if self._fault.startswith(":"):
            return lines + self._fault
        return f"{lines}: each{self._fault}"


def require_columns(path: Path, names: Sequence[str], delimiter: str | None = None) -> None:
    """Raise :class:`~transports.errors.UsageError` for a table without a column ``capability``, or with more columns
    than a job may have fields. ``delimiter`` is the separator of its columns."""
    try:
        require_few_fields(names)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from None
    if "capability" in names or not names:
        return

    shown = ", ".join(f'"{name[: LIMITS.column_chars]}"' for name in names[: LIMITS.columns])
    if len(names) > LIMITS.columns:
        shown += f" and {len(names) - LIMITS.columns} more"
    columns = f"the only column is {shown}"
    if len(names) > 1:
        columns = f"the columns are {shown}"

    is_spelled_otherwise = any(name.strip().lower() == "capability" for name in names)
    other_separators = _SEPARATORS.keys() - {delimiter}
    has_other_separator = any(separator in names[0] for separator in other_separators)
    if is_spelled_otherwise:
        advice = "names are in small letters without spaces: capability, id, target, params.NAME"
    elif delimiter and has_other_separator:
        advice = f"separate columns with {_SEPARATORS[delimiter]}"
    else:
        advice = "one must be capability, with the capability of each row, such as export.pdf"
    raise UsageError(f"{path}: {columns}; {advice}")


def fingerprint(path: Path, target: str | None) -> str:
    """Return the SHA-256 of an input and its default target. Raises :class:`~transports.errors.UsageError` if the input
    cannot be read."""
    require_input(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); correct the path of the jobs") from error
    digest.update(encode_json(["target", target]))
    return digest.hexdigest()


def require_input(path: Path) -> None:
    """Raise :class:`~transports.errors.UsageError` unless the path is a readable regular file: a pipe or a device may
    have no end and cannot be read twice."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        if is_file:
            path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); correct the path of the jobs") from error
    if not is_file:
        raise UsageError(f"{path} is not a regular file; name one, or - to read JSON Lines from stdin")


def spool_stream(stream: IO[bytes], path: Path) -> Path:
    """Copy a stream such as stdin to ``path``, and return the path. The run can then be resumed without the stream."""
    with _writing_file(path) as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return path


def spool_jobs(jobs: Iterable[Job], path: Path) -> Path:
    with _writing_file(path) as file:
        for job in jobs:
            file.write(encode_json(job_document(job)) + b"\n")
    return path


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
    is invalid; relative paths start at its folder.

    Raises :class:`~transports.errors.UsageError` at the end for invalid jobs, with their lines and the first 20
    faults, and for an empty input.
    """
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
    """Return the job of one line, after checking its permissions and computing its key."""
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
    """Return the first jobs of a readable input, without reading their files."""
    lines = islice(_read_lines(path, _InvalidLines(path)), LIMITS.batch)
    return [parse_job(line.fields) for line in lines]


class _Line(NamedTuple):
    """Object in a line or a row of an input, with its number from 1 and its approximate size."""

    number: int
    size_bytes: int
    fields: Mapping[str, object]


def _read_lines(path: Path, invalid: _InvalidLines) -> Iterator[_Line]:
    """Yield the objects of an input of any format, and add unreadable lines to ``invalid``."""
    require_input(path)
    try:
        if _is_parquet(path):
            yield from _read_parquet(path)
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
    """Yield the rows of a CSV file below its header line."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter, restkey=None, strict=True)
        try:
            require_columns(path, reader.fieldnames or (), delimiter)
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


def _read_parquet(path: Path) -> Iterator[_Line]:
    try:
        from . import _parquet_files  # late: it needs an extra
    except ImportError as error:
        raise UsageError(
            f"reading {path} needs pyarrow ({error}); install it: pip install 'abp-transports[parquet]'"
        ) from error
    check = partial(require_columns, path)
    for number, size, row in _parquet_files.read_rows(path, batch_size=LIMITS.batch, check=check):
        yield _Line(number, size, _plain_row(row))


def _plain_row(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row without nulls in ``params`` and ``files``: Parquet gives each row the fields of all rows."""
    plain = {name: _json_cell(name, value) for name, value in row.items()}
    for name in ("params", "files"):
        inner = plain.get(name)
        if isinstance(inner, dict):
            plain[name] = {key: value for key, value in inner.items() if value is not None}
    return plain


def _json_cell(name: str, value: object) -> object:
    """Return a cell of the column ``name`` as a JSON value: dates and decimals become text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case list():
            return [_json_cell(name, item) for item in value]
        case dict():
            return {str(key): _json_cell(name, item) for key, item in value.items()}
    raise UsageError(f"column {name} has {type(value).__name__} values, which JSON does not have; give files as files")
