"""Readers of each kind of table, and their limits. Needs pyarrow."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, BytesIO
from itertools import islice
from typing import Any

import msgspec
import pyarrow
from pyarrow import csv, parquet

from ..errors import NotATable, TooLarge, first_line
from ..protocol._strict_json import MAX_JSON_DEPTH, OverLimit, has_more_levels, parser_limits
from ._ref import ArtifactRef


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a table. The content comes from an app, so the sizes that it states are not trusted."""

    #: pyarrow takes a minute and 4 GB for a header of 400,000 names, which has less than a megabyte.
    columns: int = 10_000
    #: Bytes of a file, and of a table in memory.
    bytes: int = 4 << 30
    #: Each cell, present or not, takes 8 bytes of memory.
    cells: int = (4 << 30) // 8
    #: Bytes of a line of JSON, or of a row of CSV.
    line_bytes: int = 64 << 20
    #: Rows that are converted before their memory is counted.
    rows_at_once: int = 10_000
    #: Rows of a Parquet file that are decoded before their memory is counted.
    batch_rows: int = 1_000


LIMITS = Limits()


def read(ref: ArtifactRef, kind: str) -> pyarrow.Table:
    """Read a table of a ``kind``: ``csv``, ``tsv``, ``json``, ``jsonl`` or ``parquet``."""
    if ref.size_bytes > LIMITS.bytes:
        raise _too_large(ref, f"it has {ref.size_bytes:,} bytes, more than {LIMITS.bytes:,}", LIMITS.bytes)
    with ref.open() as file:
        try:
            with parser_limits():
                return _READERS[kind](file, ref)
        except OverLimit as error:
            raise _too_large(ref, str(error), error.limit or LIMITS.bytes) from error
        except (msgspec.MsgspecError, pyarrow.ArrowException, ValueError, OSError) as error:
            # pyarrow raises OSError for a damaged Parquet file; the errors of the disk are errors of the store already.
            raise NotATable(
                f"{ref.filename} cannot be read as {kind.upper()}: {first_line(error)[:300]}; "
                "its bytes are what the app sent: read them with ref.open()",
                details={"id": ref.id, "mime_type": ref.mime_type},
            ) from error


def _too_large(ref: ArtifactRef, what: str, limit: int) -> TooLarge:
    return TooLarge(
        f"{ref.filename} is too large for a table: {what}; read it piece by piece, with ref.open()",
        details={"id": ref.id, "limit": limit},
    )


def _check_shape(ref: ArtifactRef, rows: int, columns: int) -> None:
    if columns > LIMITS.columns:
        raise _too_large(ref, f"it has more than {LIMITS.columns:,} columns", LIMITS.columns)
    if rows * max(columns, 1) > LIMITS.cells:
        raise _too_large(
            ref, f"{rows:,} rows of {columns:,} columns are more than {LIMITS.cells:,} cells", LIMITS.cells
        )


def _check_memory(ref: ArtifactRef, size: int) -> None:
    if size > LIMITS.bytes:
        raise _too_large(ref, f"its rows take more than {LIMITS.bytes:,} bytes of memory", LIMITS.bytes)


# --- CSV --------------------------------------------------------------------------------------------------------------


def _read_csv(file: BufferedReader, ref: ArtifactRef, delimiter: str = ",") -> pyarrow.Table:
    # Count the columns first: pyarrow takes long for many columns.
    header = file.readline(LIMITS.line_bytes).partition(b"\r")[0]
    _check_shape(ref, 0, header.count(delimiter.encode()) + 1)
    file.seek(0)
    # pyarrow refuses names without a line end, of an export without rows.
    has_only_names = 0 < ref.size_bytes == len(header)

    table = csv.read_csv(
        BytesIO(header + b"\n") if has_only_names else file,
        # pyarrow refuses a row that is longer than a block.
        read_options=csv.ReadOptions(block_size=LIMITS.line_bytes),
        # pyarrow allows line breaks in quotes only with this option.
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    )
    _check_memory(ref, table.nbytes)
    return table


# --- JSON -------------------------------------------------------------------------------------------------------------


