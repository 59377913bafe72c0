"""Inputs of a run: what is read from each format, what is refused and where, and that length costs no memory."""

from __future__ import annotations

import io
import math
import os
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.processor import peak_memory
from transports.batch import _files as _reading
from transports.batch._files import (
    fingerprint,
    input_notes,
    read_jobs,
    spool_jobs,
    spool_stream,
    write_parquet,
)
from transports.batch._jobs import Job, job_document, parse_job
from transports.batch.ledger._schema import Added
from transports.errors import LedgerError, UsageError
from transports.protocol._strict_json import encode_json


def read(path: Path, target: str | None = "memory:") -> list[Job]:
    return [job for batch in read_jobs(path, target) for job in batch]


def test_same_jobs_are_read_from_lines_csv_and_parquet(tmp_path: Path) -> None:
    image = tmp_path / "a.png"
    image.write_bytes(b"png")
    want = [
        Job("do", {"title": "T", "n": 1}, "ws://a/", "1", {"image": image}, 2.5, True, {"team": "blue"}),
        Job("do", {"title": "[U\r\nV"}, "memory:", carried={"team": "red"}),
    ]
    lines, table, parquet = tmp_path / "jobs.jsonl", tmp_path / "jobs.csv", tmp_path / "jobs.parquet"
    spool_jobs(want, lines)
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes().replace(b"\n", b"\n\r\n"))
    table.write_text(
        "id,target,capability,params,params.title,files.image,timeout,idempotent,team\r\n"
        f'1,ws://a/,do,"{{""n"": 1}}",T,{image},2.5,TRUE,blue\r\n'
        ',,do,,"[U\r\nV",,,,red\r\n',
        encoding="utf-8-sig",
    )
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    pq.write_table(pyarrow.Table.from_pylist([job_document(job) for job in want]), parquet)
    for path in (lines, table, parquet):
        jobs = read(path)
        assert [(job, job.key) for job in jobs] == [(job, job.key) for job in want], path
    assert [parse_job(job_document(job)) for job in want] == want
    with pytest.raises(UsageError, match=r"line 1: target is missing; .* give --target"):
        read(spool_jobs([Job("do")], lines), None)


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("a.jsonl", '{"capability": "do"}\n\n{"capability"}', r"line 3 is not JSON \("),
        ("a.jsonl", "[]", "line 1 is not a JSON object such as"),
        ("a.jsonl", '{"params": {}}', "line 1: capability is missing; each job needs one"),
        ("a.jsonl", '{"capability": 3}', "line 1: capability must be text"),
        ("a.jsonl", '{"capability": "do", "params": []}', "line 1: params must be a JSON object"),
        (
            "a.jsonl",
            '{"capability": "do", "params": "Hi"}',
            'line 1: params is a text; write an object such as {"html": "Hi"}',
        ),
        ("a.jsonl", '{"capability": "do", "timeout": -1}', "line 1: timeout must be a positive number of seconds"),
        ("a.jsonl", '{"capability": "do", "timeout": true}', "line 1: timeout must be"),
        ("a.jsonl", '{"capability": "do", "id": true}', "line 1: id must be text"),
        ("a.jsonl", f'{{"capability": "do", "timeout": {"9" * 400}}}', "line 1: timeout must be"),
        ("a.jsonl", '{"capability": "do", "idempotent": "maybe"}', "line 1: idempotent must be true or false"),
        ("a.jsonl", '{"capability": "do", "files": {"a": 3}}', "line 1: files.a must be text"),
        ("a.jsonl", '{"capability": "do", "files": {"a": "gone"}}', r"line 1: files\.a: .*gone cannot be read"),
        ("a.jsonl", '{"capability": "do", "files": {"a": "/dev/zero"}}', r"line 1: files\.a: .*not a regular file"),
        ("a.jsonl", '{"capability": "do", "files": {"a": "x\\u0000"}}', r"line 1: files\.a: .*cannot be read"),
        ("a.csv", f"capability,params{'.a' * 3000}\ndo,1", "line 2: params are nested deeper than 64 levels"),
        ("a.jsonl", "\n\n", "has no jobs; each line is one"),
        ("a.csv", "capability,params\ndo,{", r"line 2: params is not JSON"),
        ("a.csv", "capability\ndo,too,many", "line 2 has more cells than the first line has names"),
        ("a.csv", 'capability\n"do', r"line 2 cannot be read"),
        ("a.parquet", "no table", "cannot be read after row 0"),
        ("a.tsv", "id,capability\n1,do", 'the only column is "id,capability"; one must be .* a .tsv by tabs'),
        ("a.csv", "capability,n,n\ndo,1,2", '2 columns are called "n"; give each a name of its own'),
        ("a.csv", "id,n\n1,do", 'the columns are "id", "n"; one must be "capability"'),
        ("a.csv", f"{'x' * 999},{',' * 99}\n1,do", f'the columns are "{"x" * 60}", "", .* and 81 more; one must be'),
    ],
)
def test_invalid_job_is_rejected_with_its_line(tmp_path: Path, name: str, text: str, refusal: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=refusal) as refused:
        read(path)
    assert name in refused.value.message


