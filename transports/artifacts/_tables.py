"""Rows of artifacts as Arrow tables: CSV, JSON and Parquet (docs/data.md).

The content comes from an app, so columns, cells and memory of a table have limits. Needs the extra ``data``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotATable, UsageError
from ..protocol._media import OCTET_STREAM, normalise_mime
from ._ref import ArtifactRef

if TYPE_CHECKING:
    import pyarrow

_KINDS = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/json": "json",
    "text/json": "json",
    "application/jsonl": "jsonl",
    "application/json-lines": "jsonl",
    "application/jsonlines": "jsonl",
    "application/ndjson": "jsonl",
    "application/x-jsonlines": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/parquet": "parquet",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
}
_EXTENSIONS = {"csv": "csv", "tsv": "tsv", "json": "json", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}


def is_table(ref: ArtifactRef) -> bool:
    return _kind_of_table(ref) is not None


def _kind_of_table(ref: ArtifactRef) -> str | None:
    """Return the kind of table in an artifact, such as ``csv``, by its type or name; ``None`` for anything else."""
    mime_type = normalise_mime(ref.mime_type) or OCTET_STREAM
    # These types say nothing, so the name of the file decides.
    if mime_type in (OCTET_STREAM, "text/plain"):
        return _EXTENSIONS.get(ref.filename.rpartition(".")[2].lower())
    return _KINDS.get(mime_type)


def read_table(ref: ArtifactRef) -> pyarrow.Table:
    """Return the rows of an artifact that has a local file. It blocks. Raises as :meth:`transports.Result.table`."""
    kind = _kind_of_table(ref)
    if kind is None:
        raise NotATable(
            f"{ref.filename} ({ref.mime_type}) is not CSV, JSON or Parquet; read it with ref.open()",
            details={"id": ref.id, "mime_type": ref.mime_type},
        )
    try:
        from . import _arrow  # late: it needs the extra
    except ImportError as error:
        raise UsageError(
            f"a table of {ref.filename} needs pyarrow ({error}); install it: pip install 'abp-transports[data]'"
        ) from error
    return _arrow.read(ref, kind)
