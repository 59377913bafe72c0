"""Parquet files of a run: its manifest, and rows of an input. Needs pyarrow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from ..artifacts._files import replacing
from ..errors import LedgerError, UsageError
from ..protocol._strict_json import decode_json, encode_json
from ._jobs import MAX_FIELDS

logger = logging.getLogger("transports")

_BATCH_ROWS = 5000
#: Arrow types of the kit's own columns. Types of carried columns are inferred from the manifest.
_TYPES = {
    **dict.fromkeys(("id", "key", "target", "capability", "status", "error_code", "error", "uri", "sha256"), "string"),
    **dict.fromkeys(("attempts", "size_bytes"), "int64"),
    **dict.fromkeys(("duration_ms", "started", "finished"), "double"),
    "artifacts": "json",
}
_SCALAR_TYPES = {bool: "bool", float: "double", str: "string"}
#: Integers up to this are exact as a double.
_MAX_EXACT = 2**53
#: Type of a column with several kinds of numbers. A column of other mixed kinds is JSON text.
_MERGED_TYPES = {
    frozenset({"int53"}): "int64",
    frozenset({"int53", "int64"}): "int64",
    frozenset({"int53", "double"}): "double",
}


def read_rows(
    path: Path, *, batch_size: int, check: Callable[[Sequence[str]], None]
) -> Iterator[tuple[int, int, Mapping[str, object]]]:
    """Yield the number of each row from 1, its size in bytes, and its cells.

    ``check`` takes the names of the columns before the first row. Raises what it raises, and
    :class:`~transports.errors.UsageError` for a file that cannot be read."""
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            check(file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=batch_size):
                for row in batch.to_pylist():
                    number += 1
                    yield number, batch.nbytes // batch.num_rows, row
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path} cannot be read after row {number} ({error})") from error


def write_manifest(manifest: Path, path: Path) -> None:
    """Write the lines of a manifest to ``path`` as Parquet. Raises :class:`~transports.errors.LedgerError`.

    A carried column has the type of its values, or is JSON text if the types differ, are not scalar or do not fit. Only
    the first 1,000 carried columns are written, with a warning if there are more."""
    try:
        _write_rows(manifest, path)
    except (OSError, pyarrow.ArrowException) as error:
        raise LedgerError(f"{path} cannot be written ({error}); `abp batch export` writes it again") from error


def _write_rows(manifest: Path, path: Path) -> None:
    types = _column_types(manifest)
    schema = pyarrow.schema([(name, "string" if kind == "json" else kind) for name, kind in types.items()])
    with replacing(path) as new, manifest.open("rb") as file, parquet.ParquetWriter(new, schema) as writer:
        while lines := [*islice(file, _BATCH_ROWS)]:
            rows = [_manifest_row(line) for line in lines]
            cells = [{name: _parquet_cell(row.get(name), kind) for name, kind in types.items()} for row in rows]
            writer.write_table(pyarrow.Table.from_pylist(cells, schema))


def _column_types(manifest: Path) -> dict[str, str]:
    """Return the type of each column, from the values in all lines of a manifest."""
    kinds_of: dict[str, set[str]] = {}
    has_more = False
    with manifest.open("rb") as file:
        for line in file:
            for name, value in _manifest_row(line).items():
                if name in _TYPES or value is None:
                    continue
                if name in kinds_of or len(kinds_of) < MAX_FIELDS:
                    kinds_of.setdefault(name, set()).add(_type_of_value(value))
                else:
                    has_more = True
    if has_more:
        logger.warning("the Parquet file has the first %s carried fields; %s has all", f"{MAX_FIELDS:,}", manifest)
    return {**_TYPES, **{name: _merge_types(kinds) for name, kinds in kinds_of.items()}}


def _type_of_value(value: object) -> str:
    """Return an Arrow type for a value, ``int53`` for an integer that a double can hold too, or ``json``."""
    if type(value) is int:
        if abs(value) <= _MAX_EXACT:
            return "int53"
        return "int64" if -(2**63) <= value < 2**63 else "json"
    return _SCALAR_TYPES.get(type(value), "json")


def _merge_types(kinds: set[str]) -> str:
    """Return the type of a column whose values have several types."""
    default = "json"
    if len(kinds) == 1:
        (default,) = kinds
    return _MERGED_TYPES.get(frozenset(kinds), default)


def _manifest_row(line: bytes) -> dict[str, Any]:
    document: Any = decode_json(line)
    return document if isinstance(document, dict) else {}


def _parquet_cell(value: object, kind: str) -> object:
    if kind == "json" and value is not None:
        return encode_json(value).decode()
    return value
