"""``result.table()``: rows of CSV, JSON and Parquet files that an app sent."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import json as rows_of_json, parquet

import transports.sync
from tests.conftest import Connect
from tests.support.limits import change_limits
from transports import ArtifactRef, MemoryTransport, Result, UsageError, artifacts, open_store
from transports.artifacts import _arrow
from transports.errors import Corrupt, NotATable, StoreError, TooLarge
from transports.testing import Call


async def put(folder: Path, content: bytes, mime_type: str, filename: str | None = None) -> ArtifactRef:
    return await open_store(folder).put_bytes(content, mime_type=mime_type, filename=filename)


def result(**artifacts: ArtifactRef) -> Result:
    return Result("data.export", None, artifacts, inline_fields=frozenset(artifacts))


def in_parquet(table: pyarrow.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


ROWS = [{"name": "Ada", "born": 1815}, {"name": "Bo, the\nsecond", "born": 1970}]
CSV = 'name,born\nAda,1815\n"Bo, the\nsecond",1970\n'
#: Made without Python's objects, for which pyarrow loads pandas, and every worker imports this module.
PARQUET = in_parquet(rows_of_json.read_json(io.BytesIO("\n".join(map(json.dumps, ROWS)).encode())))


@pytest.mark.parametrize(
    ("content", "mime_type", "filename"),
    [
        (CSV.encode(), "text/csv", None),
        (CSV.encode(), "Text/CSV; charset=utf-8", None),
        (b"\xef\xbb\xbf" + CSV.encode(), "text/csv", "with a mark.csv"),
        (CSV.replace("\n", "\r\n").replace("the\r\n", "the\n").encode(), "text/csv", None),
        (CSV.encode(), "application/octet-stream", "report.CSV"),
        (CSV.encode(), "text/plain", "report.csv"),
        (
            CSV.replace(",the", " the").replace(",", "\t").replace("Bo\t", "Bo,").encode(),
            "text/tab-separated-values",
            None,
        ),
        (json.dumps(ROWS).encode(), "application/json", None),
        ("\n\n".join(map(json.dumps, ROWS)).encode(), "application/json", None),
        ("\n".join(map(json.dumps, ROWS)).encode(), "application/x-ndjson", None),
        ("\r\n".join(map(json.dumps, ROWS)).encode() + b"\r\n", "application/octet-stream", "rows.jsonl"),
        (b"\xef\xbb\xbf" + json.dumps(ROWS).encode(), "application/json", None),
        (b"".join(b"\xef\xbb\xbf" + json.dumps(row).encode() + b"\n" for row in ROWS), "application/jsonl", None),
        (PARQUET, "application/vnd.apache.parquet", None),
        (PARQUET, "application/octet-stream", "rows.parquet"),
    ],
)
async def test_table_reads_rows_of_each_format(
    tmp_path: Path, content: bytes, mime_type: str, filename: str | None
) -> None:
    ref = await put(tmp_path, content, mime_type, filename)
    assert result(file=ref).table().to_pylist() == ROWS


async def test_csv_cells_may_be_large_and_have_line_breaks_at_any_length(tmp_path: Path) -> None:
    cell = "x" * (2 << 20)  # larger than a block of pyarrow
    ref = await put(tmp_path, f"a,b\n1,2\n{cell},3\n".encode(), "text/csv")
    assert result(file=ref).table()["a"].to_pylist() == ["1", cell]
    content = "a,b\n" + '1,"two\nlines"\n' * 200_000  # read in pieces of a megabyte
    table = result(file=await put(tmp_path, content.encode(), "text/csv")).table()
    assert table["b"].unique().to_pylist() == ["two\nlines"] and table.num_rows == 200_000


@pytest.mark.parametrize("end", ["", "\n"])
async def test_csv_without_rows_has_its_columns(tmp_path: Path, end: str) -> None:
    ref = await put(tmp_path, f"a,b{end}".encode(), "text/csv")
    table = result(file=ref).table()
    assert (table.column_names, table.num_rows) == (["a", "b"], 0)


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        ([{"a": 1}, {"a": 2.5}], [1.0, 2.5]),
        ([{"b": 1}, {"a": 2}], [None, 2]),
        ([{"a": None}] * 12_000 + [{"a": "late"}], [None] * 12_000 + ["late"]),  # several steps of reading
        ([{"a": 1}] * 12_000 + [{"a": 1.5, "b": 0}], [1.0] * 12_000 + [1.5]),
        ([{"a": [1, 2]}, {"a": []}], [[1, 2], []]),
        ([{"a": {"x": 1}}], [{"x": 1}]),
    ],
)
@pytest.mark.parametrize("lines", [False, True])
async def test_json_rows_with_differing_fields_become_table(
    tmp_path: Path, rows: list[dict[str, object]], column: list[object], lines: bool
) -> None:
    content = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    ref = await put(tmp_path, content.encode(), "application/x-ndjson" if lines else "application/json")
    assert result(file=ref).table()["a"].to_pylist() == column


@pytest.mark.parametrize(
    ("content", "mime_type", "reason"),
    [
        (b"%PDF-1.4 not a table", "application/pdf", "is not CSV, JSON or Parquet"),
        (b"hello", "text/plain", "is not CSV, JSON or Parquet"),
        (b"", "text/csv", "as CSV: Empty CSV file"),
        (b"a,b\n1,2\n3\n", "text/csv", "as CSV: .*Expected 2 columns, got 1"),
        (b"[1, 2]", "application/json", "as JSON: Expected `object`"),
        (b'"text"', "application/json", "as JSON: Expected `object`"),
        (b'[{"a": 1}', "application/json", "as JSON: "),
        (b'[{"a": 1}, {"a": "x"}]', "application/json", "as JSON: field 'a'"),
        (
            json.dumps([{"a": 1}] * 20_000 + [{"a": "x"}]).encode(),
            "application/json",
            "as JSON: .*Field a has incompatible types",
        ),
        (b'[{"a": 99999999999999999999}]', "application/json", "as JSON: field 'a'"),
        (b"[" * 100_000, "application/json", "as JSON: it is nested too deeply"),
        (b'{"a":' * 100_000, "application/x-ndjson", "as JSONL: "),
        (b'[{"a":' + b"[" * 500 + b"]" * 500 + b"}]", "application/json", "as JSON: .*nested more than 500"),
        (b'{"a": 1}\nnot JSON\n', "application/x-ndjson", "as JSONL: "),
        (b"PAR1 and no more", "application/vnd.apache.parquet", "as PARQUET: "),
        (PARQUET[:-20] + bytes(20), "application/vnd.apache.parquet", "as PARQUET: "),
        (PARQUET[:4] + bytes(60) + PARQUET[64:], "application/vnd.apache.parquet", "as PARQUET: "),
    ],
)
async def test_non_table_file_raises_not_a_table_and_stays_readable(
    tmp_path: Path, content: bytes, mime_type: str, reason: str
) -> None:
    ref = await put(tmp_path, content, mime_type)
    with pytest.raises(NotATable, match=reason) as caught:
        result(file=ref).table()
    assert caught.value.details == {"id": ref.id, "mime_type": ref.mime_type} and "ref.open()" in caught.value.message
    with ref.open() as file:
        assert file.read() == content


async def test_table_picks_only_table_or_named_file(tmp_path: Path) -> None:
    csv, pdf = await put(tmp_path, b"a\n1\n", "text/csv"), await put(tmp_path, b"%PDF-1.4", "application/pdf")
    other = await put(tmp_path, b'[{"b": 2}]', "application/json", "other.json")
    assert result(report=pdf, rows=csv).table().column_names == ["a"]
    both = result(report=pdf, rows=csv, other=other)
    assert both.table("other").column_names == ["b"]
    with pytest.raises(UsageError, match="there are 3 artifacts; name one by its place"):
        both.table()
    with pytest.raises(UsageError, match="no artifact at 'nowhere'"):
        both.table("nowhere")
    with pytest.raises(NotATable):
        both.table("report")


async def rows(params: Mapping[str, object], call: Call) -> object:
    return [{"month": "Jan", "sold": 120}, {"month": "Feb", "sold": 150}]


async def test_answer_becomes_table_in_async_and_sync_api(app_of: Connect, tmp_path: Path) -> None:
    async with app_of({"rows": rows}, store=tmp_path / "a") as app:
        assert (await app.call("rows")).table()["sold"].to_pylist() == [120, 150]
    transport = MemoryTransport({"rows": rows})
    with transports.sync.connect("memory:", transport=transport, store=tmp_path / "b") as blocking:
        assert blocking.call("rows").table()["sold"].to_pylist() == [120, 150]


async def test_missing_pyarrow_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await put(tmp_path, b"a\n1\n", "text/csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "transports.artifacts._arrow")
    monkeypatch.delattr(artifacts, "_arrow")
    with pytest.raises(UsageError, match=r"pip install 'abp-transports\[data\]'"):
        result(file=ref).table()


async def test_store_without_files_error_says_how_to_read(tmp_path: Path) -> None:
    ref = await open_store("memory:").put_bytes(b"a\n1\n", mime_type="text/csv")
    with pytest.raises(UsageError, match="has no file on this machine"):
        result(file=ref).table()


async def test_modified_file_raises_instead_of_returning_rows(tmp_path: Path) -> None:
    ref = await put(tmp_path, b"a\n1\n", "text/csv")
    assert ref.path is not None
    ref.path.write_bytes(b"a\n2\n")
    with pytest.raises(Corrupt):
        result(file=ref).table()
    ref.path.unlink()
    with pytest.raises(StoreError):
        result(file=ref).table()


# --- limits -----------------------------------------------------------------------------------------------------------


def wide(columns: int) -> dict[str, bytes]:
    names = [f"c{number}" for number in range(columns)]
    row = dict.fromkeys(names, 1)
    return {
        "text/csv": (",".join(names) + "\n" + ",".join("1" * columns) + "\n").encode(),
        "application/json": json.dumps([row]).encode(),
        "application/x-ndjson": "\n".join(json.dumps({name: 1}) for name in names).encode(),
        "application/vnd.apache.parquet": in_parquet(pyarrow.Table.from_pylist([row])),
    }


@pytest.mark.parametrize(
    "mime_type", ["text/csv", "application/json", "application/x-ndjson", "application/vnd.apache.parquet"]
)
async def test_table_over_column_limit_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mime_type: str
) -> None:
    change_limits(monkeypatch, _arrow, columns=100)
    assert result(file=await put(tmp_path, wide(100)[mime_type], mime_type)).table().num_columns == 100
    with pytest.raises(TooLarge, match="more than 100 columns") as caught:
        result(file=await put(tmp_path, wide(101)[mime_type], mime_type)).table()
    assert caught.value.details["limit"] == 100


async def test_csv_header_over_10000_columns_is_rejected_unparsed(tmp_path: Path) -> None:
    assert _arrow.LIMITS.columns == 10_000
    ref = await put(tmp_path, b"a," * 400_000 + b"a\n", "text/csv")  # a minute and 4 GB in pyarrow
    with pytest.raises(TooLarge):
        result(file=ref).table()


@pytest.mark.parametrize("mime_type", ["application/json", "application/x-ndjson", "application/vnd.apache.parquet"])
async def test_table_over_cell_limit_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mime_type: str
) -> None:
    change_limits(monkeypatch, _arrow, cells=1000)

    def content(count: int) -> bytes:
        """Twice as many rows of JSON, each with one field of two."""
        if "parquet" in mime_type:
            return in_parquet(pyarrow.table({"a": [1, 2] * count, "b": [1, 2] * count}))
        lines = ['{"a": 1}', '{"b": 1}'] * count
        return ("\n".join(lines) if "x-ndjson" in mime_type else f"[{','.join(lines)}]").encode()

    assert result(file=await put(tmp_path, content(250), mime_type)).table().num_rows == 500
    with pytest.raises(TooLarge, match="more than 1,000 cells"):
        result(file=await put(tmp_path, content(251), mime_type)).table()


async def test_table_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (_arrow.LIMITS.bytes, _arrow.LIMITS.cells) == (1 << 32, 1 << 29)
    kind = "application/vnd.apache.parquet"
    repeated = in_parquet(pyarrow.table({"a": [7] * 1000}))  # some hundred bytes, whose footer promises as much
    assert len(repeated) < 1_000
    ref = await put(tmp_path, repeated, kind)
    size = result(file=ref).table().nbytes
    change_limits(monkeypatch, _arrow, bytes=size)
    assert result(file=ref).table().nbytes == size
    change_limits(monkeypatch, _arrow, bytes=size - 1)
    with pytest.raises(TooLarge, match=r"rows take more than [0-9,]+ bytes of memory"):
        result(file=ref).table()
    for mime_type, content in (("text/csv", b"a\n" + b"1\n" * 1000), ("application/json", b'[{"a": 1}]' + b" " * size)):
        change_limits(monkeypatch, _arrow, bytes=len(content) - 1)
        with pytest.raises(TooLarge, match=f"it has {len(content):,} bytes"):
            result(file=await put(tmp_path, content, mime_type)).table()


async def test_ndjson_line_over_byte_limit_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_limits(monkeypatch, _arrow, line_bytes=20)
    line = b'{"a": "012345678"}'
    within = await put(tmp_path, line + b" \n", "application/x-ndjson")
    assert len(line) == 18 and result(file=within).table().num_rows == 1
    with pytest.raises(TooLarge, match="a line has more than 20 bytes"):
        result(file=await put(tmp_path, line + b"  \n", "application/x-ndjson")).table()


async def test_parquet_bomb_is_aborted_with_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary of one text and a million rows of it: a hundred kilobytes that would take a gigabyte."""
    text = pyarrow.array(["x" * 1000])
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1_000_000, pyarrow.int32()), text)
    content = in_parquet(pyarrow.table({"a": column}).cast(pyarrow.schema({"a": column.type})), store_schema=False)
    assert len(content) < 200_000
    change_limits(monkeypatch, _arrow, bytes=50_000_000)
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(TooLarge):
        result(file=await put(tmp_path, content, "application/vnd.apache.parquet")).table()
    assert pyarrow.default_memory_pool().max_memory() < max(before, 200_000_000)
