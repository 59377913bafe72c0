"""Parquet files of a run: its manifest, and rows of an input. Needs pyarrow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pyarrow
from pyarrow import parquet

from ..artifacts._files import replacing
from ..errors import LedgerError, UsageError
from ..protocol._strict_json import decode_json, encode_json, members_of
from ._jobs import MAX_FIELDS

logger = logging.getLogger("transports")

#: Arrow types of the kit's own columns. Types of carried columns are inferred from the manifest.
_TYPES = {
    **dict.fromkeys(("id", "key", "target", "capability", "status", "error_code", "error", "uri", "sha256"), "string"),
    **dict.fromkeys(("attempts", "size_bytes"), "int64"),
    **dict.fromkeys(("duration_ms", "started", "finished"), "double"),
    "artifacts": "json",
}
_SCALAR_TYPES = {bool: "bool", float: "double", str: "string"}


def read_rows(
    path: Path, *, batch_size: int, check: Callable[[Sequence[str]], None]
) -> Iterator[tuple[int, int, Mapping[str, object]]]:
    """Yield the number of each row from 1, its size in bytes, and its cells. ``check`` takes the names of the columns
    before the first row."""
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            check(file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=batch_size):
                for row in batch.to_pylist():
                    number += 1
                    yield number, batch.nbytes // batch.num_rows, row
    # A cell may have no value in Python: nanoseconds without pandas, a date after 9999, invalid UTF-8.
    except (pyarrow.ArrowException, OverflowError, ValueError) as error:
        raise UsageError(f"{path} cannot be read after row {number} ({error})") from error


def write_manifest(manifest: Path, path: Path) -> None:
    """Write a manifest as a Parquet file. A carried column has the type of its values, or is JSON text if the types
    differ, are not scalar or do not fit. Only the first 1,000 carried columns are written, with a warning if the
    manifest has more."""
    try:
        _write_rows(manifest, path)
    except (OSError, pyarrow.ArrowException) as error:
        raise LedgerError(f"{path} cannot be written ({error}); `abp batch export` writes it again") from error


def _write_rows(manifest: Path, path: Path) -> None:
    """Write lines in groups, so that any number of them needs little memory."""
    types = _column_types(manifest)
    schema = pyarrow.schema([(name, "string" if kind == "json" else kind) for name, kind in types.items()])
    with replacing(path) as new, manifest.open("rb") as file, parquet.ParquetWriter(new, schema) as writer:
        rows_of_group = 5000
        lines = [*islice(file, rows_of_group)]
        while lines:
            rows = [_parquet_row(members_of(decode_json(line)), types) for line in lines]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            lines = [*islice(file, rows_of_group)]


def _column_types(manifest: Path) -> dict[str, str]:
    """Return the Arrow types of all columns, ``json`` for columns of JSON text."""
    kinds_by_name: dict[str, set[str]] = {}
    has_more = False
    for name, value in _carried_values(manifest):
        if name not in kinds_by_name and len(kinds_by_name) == MAX_FIELDS:
            has_more = True
            continue
        kinds_by_name.setdefault(name, set()).add(_type_of_value(value))

    if has_more:
        logger.warning("the Parquet file has the first %s carried fields; %s has all", f"{MAX_FIELDS:,}", manifest)
    carried_types = {name: _merge_types(kinds) for name, kinds in kinds_by_name.items()}
    return {**_TYPES, **carried_types}


def _carried_values(manifest: Path) -> Iterator[tuple[str, object]]:
    with manifest.open("rb") as file:
        for line in file:
            for name, value in members_of(decode_json(line)).items():
                if name not in _TYPES and value is not None:
                    yield name, value


def _type_of_value(value: object) -> str:
    """Return an Arrow type for a value, ``int53`` for an integer that a double can hold too, or ``json``."""
    if type(value) is not int:
        return _SCALAR_TYPES.get(type(value), "json")
    if abs(value) <= 2**53:
        return "int53"
    if -(2**63) <= value < 2**63:
        return "int64"
    return "json"


def _merge_types(kinds: set[str]) -> str:
    """Return the type of a column whose values have these types. Mixed values, except numbers, become JSON text."""
    if kinds <= {"int53", "int64"}:
        return "int64"
    if kinds <= {"int53", "double"}:
        return "double"
    if len(kinds) == 1:
        return next(iter(kinds))
    return "json"


def _parquet_row(row: Mapping[str, object], types: Mapping[str, str]) -> dict[str, object]:
    cells = {}
    for name, kind in types.items():
        value = row.get(name)
        if kind == "json" and value is not None:
            value = encode_json(value).decode()
        cells[name] = value
    return cells
