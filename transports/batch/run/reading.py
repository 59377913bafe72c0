"""The input of a run: JSON Lines, CSV or Parquet, read in batches, however long it is."""

from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import IO, TypeAlias

from ...errors import ABPError, LedgerError, UsageError
from ...protocol.strict_json import encode_json, json_lines
from ..job_format import job_document, parse_job
from ..jobs import Job

__all__ = ["fingerprint", "read_jobs", "spool_jobs", "spool_stream"]

#: Jobs of one batch, and the bytes of the input after which it is yielded all the same.
_BATCH, _BATCH_BYTES = 500, 16 << 20


def fingerprint(path: Path, target: str | None) -> str:
    """Return the SHA-256 of an input and of the target for jobs that name none. Raises
    :class:`~transports.errors.UsageError` if it cannot be read."""
    _require_file(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); correct the path of the jobs") from error
    digest.update(encode_json(["target", target]))
    return digest.hexdigest()


def _require_file(path: Path) -> None:
    """Refuse a pipe or a device: it has no end, or cannot be read twice."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no regular file; name one, or - to read JSON Lines from stdin")


def spool_stream(stream: IO[bytes], path: Path) -> Path:
    """Copy a stream, such as stdin, to ``path``, and return it: the run can then be gone on with without it."""
    with _writing(path) as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return path


def spool_jobs(jobs: Iterable[Job], path: Path) -> Path:
    """Write jobs to ``path`` as JSON Lines, and return it."""
    with _writing(path) as file:
        for job in jobs:
            file.write(encode_json(job_document(job)) + b"\n")
    return path


@contextmanager
def _writing(path: Path) -> Iterator[IO[bytes]]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise LedgerError(f"{path} cannot be written ({error.strerror}); name another folder with --out") from error


def read_jobs(path: Path, target: str | None = None) -> Iterator[list[Job]]:
    """Yield the jobs of a file in batches. ``.csv`` and ``.tsv`` have one job a row below a line of names, ``.parquet``
    one a row; any other file is JSON Lines. Jobs without a target get ``target``. The files that jobs name are read,
    for their keys.

    Raises :class:`~transports.errors.UsageError`, which names the line, for what is no job, and for an input without
    any.
    """
    batch: list[Job] = []
    held = 0
    empty = True
    for where, size, document in _documents(path):
        try:
            job = parse_job(document, target=target)
            if job.target is None:
                raise UsageError("target is missing; name it in the line, or give --target for all")
            _ = job.key
        except ABPError as error:
            raise UsageError(f"{path}, {where}: {error.message}") from error
        batch.append(job)
        empty = False
        held += size
        if len(batch) >= _BATCH or held >= _BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if empty:
        raise UsageError(f"{path} has no jobs; each line is one, such as {_EXAMPLE}")
    if batch:
        yield batch


_EXAMPLE = '{"capability": "export.pdf", "params": {}}'


#: Where in the input an object stands, about how many bytes it has there, and what it is.
_Found: TypeAlias = tuple[str, int, Mapping[str, object]]


def _documents(path: Path) -> Iterator[_Found]:
    suffix = path.suffix.lower()
    _require_file(path)
    try:
        if suffix == ".parquet":
            yield from _parquet(path)
        elif suffix in (".csv", ".tsv"):
            yield from _table(path, "\t" if suffix == ".tsv" else ",")
        else:
            with path.open("rb") as file:
                for number, size, document in json_lines(file, str(path), f"such as {_EXAMPLE}"):
                    yield f"line {number}", size, document
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error})") from error


def _table(path: Path, delimiter: str) -> Iterator[_Found]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter, restkey=None, strict=True)
        try:
            for row in reader:
                where = f"line {reader.line_num}"
                if None in row:
                    raise UsageError(f"{path}, {where} has more cells than the first line has names")
                yield where, sum(len(cell or "") for cell in row.values()), row
        except csv.Error as error:
            raise UsageError(f"{path}, line {reader.reader.line_num} cannot be read ({error}); correct it") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _parquet(path: Path) -> Iterator[_Found]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"reading {path} needs pyarrow ({error}); install it: pip install 'abp-transports[parquet]'"
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", batch.nbytes // batch.num_rows, _plain_row(row)
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path} cannot be read behind row {number} ({error})") from error


def _plain_row(row: Mapping[str, object]) -> Mapping[str, object]:
    """A row without nothings: where rows have different parameters, Parquet gives all of them to each."""
    plain = {name: _json(name, value) for name, value in row.items()}
    for name in ("params", "files"):
        inner = plain.get(name)
        if isinstance(inner, dict):
            plain[name] = {key: value for key, value in inner.items() if value is not None}
    return plain


def _json(name: str, value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case list():
            return [_json(name, one) for one in value]
        case dict():
            return {str(key): _json(name, one) for key, one in value.items()}
    raise UsageError(f"column {name} has {type(value).__name__} values, which JSON does not have; give files as files")