def test_parquet_cells_become_json_values_or_are_rejected(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    path, uuid = tmp_path / "a.parquet", UUID(int=1)
    table = {
        "capability": ["do"] * 2,
        "params": [{"page": {"width": 1, "height": None}}, {"page": {"width": None, "height": 2}}],
        "params.share": [math.nan, 0.5],
        "id": pyarrow.array([uuid.bytes] * 2, pyarrow.uuid()),
    }
    pq.write_table(pyarrow.table(table), path)
    assert read(path) == [
        Job("do", {"page": {"width": 1}}, "memory:", str(uuid)),
        Job("do", {"page": {"height": 2}, "share": 0.5}, "memory:", str(uuid)),
    ]
    day = datetime(2024, 1, 31, 12, 30)
    cells = {"params.days": [day.date(), day], "params.at": day.time(), "id": 7}
    pq.write_table(pyarrow.Table.from_pylist([{"capability": "do", **cells}]), path)
    assert read(path) == [Job("do", {"days": ["2024-01-31", "2024-01-31"], "at": "12:30:00"}, "memory:", "7")]
    # Without the refusal, both would be one job with null.
    pq.write_table(pyarrow.table({"capability": ["do"] * 2, "params.n": [math.inf, -math.inf]}), path)
    with pytest.raises(UsageError, match=r"(?s)row 1: column params\.n has the number inf.*row 2: .* -inf"):
        read(path)
    # Once, not for each row.
    pq.write_table(pyarrow.table({"capability": ["do"] * 2, "picture": [b"a", b"b"]}), path)
    with pytest.raises(UsageError, match=r"^column picture has bytes values"):
        read(path)
    # Python has no value for them.
    after_9999 = pyarrow.array([2**62], pyarrow.timestamp("us"))
    no_utf8 = pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"\xff"]).buffers())
    for column in (after_9999, no_utf8):
        pq.write_table(pyarrow.table({"capability": ["do"], "x": column}), path)
        with pytest.raises(UsageError, match="cannot be read after row 0"):
            read(path)


def test_csv_cell_may_hold_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    html = "x" * (1 << 20)
    path.write_text(f"capability,params.html,,\ndo,{html},,\n")
    assert read(path)[0].params == {"html": html}


def test_first_20_invalid_job_lines_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"capability": "do"}\nno job\n{}\n[]\n' + '{"params": {}}\n' * 1000)
    with pytest.raises(UsageError) as refused:
        read(path)
    first, *lines, last = refused.value.message.splitlines()
    assert first == f"{path} has 1003 invalid lines; nothing was run: correct them, and give the same command again"
    assert lines[0].startswith("line 2 is not JSON (") and lines[1].startswith("line 3: capability is missing")
    assert lines[2].startswith("line 4 is not a JSON object") and lines[19].startswith("line 21: capability is missing")
    assert len(lines) == 20 and last == "and 983 more"
    table = tmp_path / "a.csv"
    table.write_text("capability,timeout\ndo,x\ndo,2\ndo,1,1\n" + "do,never\n" * 2)
    with pytest.raises(UsageError, match=r"4 invalid lines") as refused:
        read(table)
    assert [line.split(":")[0].split(" has")[0] for line in refused.value.message.splitlines()[1:]] == [
        "line 2",
        "line 4",
        "line 5",
        "line 6",
    ]