def _read_json(file: BufferedReader, ref: ArtifactRef) -> pyarrow.Table:
    """Read a list of rows, a single row, or lines of JSON that were sent with the type of JSON."""
    content = file.read().removeprefix(BOM_UTF8)
    if content.lstrip()[:1] == b"[":
        # Each row stays undecoded until its turn, so that memory holds only some decoded rows.
        rows = msgspec.json.decode(content, type=list[msgspec.Raw])
        return _table_of_rows(map(memoryview, rows), ref)
    try:
        single_row = msgspec.json.decode(content, type=msgspec.Raw)
        return _table_of_rows([memoryview(single_row)], ref)
    except msgspec.DecodeError:
        file.seek(0)
        return _read_json_lines(file, ref)


def _read_json_lines(file: BufferedReader, ref: ArtifactRef) -> pyarrow.Table:
    return _table_of_rows(_nonempty_lines(file, ref), ref)


def _nonempty_lines(file: BufferedReader, ref: ArtifactRef) -> Iterator[bytes]:
    while line := file.readline(LIMITS.line_bytes + 1):
        if len(line) > LIMITS.line_bytes:
            raise _too_large(ref, f"a line has more than {LIMITS.line_bytes:,} bytes", LIMITS.line_bytes)
        # A file may be several joined files, each of which may begin with a byte order mark.
        row = line.removeprefix(BOM_UTF8)
        if row.strip():
            yield row


_ROW_DECODER = msgspec.json.Decoder(dict[str, Any])


def _decode_row(text: bytes | memoryview) -> dict[str, Any]:
    if len(text) > MAX_JSON_DEPTH and has_more_levels(bytes(text), MAX_JSON_DEPTH):
        raise ValueError(f"a row is nested more than {MAX_JSON_DEPTH} levels deep")
    return _ROW_DECODER.decode(text)


def _table_of_rows(texts: Iterable[bytes | memoryview], ref: ArtifactRef) -> pyarrow.Table:
    """Make a table of rows in JSON, some rows at a time, whose columns and memory are counted before the next."""
    texts = iter(texts)
    column_names: dict[str, None] = {}
    tables: list[pyarrow.Table] = []
    row_count = 0
    size = 0
    while rows := [_decode_row(text) for text in islice(texts, LIMITS.rows_at_once)]:
        for row in rows:
            column_names.update(dict.fromkeys(row))
        row_count += len(rows)
        _check_shape(ref, row_count, len(column_names))

        table = _table_of_dicts(rows, list(column_names))
        tables.append(table)
        size += table.nbytes
        _check_memory(ref, size)

    if not tables:
        return pyarrow.table({})
    return pyarrow.concat_tables(tables, promote_options="permissive")


def _table_of_dicts(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> pyarrow.Table:
    arrays = []
    for name in names:
        try:
            arrays.append(pyarrow.array([row.get(name) for row in rows]))
        except (pyarrow.ArrowException, OverflowError) as error:
            raise ValueError(f"field {name[:80]!r}: {first_line(error)}") from error
    return pyarrow.Table.from_arrays(arrays, names=list(names))


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _read_parquet(file: BufferedReader, ref: ArtifactRef) -> pyarrow.Table:
    """Read a Parquet file. Its metadata may be wrong, so decoded rows are counted again."""
    with parquet.ParquetFile(file) as parquet_file:
        metadata = parquet_file.metadata
        _check_shape(ref, metadata.num_rows, metadata.num_columns)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        _check_memory(ref, sum(group.total_byte_size for group in groups))

        schema = parquet_file.schema_arrow
        tables: list[pyarrow.Table] = []
        row_count = 0
        size = 0
        batches = parquet_file.iter_batches(batch_size=LIMITS.batch_rows)
        batches_at_once = LIMITS.rows_at_once // LIMITS.batch_rows
        while some_batches := list(islice(batches, batches_at_once)):
            table = pyarrow.Table.from_batches(some_batches, schema=schema).combine_chunks()
            tables.append(table)
            row_count += table.num_rows
            size += table.nbytes
            _check_shape(ref, row_count, table.num_columns)
            _check_memory(ref, size)

        if not tables:
            return schema.empty_table()
        return pyarrow.concat_tables(tables)


_READERS: Mapping[str, Callable[[BufferedReader, ArtifactRef], pyarrow.Table]] = {
    "csv": _read_csv,
    "tsv": partial(_read_csv, delimiter="\t"),
    "json": _read_json,
    "jsonl": _read_json_lines,
    "parquet": _read_parquet,
}
