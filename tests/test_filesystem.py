"""``artifact://``: the artifacts of a store, through fsspec."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest

import transports.sync
from tests.support.slow import slow_but
from transports import ArtifactStore, LocalStore, Scope, UsageError, open_store
from transports.artifacts._ref import age_key
from transports.artifacts.objects._store import ObjectStore
from transports.errors import Corrupt
from transports.filesystem import ArtifactFileSystem
from transports.testing.plugin import serve_fixture_app

ROOT = Path(__file__).parents[1]
MB = 1 << 20
CSV = b"month,sold\nJan,120\nFeb,150\n"


@pytest.fixture(params=slow_but(["local", "memory", "bucket"], "local", "bucket"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """A store with files, one without, and one elsewhere."""
    if request.param == "bucket":
        return open_store(request.getfixturevalue("memory_bucket"))
    return open_store(tmp_path / "out" if request.param == "local" else "memory:")


async def test_fsspec_reads_lists_and_describes_files_of_any_store(store: ArtifactStore) -> None:
    content = bytes(range(256)) * (5 * MB // 512)
    first = await store.put_bytes(content, filename="data.bin", namespace="export.raw")
    second = await store.put_bytes(CSV, mime_type="text/csv", filename="sales.csv")

    def look() -> None:
        files = fsspec.filesystem("artifact", store=store)
        assert isinstance(fsspec.filesystem("artifact"), ArtifactFileSystem)  # found by its entry point
        assert files.ls("", detail=False) == [one.id for one in sorted((first, second), key=age_key)]
        assert files.glob("*") == files.find("") == sorted((first.id, second.id))
        assert files.ls(second.uri) == [files.info(second.id)]
        about = {"name": second.id, "size": len(CSV), "type": "file", "filename": "sales.csv", "mime_type": "text/csv"}
        assert files.info(second.uri) == {**about, "sha256": second.sha256, "created": second.source["created"]}
        assert (
            files.isdir("")
            and files.isfile(first.id)
            and files.exists(first.uri)
            and files.size(first.id) == len(content)
        )
        assert files.ukey(first.id) == first.sha256 and files.created(first.id) == files.modified(first.id)
        assert abs(files.created(first.id) - datetime.now(UTC)) < timedelta(minutes=5)
        assert files.cat_file(first.uri) == content and files.cat_file(first.id, 5, 9) == content[5:9]
        assert files.cat_file(first.id, -3) == content[-3:] and files.cat_file(first.id, 2, -2) == content[2:-2]
        assert files.cat_ranges([first.uri, first.uri], [-4, 9], [None, 5]) == [content[-4:], b""]
        with files.open(first.uri) as file:
            assert file.seek(MB - 3) == MB - 3 and file.read(9) == content[MB - 3 : MB + 6]
            assert file.seek(-4, io.SEEK_END) and file.read() == content[-4:]
        with fsspec.open(second.uri, "rt", store=store) as text:
            assert text.readlines() == ["month,sold\n", "Jan,120\n", "Feb,150\n"]

    await asyncio.to_thread(look)
    look()  # also in the thread of an event loop, which waits meanwhile


async def test_missing_artifact_raises_file_not_found(store: ArtifactStore) -> None:
    files = fsspec.filesystem("artifact", store=store)
    for work in (files.info, files.open, files.ls, files.cat_file):
        with pytest.raises(FileNotFoundError, match="no artifact 'nothing_000000000000'"):
            work("artifact://nothing_000000000000")
    assert not files.exists("artifact://../../etc/passwd") and files.ls("") == []


async def test_artifact_filesystem_is_read_only(store: ArtifactStore, tmp_path: Path) -> None:
    ref = await store.put_bytes(CSV)
    files = fsspec.filesystem("artifact", store=store)
    (tmp_path / "new").write_bytes(b"new")
    attempts: list[Callable[[], object]] = [
        lambda: files.open(ref.id, "wb"),
        lambda: files.open("new", "xb"),
        lambda: files.open(ref.id, "ab"),
        lambda: files.put_file(str(tmp_path / "new"), "new"),
        lambda: files.pipe_file("new", b"new"),
        lambda: files.cp_file(ref.id, "new"),
        lambda: files.rm(ref.id),
        lambda: files.mv(ref.id, "new"),
        lambda: files.touch("new"),
    ]
    for attempt in attempts:
        with pytest.raises((NotImplementedError, io.UnsupportedOperation)):
            attempt()
    assert [one.id for one in await store.list()] == [ref.id] and await store.get(ref) == CSV


async def test_scoped_filesystem_shows_only_its_artifacts(store: ArtifactStore) -> None:
    mine, theirs = store.scoped(Scope(session="mine")), store.scoped(Scope(session="theirs"))
    ref, other = await mine.put_bytes(CSV), await theirs.put_bytes(b"secret")
    for view, own, foreign in ((mine, ref, other), (theirs, other, ref)):
        files = fsspec.filesystem("artifact", store=view)
        assert files.ls("", detail=False) == [own.id] and files.cat_file(own.id)
        with pytest.raises(FileNotFoundError):
            files.open(foreign.uri)


async def test_filesystem_accepts_store_url_object_or_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    ref = await open_store(folder).put_bytes(CSV)
    for given in (str(folder), folder, folder.as_uri(), transports.sync.open_store(folder)):
        assert fsspec.filesystem("artifact", store=given).cat_file(ref.id) == CSV
    for no_store in (7, object(), "ftp://host/"):
        with pytest.raises(UsageError):
            fsspec.filesystem("artifact", store=no_store)
    monkeypatch.delenv("ABP_STORE", raising=False)
    monkeypatch.setenv("ABP_OUTPUT_DIR", str(folder))
    assert fsspec.filesystem("artifact").cat_file(ref.id) == CSV
    monkeypatch.setenv("ABP_STORE", (tmp_path / "empty").as_uri())
    assert fsspec.filesystem("artifact").ls("") == []
    monkeypatch.setenv("ABP_STORE", folder.as_uri())
    monkeypatch.setenv("ABP_AUDIT_LOG", str(tmp_path / "audit.jsonl"))  # other settings of the command count, too
    with fsspec.open(ref.uri) as file:
        assert file.read() == CSV
    assert json.loads((tmp_path / "audit.jsonl").read_text())["action"] == "read"


async def test_changed_content_raises_by_changed_chunk(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = await store.put_bytes(bytes(3 * MB))
    assert ref.path is not None
    files = fsspec.filesystem("artifact", store=store)
    with files.open(ref.uri) as file, ref.path.open("r+b") as changed:
        changed.seek(2 * MB)
        changed.write(b"changed")
        changed.flush()
        assert file.read(MB) == bytes(MB)
        file.seek(2 * MB + 9)
        with pytest.raises(Corrupt):
            file.read(1)
    with pytest.raises(Corrupt, match="quarantine"):  # as of every way into the store
        files.open(ref.uri)


async def test_corrupt_bucket_content_raises_before_first_byte(memory_bucket: str) -> None:
    store = open_store(memory_bucket)
    assert isinstance(store, ObjectStore)
    ref = await store.put_bytes(b"a" * 100)
    bucket = store._bucket
    (content,) = [one async for one in bucket.list("content/")]
    await bucket.put(content.key, b"b" * 100, "text/plain")
    with pytest.raises(Corrupt):
        fsspec.filesystem("artifact", store=store).open(ref.uri)


async def test_open_reader_finishes_deleted_artifact(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ref = await store.put_bytes(bytes(2 * MB))
    with fsspec.open(ref.uri, store=store) as file:
        await store.delete(ref.id)
        assert len(file.read()) == 2 * MB


# --- the programs -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_parquet_artifact_opens_in_duckdb_pandas_polars_and_pyarrow(tmp_path: Path) -> None:
    # They are imported late: each takes a part of a second, in every worker that collects tests.
    import duckdb
    import pandas
    import polars
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"month": ["Jan", "Feb"], "sold": [120, 150]})
    file = io.BytesIO()
    parquet.write_table(table, file)
    store = open_store(tmp_path)
    ref = await store.put_bytes(file.getvalue(), mime_type="application/vnd.apache.parquet")
    assert pandas.read_parquet(ref.uri, storage_options={"store": store}).to_dict("list") == table.to_pydict()
    files = fsspec.filesystem("artifact", store=store)
    assert parquet.read_table(ref.id, filesystem=files) == table
    assert polars.read_parquet(ref.open()).to_arrow().to_pydict() == table.to_pydict()
    with duckdb.connect() as connection:
        connection.register_filesystem(files)
        assert connection.sql(f"SELECT sum(sold) FROM read_parquet('{ref.uri}')").fetchall() == [(270,)]


_PYTHON = re.compile(r"(<!-- not run: .+? -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
async def test_documented_data_page_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABP_OUTPUT_DIR", str(tmp_path))
    monkeypatch.delenv("ABP_STORE", raising=False)
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    with serve_fixture_app() as fixture:
        code = "\n".join(text for reason, text in _PYTHON.findall(page) if not reason)
        names: dict[str, Any] = {}
        await asyncio.to_thread(
            exec, ast.unparse(ast.parse(code.replace("http://127.0.0.1:8000/", fixture.ws_url))), names
        )
    assert names["table"].to_pylist() == [{"month": "Jan", "sold": 120}, {"month": "Feb", "sold": 150}]
    assert names["total"] == [(270,)] and names["series"]["sold"].to_list() == [120, 150]
