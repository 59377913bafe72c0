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
from itertools import islice
from pathlib import Path
from typing import IO, TypeAlias

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


class Refused:
    """Invalid lines of the input at ``path``. Lines with the same fault are reported together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._faults: dict[str, _Places] = {}

    def add(self, place: str, fault: str) -> None:
        """Add a fault at a place: ``line 3`` and ``: capability is missing``, or ``line 3`` and `` has a fault``."""
        self._count += 1
        kind, number = place.split()
        leading_space = " " if fault.startswith(" ") else ""
        fault = leading_space + " ".join(fault.split())
        if len(fault) > LIMITS.fault_chars:
            fault = fault[: LIMITS.fault_chars] + "…"
        has_room = len(self._faults) < LIMITS.faults
        if fault in self._faults or has_room:
            self._faults.setdefault(fault, _Places(kind)).add(int(number))

    def check(self) -> None:
        """Raise :class:`~transports.errors.UsageError` if a line was refused."""
        faults = [f"{places}{places.joined(fault)}" for fault, places in self._faults.items()]
        if self._count == 1:
            raise UsageError(f"{self._path}, {faults[0]}; nothing was run: correct it, and give the same command again")
        if self._count:
            rest = self._count - sum(places.count for places in self._faults.values())
            if rest:
                faults.append(f"and {rest} more")
            lines = "\n".join(faults)
            raise UsageError(
                f"{self._path} has {self._count} invalid lines; nothing was run: correct them, and give the same "
                f"command again\n{lines}",
                details={"refused": lines},
            )


class _Places:
    """Places of one fault: ``line 3``, or ``lines 3, 5-9 and 2 more``."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._runs: list[list[int]] = []
        self.count = self._left_out = 0

    def add(self, number: int) -> None:
        """Add a line or a row by its number. Numbers come in order."""
        self.count += 1
        if self._runs and not self._left_out and number == self._runs[-1][1] + 1:
            self._runs[-1][1] = number
        elif len(self._runs) < LIMITS.runs:
            self._runs.append([number, number])
        else:
            self._left_out += 1

    def joined(self, fault: str) -> str:
        """Return ``fault`` as it follows these places: after several of them it applies to each."""
        if self.count == 1 or fault.startswith(":"):
            return fault
        return f": each{fault}"

    def __str__(self) -> str:
        kind = self._kind if self.count == 1 else f"{self._kind}s"
        runs = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self._runs)
        more = f" and {self._left_out} more" if self._left_out else ""
        return f"{kind} {runs}{more}"


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
    columns = f"the columns are {shown}" if len(names) > 1 else f"the only column is {shown}"

    is_spelled_otherwise = any(name.strip().lower() == "capability" for name in names)
    has_other_separator = any(mark in names[0] for mark in _SEPARATORS if mark != delimiter)
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
    refused = Refused(path)
    is_empty = True

    for where, size, document in _read_documents(path, refused):
        is_empty = False
        try:
            batch.append(_read_job(document, target, consent))
        except ABPError as error:
            refused.add(where, f": {error.message}")

        batch_lines += 1
        batch_bytes += size
        if batch_lines >= LIMITS.batch or batch_bytes >= LIMITS.batch_bytes:
            yield batch
            batch = []
            batch_lines = batch_bytes = 0

    refused.check()
    if is_empty:
        raise UsageError(f"{path} has no jobs; each line is one, such as {EXAMPLE}")
    if batch:
        yield batch


def _read_job(document: Mapping[str, object], target: str | None, consent: Consent | None) -> Job:
    """Return the job of one line, after computing its key and checking its permissions."""
    job = parse_job(document, target=target, folder=consent.folder if consent else None)
    if job.target is None:
        raise UsageError("target is missing; name it in the line, or give --target for all")
    if consent is not None:
        job = consent.checked(job)
    # The key is cached. Computing it here reports files that cannot be read.
    _ = job.key
    return job


def first_jobs(path: Path) -> list[Job]:
    """Return the first jobs of a readable input, without reading their files."""
    documents = islice(_read_documents(path, Refused(path)), LIMITS.batch)
    return [parse_job(document) for _, _, document in documents]


#: Position of an object in the input, its approximate size in bytes, and the object.
_Placed: TypeAlias = tuple[str, int, Mapping[str, object]]


def _read_documents(path: Path, refused: Refused) -> Iterator[_Placed]:
    """Yield the objects of an input of any format, and add unreadable lines to ``refused``."""
    suffix = path.suffix.lower()
    require_input(path)
    try:
        if suffix == ".parquet":
            yield from _read_parquet(path)
        elif suffix in (".csv", ".tsv"):
            yield from _read_table(path, "\t" if suffix == ".tsv" else ",", refused)
        else:
            with path.open("rb") as file:
                for number, size, document in json_lines(file, "", f"such as {EXAMPLE}", refused.add):
                    yield f"line {number}", size, document
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error})") from error


def _read_table(path: Path, delimiter: str, refused: Refused) -> Iterator[_Placed]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter, restkey=None, strict=True)
        try:
            require_columns(path, reader.fieldnames or (), delimiter)
            for row in reader:
                where = f"line {reader.line_num}"
                has_surplus_cells = None in row
                if has_surplus_cells:
                    refused.add(where, " has more cells than the first line has names")
                else:
                    yield where, sum(len(cell or "") for cell in row.values()), row
        except csv.Error as error:
            # Reading ends here, since the boundaries of later rows are unknown.
            refused.add(f"line {reader.reader.line_num}", f" cannot be read ({error})")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error


def _read_parquet(path: Path) -> Iterator[_Placed]:
    try:
        from . import _parquet_files  # late: it needs an extra
    except ImportError as error:
        raise UsageError(
            f"reading {path} needs pyarrow ({error}); install it: pip install 'abp-transports[parquet]'"
        ) from error
    check = partial(require_columns, path)
    for number, size, row in _parquet_files.read_rows(path, batch_size=LIMITS.batch, check=check):
        yield f"row {number}", size, _plain_row(row)


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
