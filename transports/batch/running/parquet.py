"""The manifest as Parquet, for tools that read tables."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from pathlib import Path
from typing import Any

from ...artifacts.replacing import replacing
from ...errors import LedgerError
from ...protocol.strict_json import decode_json, encode_json
from ..job_format import MAX_FIELDS

__all__ = ["write_parquet"]

logger = logging.getLogger("transports")

_ROWS = 5000
#: Types of our own columns, in Parquet's words; the others are found in the manifest.
_TYPES = {
    **dict.fromkeys(("id", "key", "target", "capability", "status", "error_code", "error", "uri", "sha256"), "string"),
    **dict.fromkeys(("attempts", "size_bytes"), "int64"),
    **dict.fromkeys(("duration_ms", "started", "finished"), "double"),
    "artifacts": "json",
}
_FOUND = {bool: "bool", float: "double", str: "string"}
#: Integers up to this are exact as a double.
_EXACT = 2**53
#: What a column of several kinds of numbers is; one of other kinds is JSON text.
_MERGED = {
    frozenset({"int53"}): "int64",
    frozenset({"int53", "int64"}): "int64",
    frozenset({"int53", "double"}): "double",
}


async def write_parquet(manifest: Path, path: Path) -> bool:
    """Write the lines of a manifest to ``path`` as Parquet, and return whether pyarrow is there to do it.

    A carried column has the type of its values, JSON text if they differ, are no single values or do not fit. Of more
    than 1,000 of them the first are written, with a warning; the manifest has all. Raises
    :class:`~transports.errors.LedgerError`."""
    try:
        import pyarrow
    except ImportError:
        return False
    try:
        await asyncio.to_thread(_write, manifest, path)
    except (OSError, pyarrow.ArrowException) as error:
        raise LedgerError(f"{path} cannot be written ({error}); `abp batch export` writes it again") from error
    return True


def _write(manifest: Path, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    types = _types(manifest)
    schema = pyarrow.schema([(name, "string" if kind == "json" else kind) for name, kind in types.items()])
    with replacing(path) as new, manifest.open("rb") as file, parquet.ParquetWriter(new, schema) as writer:
        while lines := [*islice(file, _ROWS)]:
            rows = [_document(line) for line in lines]
            cells = [{name: _cell(row.get(name), kind) for name, kind in types.items()} for row in rows]
            writer.write_table(pyarrow.Table.from_pylist(cells, schema))


def _types(manifest: Path) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    beyond = False
    with manifest.open("rb") as file:
        for line in file:
            for name, value in _document(line).items():
                if name in _TYPES or value is None:
                    continue
                if name in found or len(found) < MAX_FIELDS:
                    found.setdefault(name, set()).add(_kind(value))
                else:
                    beyond = True
    if beyond:
        logger.warning("the Parquet file has the first %s carried fields; %s has all", f"{MAX_FIELDS:,}", manifest)
    return {**_TYPES, **{name: _merged(kinds) for name, kinds in found.items()}}


def _kind(value: object) -> str:
    if type(value) is int:
        return "int53" if abs(value) <= _EXACT else "int64" if -(2**63) <= value < 2**63 else "json"
    return _FOUND.get(type(value), "json")


def _merged(kinds: set[str]) -> str:
    return _MERGED.get(frozenset(kinds)) or (next(iter(kinds)) if len(kinds) == 1 else "json")


def _document(line: bytes) -> dict[str, Any]:
    document: Any = decode_json(line)
    return document if isinstance(document, dict) else {}


def _cell(value: object, kind: str) -> object:
    return encode_json(value).decode() if kind == "json" and value is not None else value
