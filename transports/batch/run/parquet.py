"""The manifest as Parquet, for tools that read tables."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import LedgerError
from ...protocol.strict_json import decode_json, encode_json

__all__ = ["write_parquet"]

_ROWS = 5000
#: Types of our own columns, in Parquet's words; the others are found in the manifest.
_TYPES = {
    **dict.fromkeys(("id", "key", "target", "capability", "status", "error_code", "error", "uri", "sha256"), "string"),
    **dict.fromkeys(("attempts", "bytes"), "int64"),
    **dict.fromkeys(("ms", "started", "finished"), "double"),
    "artifacts": "json",
}
_FOUND = {bool: "bool", int: "int64", float: "double", str: "string"}


async def write_parquet(manifest: Path, path: Path) -> bool:
    """Write the lines of a manifest to ``path`` as Parquet, and return whether pyarrow is there to do it.

    A carried column has the type of its values, JSON text if they differ or are no single values. Raises
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
    new = path.with_name(f".{path.name}")
    try:
        with manifest.open("rb") as file, parquet.ParquetWriter(new, schema) as writer:
            while lines := [*islice(file, _ROWS)]:
                rows = [_document(line) for line in lines]
                cells = [{name: _cell(row.get(name), kind) for name, kind in types.items()} for row in rows]
                writer.write_table(pyarrow.Table.from_pylist(cells, schema))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _types(manifest: Path) -> dict[str, str]:
    types = dict(_TYPES)
    with manifest.open("rb") as file:
        for line in file:
            for name, value in _document(line).items():
                if name not in _TYPES and value is not None:
                    kind = _FOUND.get(type(value), "json")
                    before = types.setdefault(name, kind)
                    if {before, kind} == {"int64", "double"}:
                        types[name] = "double"
                    elif before != kind:
                        types[name] = "json"
    return types


def _document(line: bytes) -> dict[str, Any]:
    document: Any = decode_json(line)
    return document if isinstance(document, dict) else {}


def _cell(value: object, kind: str) -> object:
    return encode_json(value).decode() if kind == "json" and value is not None else value