@pytest.mark.parametrize("read_input", [read, lambda path: fingerprint(path, None)], ids=["jobs", "fingerprint"])
def test_input_must_be_a_regular_file(tmp_path: Path, read_input: Callable[[Path], object]) -> None:
    """Reading a pipe would never end; the device comes first, as that does."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (Path("/dev/null"), tmp_path, tmp_path / "pipe.jsonl"):
        with pytest.raises(UsageError, match="is not a regular file; name one, or - to read"):
            read_input(path)
    with pytest.raises(UsageError, match="gone cannot be read"):
        read_input(tmp_path / "gone")


def test_input_fingerprint_depends_on_content_and_target(tmp_path: Path) -> None:
    one = spool_stream(io.BytesIO(b'{"capability": "do"}\n'), tmp_path / "one")
    same = spool_stream(io.BytesIO(b'{"capability": "do"}\n'), tmp_path / "same")
    assert fingerprint(one, "a") == fingerprint(same, "a") != fingerprint(one, "b")


@pytest.mark.load
def test_long_input_is_read_with_little_memory(tmp_path: Path) -> None:
    """2 MB of memory for 3,000 lines of 200 bytes; a million take as much."""
    path = tmp_path / "jobs.jsonl"
    with path.open("w") as file:
        for n in range(3_000):
            file.write(f'{{"capability": "do", "params": {{"n": {n}, "text": "{"x" * 150}"}}}}\n')
    tracemalloc.start()
    try:
        count = sum(len(batch) for batch in read_jobs(path, "memory:"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 3_000 and peak < 2 << 20


@pytest.mark.parametrize("name", ["jobs.jsonl", "jobs.csv"])
def test_large_jobs_make_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(_reading, "LIMITS", _reading.Limits(batch_bytes=10_000))
    sizes = [6000, 6000, 10, 10, 20_000, 10]
    if name == "jobs.csv":
        lines = ["capability,params.text", *(f"do,{'x' * size}" for size in sizes)]
    else:
        lines = [f'{{"capability": "do", "params": {{"text": "{"x" * size}"}}}}' for size in sizes]
    (tmp_path / name).write_text("\n".join(lines))
    assert [len(batch) for batch in read_jobs(tmp_path / name, "memory:")] == [2, 3, 1]


def test_unknown_job_fields_are_noted_and_missing_input_is_tolerated(
    tmp_path: Path,
) -> None:
    lines, table = tmp_path / "jobs.jsonl", tmp_path / "jobs.csv"
    lines.write_text('{"capability": "do", "html": "<p>", "id": "a"}\n{"capability": "do", "html": "<b>"}\n')
    table.write_text("capability,html\ndo,<p>\n")
    hint = "html is carried along, not a parameter; name it params.html if it is one"
    for path in (lines, table):
        assert input_notes(Added(4, 3, 1), path) == [
            "1 of 4 lines is the same job as an earlier line; each job runs once",
            hint,
        ]
    lines.write_text('{"capability": "do", "params": {"html": ""}, "team": "a"}\n{"capability": "do", "team": "b"}\n')
    assert input_notes(Added(2, 2), lines) == []
    table.write_bytes(b"capability,html\n\xff,\n")  # changed since its jobs were added
    lines.unlink()
    for path in (lines, table):
        assert input_notes(Added(3, 1, 2), path) == [
            "2 of 3 lines are the same jobs as earlier lines; each job runs once"
        ]


@pytest.mark.slow
def test_line_with_too_many_fields_is_rejected(tmp_path: Path) -> None:
    """Its size and the time that it takes are bounded, and the other lines are read."""
    path = tmp_path / "a.jsonl"
    fields = ",".join(f'"f{n}":{n}' for n in range(400_000))
    params = ",".join(f'"params.p{n}":{n}' for n in range(500_000))
    path.write_text(f'{{"capability":"do",{fields}}}\n{{"capability":"do",{params}}}\n{{"capability":"do"}}\n')
    with peak_memory() as grown, pytest.raises(UsageError) as refused:
        read(path)
    assert "line 1: it has more than 1,000 fields" in str(refused.value)
    assert "line 2 has more than 1,000,000 values and names" in str(refused.value)
    assert "line 3" not in str(refused.value)
    assert grown() < 400 << 20


def test_job_with_over_1000_fields_is_rejected(tmp_path: Path) -> None:
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.csv"
    names = ["capability", *(f"f{n}" for n in range(999))]
    for more, fits in (([], True), (["beyond"], False)):
        table.write_text(",".join([*names, *more]) + "\n" + ",".join(["do"] * len([*names, *more])))
        lines.write_bytes(encode_json(dict.fromkeys([*names, *more], "do")) + b"\n")
        for path in (table, lines):
            if fits:
                assert len(read(path)[0].carried) == 999
            else:
                with pytest.raises(UsageError, match="it has more than 1,000 fields"):
                    read(path)
    lines.write_bytes(encode_json({"capability": "do", "params": {f"p{n}": n for n in range(5000)}}))
    assert len(read(lines)[0].params) == 5000


@pytest.mark.load
async def test_parquet_manifest_keeps_first_1000_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    manifest, path = tmp_path / "manifest.jsonl", tmp_path / "manifest.parquet"
    lines = [{"id": "a"} | {f"f{n}": n for n in range(first, first + 100)} for first in range(0, 1200, 100)]
    manifest.write_bytes(b"".join(encode_json(line) + b"\n" for line in lines))
    assert await write_parquet(manifest, path)
    names = parquet.read_schema(path).names
    assert "f999" in names and "f1000" not in names
    assert "the first 1,000 carried fields" in caplog.text
    with pytest.raises(LedgerError, match=r"cannot be written .*`abp batch export` writes it again"):
        await write_parquet(manifest, tmp_path / "gone" / "manifest.parquet")
