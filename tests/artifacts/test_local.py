"""The local store: storing and reading, files that another program writes, ids and readable names."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.support.local_store import PDF, PNG, assert_empty, inner, refuse_links, sha, visible
from tests.support.rows import each_row
from transports.artifacts import LocalStore, open_store
from transports.errors import ArtifactNotFound, StoreError, UsageError

#: All examples of a test have one store.
SHARED_STORE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

# --- storing and reading ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-6g", "R0-10c")
async def test_artifact_round_trips_with_expected_layout(tmp_path: Path) -> None:
    root = tmp_path / "folders" / "above" / "out"
    store = LocalStore(root)
    ref = await store.put_bytes(PDF, size=len(PDF), namespace="export.pdf", meta={"capability": "export.pdf"})
    assert ref.id == f"export_pdf_{sha(PDF)[:12]}"
    assert ref.uri == f"artifact://{ref.id}"
    assert (ref.mime_type, ref.size_bytes, ref.sha256) == ("application/pdf", len(PDF), sha(PDF))
    assert ref.path is not None and Path(ref.path).read_bytes() == PDF
    stem, milliseconds = Path(ref.path).stem.rsplit("_", 1)
    assert stem == "export_pdf" and abs(int(milliseconds) / 1000 - time.time()) < 60 and ref.filename.endswith(".pdf")
    assert await store.get(ref.id) == PDF
    assert await store.stat(ref.id) == ref
    assert await store.list() == [ref]
    assert inner(root, "blobs") == [sha(PDF)]
    assert inner(root, "meta") == [f"{ref.id}.json"]
    assert inner(root, "staging") == []
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    files = [path for path in root.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_mime_type_is_declared_then_sniffed_then_unknown(store: LocalStore) -> None:
    png = await store.put_bytes(PNG, mime_type="IMAGE/PNG; q=1", meta={"capability": "shot", "warnings": ["a"]})
    assert png.mime_type == png.source["declared_mime_type"] == png.source["sniffed_mime_type"] == "image/png"
    assert (png.source["capability"], png.source["verified"], png.source["warnings"]) == ("shot", False, ["a"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(png.source["created"]))
    sized = await store.put_bytes(PDF, size=len(PDF))
    assert sized.source["verified"] is True and sized.mime_type == "application/pdf"
    with pytest.raises(UsageError, match="JSON"):
        await store.put_bytes(b"other", meta={"bad": object()})
    assert (await store.put_bytes(b"a,b", mime_type="text/csv")).mime_type == "text/csv"
    assert (await store.put_bytes(b"\0\1\2")).mime_type == "application/octet-stream"
    package = await store.put_bytes(b"PK\3\4" + bytes(60), mime_type="application/epub+zip")  # a ZIP, and more exact
    assert package.mime_type == "application/epub+zip" and "warnings" not in package.source
    lie = await store.put_bytes(b"<!doctype html><p>no", mime_type="image/png", meta={"warnings": ["earlier"]})
    assert lie.mime_type == "text/html" and lie.filename.endswith(".html")
    assert lie.source["declared_mime_type"] == "image/png" and lie.source["sniffed_mime_type"] == "text/html"
    warnings = lie.source["warnings"]
    assert isinstance(warnings, list) and warnings[0] == "earlier" and "image/png" in warnings[1]


async def test_no_folder_is_created_before_first_stage(store: LocalStore, root: Path) -> None:
    assert await store.list() == []
    assert await store.delete("a_0123456789ab") is False
    with pytest.raises(ArtifactNotFound):
        await store.stat("a_0123456789ab")
    assert await store.get("a_0123456789ab") is None
    assert not root.exists()


@settings(max_examples=15, suppress_health_check=SHARED_STORE)
@given(pieces=st.lists(st.integers(0, 700_000), max_size=6), views=st.booleans(), read=st.integers(1, 1 << 20))
async def test_any_chunking_gives_the_same_content(
    store: LocalStore, pieces: list[int], views: bool, read: int
) -> None:
    data = os.urandom(sum(pieces))
    async with store.stage() as staged:
        start = 0
        await staged.write(b"")
        for piece in pieces:
            buffer = bytearray(data[start : start + piece])
            await staged.write(memoryview(buffer) if views else bytes(buffer))
            buffer[:] = bytes(piece)  # the caller may use its buffer again
            start += piece
            assert staged.size == start
        ref = await staged.commit(size=len(data), durability="process")
    assert ref.sha256 == sha(data)
    got = [chunk async for chunk in store.open(ref.id, chunk_size=max(read, len(data) // 50 + 1))]
    assert b"".join(got) == data and all(got)
    await store.delete(ref.id)


async def test_non_contiguous_memoryviews_are_stored(store: LocalStore) -> None:
    numbers = memoryview(bytearray(range(200)))
    for view in (numbers[::3], numbers.cast("I")):
        assert await store.get((await store.put_bytes(view)).id) == view.tobytes()


# --- files that somebody else writes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["symlink", "folder", "pipe"])
@pytest.mark.parametrize("address", ["local", "none:"])
async def test_external_path_must_be_a_regular_file(kind: str, address: str, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    store = open_store(root if address == "local" else address)
    async with asyncio.timeout(5), store.stage() as staged:
        if kind == "symlink":
            staged.path.symlink_to(secret)
        elif kind == "folder":
            staged.path.mkdir()
        else:
            os.mkfifo(staged.path)
        with pytest.raises(StoreError, match=r"regular file|symlink|symbolic"):
            await staged.commit()
        staged.path.rmdir() if kind == "folder" else staged.path.unlink()
    assert secret.read_text() == "secret"
    if address == "local":
        assert_empty(root)


@pytest.mark.parametrize("what", ["changed", "replaced"])
async def test_external_file_changed_during_commit_is_rejected(
    what: str, store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.stage() as staged:
        staged.path.write_bytes(PDF)

        def while_somebody_writes(fd: int, size: int, offset: int) -> bytes:
            piece = os.pread(fd, size, offset)
            if what == "replaced":
                staged.path.unlink()
                staged.path.write_bytes(PNG)
            elif not offset:
                with staged.path.open("r+b") as file:
                    file.write(b"?")
                os.utime(staged.path, (1, 1))
            return piece

        with monkeypatch.context() as patch:
            patch.setattr("transports.artifacts._content.read_at", while_somebody_writes)
            with pytest.raises(StoreError, match=what):
                await staged.commit()
        assert visible(root) == inner(root, "blobs") == inner(root, "meta") == []
        if what == "changed":
            assert (await staged.commit()).size_bytes == len(PDF)
    assert inner(root, "staging") == []


async def test_staging_does_not_write_through_symlinks(store: LocalStore, root: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    async with store.stage() as staged:
        staged.path.symlink_to(victim)
        with pytest.raises(StoreError):
            await staged.write(b"x" * 2_000_000)
    assert victim.read_text() == "precious"
    assert_empty(root)


# --- ids and names ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-5.3c")
@each_row(
    ("namespace", "head"),
    [
        ("export.pdf", "export_pdf"),
        ("../../etc/passwd", "_etc_passwd"),
        ("", "artifact"),
        ("日本", "artifact"),
        ("--rf", "rf"),
        ("a" * 64, "a" * 64),
        ("a" * 65, "a" * 64),
        ("-" * 255 + "ab", "a"),
        ("-" * 256 + "ab", "artifact"),
        ("x\0y z", "x_y_z"),
    ],
)
async def test_namespace_is_sanitized(namespace: str, head: str, store: LocalStore) -> None:
    ref = await store.put_bytes(PDF, namespace=namespace)
    assert ref.filename.startswith(head + "_") and ref.id == f"{head}_{sha(PDF)[:12]}"
    assert await store.get(ref.id) == PDF


async def test_colliding_hash_prefixes_get_longer_ids(store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(PDF)
    meta = root / ".abp/meta" / f"{ref.id}.json"
    other = json.loads(meta.read_text())
    other["sha256"] = ref.sha256[:20] + "0" * 44  # as if other content shared the first 20 digits
    meta.write_text(json.dumps(other))
    other["id"] = f"artifact_{ref.sha256[:16]}"
    (meta.parent / f"{other['id']}.json").write_text(json.dumps(other))
    longer = await store.put_bytes(PDF)
    assert longer.id == f"artifact_{ref.sha256[:24]}"
    assert await store.get(longer.id) == PDF
    assert (await store.put_bytes(PDF)).id == longer.id


async def test_same_content_is_stored_once(store: LocalStore, root: Path) -> None:
    first, second = await store.put_bytes(PDF), await store.put_bytes(PDF)
    assert second.path == first.path and len(visible(root)) == len(inner(root, "blobs")) == 1
    assert second.path is not None
    Path(second.path).unlink()  # a person tidied up
    assert (await store.stat(first.id)).path is None
    third = await store.put_bytes(PDF)
    assert third.path == first.path and Path(str(third.path)).read_bytes() == PDF


async def test_suggested_names_accumulate_and_are_deleted_together(store: LocalStore, root: Path) -> None:
    await store.put_bytes(PDF, filename="report.pdf")
    again = await store.put_bytes(PDF, filename="x/report.pdf")
    assert visible(root) == ["report.pdf"] and again.filename == "report.pdf"
    named = await store.put_bytes(PDF, filename="other.pdf")
    assert visible(root) == ["other.pdf", "report.pdf"] and named.filename == "other.pdf"
    unnamed = await store.put_bytes(PDF)
    assert visible(root) == ["other.pdf", "report.pdf"] and unnamed.filename == "other.pdf"
    back = await store.put_bytes(PDF, filename="report.pdf")
    assert back.filename == "report.pdf" and await store.stat(back.id) == back
    assert await store.delete(named.id) is True
    assert_empty(root)


async def test_name_clashes_never_overwrite(store: LocalStore, root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / "report.pdf").write_text("a person's own")
    (root / "report-2.pdf").symlink_to(tmp_path / "nowhere")
    ref = await store.put_bytes(PDF, filename="report.pdf")
    assert ref.filename == "report-3.pdf" and ref.path == root / "report-3.pdf"
    assert (await store.put_bytes(PDF, filename="report.pdf")).filename == "report-3.pdf"
    assert (await store.put_bytes(PNG, filename="report.pdf")).filename == "report-4.pdf"
    assert (root / "report.pdf").read_text() == "a person's own" and not (tmp_path / "nowhere").exists()


async def test_user_file_replacing_stored_file_is_kept(store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(PDF, filename="report.pdf")
    mine = root / "report.pdf"
    mine.unlink()
    mine.write_text("rewritten by a person")
    again = await store.put_bytes(PDF, filename="report.pdf")
    assert again.filename == "report-2.pdf" and Path(str(again.path)).read_bytes() == PDF
    (root / "report-2.pdf").unlink()
    (root / "report-2.pdf").write_text("this one too")
    await store.delete(ref.id)
    assert visible(root) == ["report-2.pdf", "report.pdf"] and mine.read_text() == "rewritten by a person"


@pytest.mark.fault(42)
@pytest.mark.requirement("R1-14c", "R4-9g", "R4-11c")
@settings(max_examples=25, suppress_health_check=SHARED_STORE)
@given(
    suggestion=st.text(max_size=300)
    | st.sampled_from(["..", ".", "/", "../../x.pdf", "CON", "a\0b", "-rf", ".abp", "‮fdp.exe", "x" * 300])
)
async def test_any_suggested_name_is_safe(store: LocalStore, root: Path, suggestion: str) -> None:
    ref = await store.put_bytes(PDF, filename=suggestion, durability="process")
    assert ref.path is not None and Path(ref.path).parent == root
    assert visible(root) == [ref.filename] and Path(ref.path).read_bytes() == PDF
    assert not ref.filename.startswith((".", "-")) and "\0" not in ref.filename
    assert len(ref.filename.encode()) <= 255
    assert ref.id == f"artifact_{sha(PDF)[:12]}"
    assert await store.delete(ref.id) and visible(root) == []


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
async def test_store_works_without_hard_links(
    refusal: int, store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, refusal)
    (await store.put_bytes(PNG, filename="report.pdf"))
    ref = await store.put_bytes(PDF, filename="report.pdf")
    assert ref.filename == "report-2.pdf" and ref.path is not None and Path(ref.path).read_bytes() == PDF
    assert (await store.put_bytes(PDF, filename="report.pdf")).path == ref.path
    assert await store.get(ref.id) == PDF and inner(root, "staging") == []
    assert await store.delete(ref.id)
    assert visible(root) == ["report.pdf"] and len(inner(root, "blobs")) == 1


@pytest.mark.load
@pytest.mark.requirement("R2-6.5c", "R4-12b", "R4-15f")
async def test_a_large_stream_needs_little_memory(tmp_path: Path) -> None:
    store, block, process = LocalStore(tmp_path), bytes(1 << 20), psutil.Process()
    await store.put_bytes(b"warm")
    most = before = process.memory_info().rss

    async def stream() -> AsyncIterator[bytes]:
        nonlocal most
        for _ in range(80):
            most = max(most, process.memory_info().rss)
            yield block

    ref = await store.put_stream(stream())
    assert ref.size_bytes == 80 << 20
    async for _ in store.open(ref.id):
        most = max(most, process.memory_info().rss)
    assert most - before < 50 << 20


async def test_ids_differing_only_in_case_stay_distinct_on_case_insensitive_fs(store: LocalStore, root: Path) -> None:
    upper = await store.put_bytes(PDF, namespace="Export")
    meta = root / ".abp" / "meta"
    (meta / f"{upper.id.lower()}.json").hardlink_to(meta / f"{upper.id}.json")  # so they answer to this name, too
    with pytest.raises(ArtifactNotFound):
        await store.stat(upper.id.lower())
    assert not await store.delete(upper.id.lower())
    lower = await store.put_bytes(PDF, namespace="export")
    assert lower.id not in (upper.id, upper.id.lower()) and lower.id.startswith("export_")
    assert await store.get(lower.id) == PDF == await store.get(upper.id)
