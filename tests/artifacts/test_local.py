"""The artifact stores through their public API, on real files, processes, signals and file systems."""

from __future__ import annotations

import ast
import asyncio
import errno
import hashlib
import json
import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transports.artifacts import ArtifactRef, ArtifactStore, LocalStore, NoneStore, open_store
from transports.errors import ArtifactNotFound, Corrupt, SizeMismatch, StoreError, StoreFull, TooLarge, UsageError

PDF = b"%PDF-1.7\n" + b"x" * 100
PNG = b"\x89PNG\r\n\x1a\n" + b"y" * 100
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def visible(root: Path) -> list[str]:
    """Names a person sees in the folder."""
    return sorted(path.name for path in root.iterdir() if path.name != ".abp")


def inner(root: Path, *parts: str) -> list[str]:
    folder = root.joinpath(".abp", *parts)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def assert_empty(root: Path) -> None:
    """No trace of an artifact, and nothing on its way."""
    assert visible(root) == []
    for part in ("blobs", "meta", "staging"):
        assert inner(root, part) == []


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def run_script(script: str, *arguments: object, timeout: float = 60) -> str:
    """A program of its own: for signals, forks and lost privileges."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- storing and reading ---------------------------------------------------------------------------------------------


async def test_round_trip_and_layout(store: LocalStore, root: Path) -> None:
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
    assert inner(root, "blobs") == [f"{sha(PDF)[:2]}/{sha(PDF)}"]
    assert inner(root, "meta") == [f"{ref.id}.json"]
    assert inner(root, "staging") == []
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    files = [path for path in root.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_source_says_where_it_comes_from(store: LocalStore) -> None:
    ref = await store.put_bytes(PNG, mime_type="IMAGE/PNG; q=1", meta={"capability": "shot", "warnings": ["a"]})
    assert ref.source["capability"] == "shot"
    assert ref.source["declared_mime_type"] == ref.source["sniffed_mime_type"] == "image/png"
    assert ref.source["verified"] is False
    assert ref.source["warnings"] == ["a"]
    created = str(ref.source["created"])
    assert created.endswith("Z") and len(created) == len("2026-01-01T00:00:00.000Z")
    assert (await store.put_bytes(PDF, size=len(PDF))).source["verified"] is True
    with pytest.raises(UsageError, match="JSON"):
        await store.put_bytes(b"other", meta={"bad": object()})


@pytest.mark.parametrize("address", ["local", "none:"])
async def test_type_is_declared_then_sniffed_then_unknown(address: str, root: Path) -> None:
    store: ArtifactStore = open_store(root if address == "local" else address)
    assert (await store.put_bytes(PNG)).mime_type == "image/png"
    assert (await store.put_bytes(b"a,b", mime_type="text/csv")).mime_type == "text/csv"
    assert (await store.put_bytes(b"\0\1\2")).mime_type == "application/octet-stream"
    package = await store.put_bytes(b"PK\3\4" + bytes(60), mime_type="application/epub+zip")  # a ZIP, and more exact
    assert package.mime_type == "application/epub+zip" and "warnings" not in package.source
    lie = await store.put_bytes(b"<!doctype html><p>no", mime_type="image/png", meta={"warnings": ["earlier"]})
    assert lie.mime_type == "text/html" and lie.filename.endswith(".html")
    assert lie.source["declared_mime_type"] == "image/png" and lie.source["sniffed_mime_type"] == "text/html"
    warnings = lie.source["warnings"]
    assert isinstance(warnings, list) and warnings[0] == "earlier" and "image/png" in warnings[1]


async def test_nothing_is_made_before_the_first_stage(store: LocalStore, root: Path) -> None:
    assert await store.list() == []
    assert await store.delete("a_0123456789ab") is False
    with pytest.raises(ArtifactNotFound):
        await store.stat("a_0123456789ab")
    with pytest.raises(ArtifactNotFound):
        await store.get("a_0123456789ab")
    assert not root.exists()


async def test_size_mismatch_leaves_nothing(store: LocalStore, root: Path) -> None:
    for declared in (len(PDF) - 1, len(PDF) + 1, 0):
        with pytest.raises(SizeMismatch) as caught:
            await store.put_bytes(PDF, size=declared)
        assert caught.value.details == {"declared": declared, "actual": len(PDF)}
    assert_empty(root)


async def test_limit_is_enforced_while_writing(root: Path) -> None:
    store = LocalStore(root, max_bytes=1000)
    async with store.stage() as staged:
        await staged.write(b"x" * 999)
        with pytest.raises(TooLarge, match="1,000 bytes"):
            await staged.write(b"xx")
        with pytest.raises(UsageError):  # half of it must not become an artifact
            await staged.commit()
        await staged.reset()
        assert staged.size == 0
        await staged.write(b"y" * 1000)
        ref = await staged.commit()
    assert await store.get(ref.id) == b"y" * 1000
    async with store.stage() as staged:
        staged.path.write_bytes(b"z" * 1001)
        with pytest.raises(TooLarge):
            await staged.commit()
    assert len(visible(root)) == 1 and inner(root, "staging") == []


async def test_reset_and_uncommitted_leave_nothing(store: LocalStore, root: Path) -> None:
    async with store.stage() as staged:
        await staged.write(b"a" * 2_000_000)
        assert staged.path.exists()
        await staged.reset()
        assert not staged.path.exists()
        await staged.write(b"b" * 2_000_000)
        assert staged.size == 2_000_000
    assert_empty(root)


async def test_commit_works_once_and_can_be_tried_again_after_a_mismatch(store: LocalStore) -> None:
    async with store.stage() as staged:
        await staged.write(PDF)
        with pytest.raises(SizeMismatch):
            await staged.commit(size=1)
        ref = await staged.commit(size=len(PDF))
        with pytest.raises(UsageError):
            await staged.commit()
        with pytest.raises(UsageError):
            await staged.write(b"more")
    assert await store.get(ref.id) == PDF


async def test_empty_content_must_be_meant(store: LocalStore, root: Path) -> None:
    async with store.stage() as staged:
        with pytest.raises(StoreError, match="nothing was written"):
            await staged.commit()
        ref = await staged.commit(size=0)
    assert ref.size_bytes == 0 and await store.get(ref.id) == b""
    assert (await store.put_bytes(b"")).id == ref.id


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.integers(0, 700_000), max_size=6),
    views=st.booleans(),
    read=st.integers(1, 1 << 20),
)
def test_any_chunking_gives_the_same_content(pieces: list[int], views: bool, read: int) -> None:
    data = os.urandom(sum(pieces))

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = LocalStore(Path(folder))
            async with store.stage() as staged:
                start = 0
                await staged.write(b"")
                for piece in pieces:
                    buffer = bytearray(data[start : start + piece])
                    await staged.write(memoryview(buffer) if views else bytes(buffer))
                    buffer[:] = bytes(piece)  # the caller may use its buffer again
                    start += piece
                    assert staged.size == start
                ref = await staged.commit(size=len(data))
            assert ref.sha256 == sha(data)
            got = [chunk async for chunk in store.open(ref.id, chunk_size=max(read, len(data) // 50 + 1))]
            assert b"".join(got) == data and all(got)

    asyncio.run(main())


async def test_memoryviews_of_other_shapes(store: LocalStore) -> None:
    numbers = memoryview(bytearray(range(200)))
    for view in (numbers[::3], numbers.cast("I")):
        assert await store.get((await store.put_bytes(view)).id) == view.tobytes()


# --- files that somebody else writes ---------------------------------------------------------------------------------


async def test_external_file(store: LocalStore, root: Path) -> None:
    data = os.urandom(3_000_001)
    async with store.stage() as staged:
        assert not staged.path.exists() and staged.path.parent.is_dir()
        staged.path.write_bytes(data)
        staged.path.chmod(0o644)
        ref = await staged.commit(size=len(data), filename="video.webm")
    assert ref.path is not None and ref.sha256 == sha(data) and Path(ref.path).read_bytes() == data
    assert stat.S_IMODE(Path(ref.path).stat().st_mode) == 0o600
    assert inner(root, "staging") == []


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


async def test_external_file_must_stand_still(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    async with store.stage() as staged:
        staged.path.write_bytes(PDF)

        def while_somebody_writes(fd: int, buffers: list[memoryview], offset: int) -> int:
            count = real(fd, buffers, offset)
            if not offset:
                with staged.path.open("r+b") as file:
                    file.write(b"?")
                os.utime(staged.path, (1, 1))
            return count

        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", while_somebody_writes)
            with pytest.raises(StoreError, match="changed"):
                await staged.commit()
        assert visible(root) == []
        assert (await staged.commit()).size_bytes == len(PDF)


async def test_external_file_must_not_be_swapped(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.preadv
    async with store.stage() as staged:
        staged.path.write_bytes(PDF)

        def while_somebody_swaps(fd: int, buffers: list[memoryview], offset: int) -> int:
            staged.path.unlink()
            staged.path.write_bytes(PNG)
            return real(fd, buffers, offset)

        monkeypatch.setattr(os, "preadv", while_somebody_swaps)
        with pytest.raises(StoreError, match="replaced"):
            await staged.commit()
    assert_empty(root)


async def test_written_file_is_never_somebody_elses(store: LocalStore, root: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    async with store.stage() as staged:
        staged.path.symlink_to(victim)
        with pytest.raises(StoreError):
            await staged.write(b"x" * 2_000_000)
    assert victim.read_text() == "precious"
    assert_empty(root)


# --- ids and names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "head"),
    [
        ("export.pdf", "export_pdf"),
        ("../../etc/passwd", "_etc_passwd"),
        ("", "artifact"),
        ("日本", "artifact"),
        ("--rf", "rf"),
        ("a" * 300, "a" * 64),
        ("x\0y z", "x_y_z"),
    ],
)
@pytest.mark.parametrize("address", ["local", "none:"])
async def test_namespace_is_cleaned(namespace: str, head: str, address: str, root: Path) -> None:
    store = open_store(root if address == "local" else address)
    ref = await store.put_bytes(PDF, namespace=namespace)
    assert ref.filename.startswith(head + "_")
    if address == "local":
        assert ref.id == f"{head}_{sha(PDF)[:12]}"
        assert await store.get(ref.id) == PDF


@pytest.mark.parametrize(
    "bad", ["", "..", "../x", "a/b_0123456789ab", "a_0123456789ab\n", "a\0b", "é_0123456789ab", "a" * 5000]
)
async def test_strange_ids_are_never_paths(bad: str, store: LocalStore, root: Path) -> None:
    await store.put_bytes(PDF)
    with pytest.raises(ArtifactNotFound):
        await store.get(bad)
    with pytest.raises(ArtifactNotFound):
        await store.stat(bad)
    assert await store.delete(bad) is False
    assert len(visible(root)) == 1


async def test_colliding_first_digits_take_a_longer_id(store: LocalStore, root: Path) -> None:
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


async def test_same_content_again_is_one_artifact(store: LocalStore, root: Path) -> None:
    first = await store.put_bytes(PDF, meta={"run": 1})
    second = await store.put_bytes(PDF, meta={"run": 2})
    assert (second.id, second.path) == (first.id, first.path)
    assert second.source == {**first.source, "run": 2} and len(await store.list()) == 1
    assert len(visible(root)) == 1 and len(inner(root, "blobs")) == 1
    assert second.path is not None
    Path(second.path).unlink()  # a person tidied up
    assert (await store.stat(first.id)).path is None
    third = await store.put_bytes(PDF)
    assert third.path == first.path and Path(str(third.path)).read_bytes() == PDF


async def test_suggested_names_add_up_and_go_together(store: LocalStore, root: Path) -> None:
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


async def test_a_persons_file_under_our_name_stays(store: LocalStore, root: Path) -> None:
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


@settings(max_examples=50, deadline=None)
@given(
    st.text(max_size=300)
    | st.sampled_from(["..", ".", "/", "../../x.pdf", "CON", "a\0b", "-rf", ".abp", "‮fdp.exe", "x" * 300])
)
def test_any_suggested_name_is_safe(suggestion: str) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = LocalStore(Path(folder))
            ref = await store.put_bytes(PDF, filename=suggestion)
            assert ref.path is not None and Path(ref.path).parent == Path(folder)
            assert visible(Path(folder)) == [ref.filename] and Path(ref.path).read_bytes() == PDF
            assert (
                not ref.filename.startswith((".", "-"))
                and "\0" not in ref.filename
                and len(ref.filename.encode()) <= 255
            )
            assert ref.id == f"artifact_{sha(PDF)[:12]}"
            assert await store.delete(ref.id) and visible(Path(folder)) == []

    asyncio.run(main())


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
async def test_file_systems_without_hard_links(
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


# --- deleting, damage, drift -----------------------------------------------------------------------------------------


async def test_delete_keeps_content_that_another_artifact_has(store: LocalStore, root: Path) -> None:
    one = await store.put_bytes(PDF, namespace="one")
    two = await store.put_bytes(PDF, namespace="two")
    assert len(inner(root, "blobs")) == 1
    assert await store.delete(one.id) and not await store.delete(one.id)
    with pytest.raises(ArtifactNotFound):
        await store.stat(one.id)
    assert await store.get(two.id) == PDF
    assert await store.delete(two.id)
    assert_empty(root)


async def test_list_is_oldest_first(store: LocalStore) -> None:
    refs: list[ArtifactRef] = []
    for number in range(5):
        refs.append(await store.put_bytes(os.urandom(10), namespace="zyxwv"[number]))
        await asyncio.sleep(0.003)
    await store.put_bytes(await store.get(refs[0].id), namespace="z")  # storing again does not make it younger
    assert [ref.id for ref in await store.list()] == [ref.id for ref in refs]


async def test_reader_finishes_after_delete(store: LocalStore) -> None:
    data = os.urandom(3 << 20)
    ref = await store.put_bytes(data)
    stream = store.open(ref.id)
    got = await anext(stream)
    assert await store.delete(ref.id)
    got += b"".join([chunk async for chunk in stream])
    assert got == data
    with pytest.raises(ArtifactNotFound):
        await store.get(ref.id)


@pytest.mark.parametrize("damage", ["flip", "longer", "shorter"])
async def test_damage_is_noticed_quarantined_and_healed(damage: str, store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(PDF, filename="report.pdf")
    with (root / "report.pdf").open("r+b") as file:
        if damage == "flip":
            file.seek(50)
            file.write(b"!")
        elif damage == "longer":
            file.seek(0, 2)
            file.write(b"!")
        else:
            file.truncate(50)
    with pytest.raises(Corrupt, match=ref.id):
        await store.get(ref.id)
    assert inner(root, "blobs") == [] and inner(root, "quarantine") == [ref.sha256]
    with pytest.raises(Corrupt, match=ref.id):
        await store.get(ref.id)
    healed = await store.put_bytes(PDF, filename="report.pdf")
    assert healed.path == ref.path and await store.get(ref.id) == PDF == Path(str(ref.path)).read_bytes()


async def test_damaged_copy_is_not_taken_for_new_content(store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(PDF)
    with Path(str(ref.path)).open("r+b") as file:
        file.write(b"!")
    assert await store.get((await store.put_bytes(PDF)).id) == PDF
    assert inner(root, "quarantine") == [ref.sha256] and Path(str(ref.path)).read_bytes() == PDF
    await store.delete(ref.id)
    assert_empty(root)
    assert inner(root, "quarantine") == []


BAD_FIELDS = ['{"names": [["../../x", ""]]}', '{"version": 2}', '{"id": "other_0123456789ab"}', '{"sha256": "../x"}']


@pytest.mark.parametrize(
    "content",
    ["", '{"version": 1, "id', "[]", "null", '{"version":1}', "\xff", "[" * 100_000, *BAD_FIELDS],
)
async def test_unreadable_metadata_breaks_only_itself(
    content: str, store: LocalStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = await store.put_bytes(PNG), await store.put_bytes(PDF)
    meta = root / ".abp/meta" / f"{bad.id}.json"
    if content in BAD_FIELDS:
        content = json.dumps(json.loads(meta.read_text()) | json.loads(content))
    meta.write_text(content, encoding="latin-1")
    (root / ".abp/index.sqlite").unlink(missing_ok=True)  # what is listed must be read again
    with caplog.at_level(logging.WARNING):
        assert await store.list() == [good]
    assert bad.id in caplog.text
    with pytest.raises(Corrupt, match=bad.id):
        await store.stat(bad.id)
    assert await store.get((await store.put_bytes(PDF)).id) == PDF  # storing again repairs it
    meta.write_text(content, encoding="latin-1")
    assert await store.delete(bad.id) is True
    assert await store.list() == [good]


async def test_missing_blob_is_damage(store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(PDF)
    (root / ".abp/blobs" / ref.sha256[:2] / ref.sha256).unlink()
    with pytest.raises(Corrupt):
        await store.get(ref.id)
    assert await store.list() == [ref]
    assert await store.get((await store.put_bytes(PDF)).id) == PDF


# --- folders that are not ours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", ".abp", ".abp/staging", ".abp/blobs", ".abp/meta", ".abp/locks"])
async def test_symlinked_folders_are_refused(place: str, store: LocalStore, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = root / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StoreError, match=r"symlink.*ABP_OUTPUT_DIR"):
        await store.put_bytes(PDF)
    assert list(elsewhere.iterdir()) == []
    if place in ("", ".abp", ".abp/meta"):
        with pytest.raises(StoreError, match="symlink"):
            await store.list()


async def test_file_in_the_place_of_the_root(store: LocalStore, root: Path) -> None:
    root.write_text("a file")
    with pytest.raises(StoreError, match="not a folder"):
        await store.put_bytes(PDF)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_default_root_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = tmp_path / "abp-mcp-bridge"
    root.mkdir()
    assert LocalStore(None).root == root
    await LocalStore(None).put_bytes(PDF)
    os.chown(root, 65534, 65534)
    for store in (LocalStore(None), LocalStore(root)):
        with pytest.raises(StoreError, match=r"another user.*ABP_OUTPUT_DIR"):
            await store.put_bytes(PDF)
        with pytest.raises(StoreError, match="another user"):
            await store.list()


# --- disks that refuse -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # lazy: also after a test that leaked a descriptor


async def test_disk_full(small_disk: Path) -> None:
    store = LocalStore(small_disk / "out")
    earlier = await store.put_bytes(PDF, filename="earlier.pdf")
    for size in (10 << 20, 8 << 20):
        with pytest.raises(StoreFull) as caught:
            await store.put_bytes(os.urandom(size))
        assert caught.value.details["errno"] == "ENOSPC"
    async with store.stage() as staged:
        with pytest.raises(StoreFull):
            for _ in range(200):
                await staged.write(os.urandom(60_000))
        with pytest.raises(UsageError):
            await staged.commit()
    (small_disk / "filler").write_bytes(b"")
    free = os.statvfs(small_disk)
    page = free.f_frsize
    async with store.stage() as staged:  # the content fits and its metadata does not
        await staged.write(os.urandom(2_000_000))
        with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(b"x" * page)
        with pytest.raises(StoreFull):
            await staged.commit(filename="big.bin")
        assert visible(store.root) == ["earlier.pdf"]
        (small_disk / "filler").unlink()
        assert (await staged.commit(filename="big.bin")).filename == "big.bin"  # and goes through when there is room
    assert inner(store.root, "staging") == [] and len(inner(store.root, "blobs")) == 2
    assert await store.get(earlier.id) == PDF


async def test_read_only_file_system(small_disk: Path) -> None:
    store = LocalStore(small_disk / "out")
    ref = await store.put_bytes(PDF)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="read-only"):
        await store.put_bytes(PNG)
    with pytest.raises(StoreError, match="read-only"):
        await LocalStore(small_disk / "new").put_bytes(PNG)
    assert await store.get(ref.id) == PDF and await store.list() == [ref]


AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from transports.artifacts import LocalStore
from transports.errors import StoreError
async def main():
    await asyncio.to_thread(int)  # loads what threads need while we may still read it
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    store = LocalStore(Path(sys.argv[1]))
    try:
        await store.put_bytes(b"x", filename="x.txt")
    except StoreError as error:
        print(error.details["errno"], error.code, "ABP_OUTPUT_DIR" in error.message)
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="starts as root to become somebody else")
@pytest.mark.parametrize("closed", [".", "out", "out/.abp/staging", "out/.abp/meta", "out/.abp/blobs"])
def test_folder_without_permission(closed: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        top = Path(folder)
        place = top / "out"
        if closed != ".":
            asyncio.run(LocalStore(place).put_bytes(PDF))
            for path in [place, *place.rglob("*")]:
                os.chown(path, 65534, 65534)
        top.chmod(0o755)
        before = sorted(top.rglob("*"))
        (top / closed).chmod(0o555)
        assert run_script(AS_NOBODY, place) == "EACCES STORE_ERROR True\n"
        (top / closed).chmod(0o755)
        after = [path for path in sorted(top.rglob("*")) if path.is_file() and path.parent.name != "locks"]
        assert after == [path for path in before if path.is_file() and path.parent.name != "locks"]


async def test_path_too_long(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="too long"):
        await LocalStore(tmp_path / ("x" * 300)).put_bytes(PDF)


OUT_OF_FILES = """
import asyncio, os, resource, sys
from pathlib import Path
from transports.artifacts import LocalStore
from transports.errors import StoreError
async def main():
    store = LocalStore(Path(sys.argv[1]))
    await store.put_bytes(b"first", filename="first.txt")
    os.close(base := os.dup(0))  # the lowest that is free
    failures = 0
    for room in range(0, 20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (base + room, 4096))
        try:
            await store.put_bytes(b"second", filename="second.txt")
            break
        except StoreError as error:
            assert error.details["errno"] == "EMFILE" and error.retryable, error
            failures += 1
            assert [ref.filename for ref in await LocalStoreWithFiles(store)] == ["first.txt"]
            assert sorted(os.listdir(store.root)) == [".abp", "first.txt"], os.listdir(store.root)
    assert failures > 5
    print(sorted(os.listdir(store.root)), len(await store.list()))
async def LocalStoreWithFiles(store):
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    return await store.list()
asyncio.run(main())
"""


def test_out_of_file_descriptors(root: Path) -> None:
    assert run_script(OUT_OF_FILES, root) == "['.abp', 'first.txt', 'second.txt'] 2\n"
    assert inner(root, "staging") == []


def refuse_links(monkeypatch: pytest.MonkeyPatch, code: int = errno.EPERM) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)


def fail_sync(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the disk fail at one fsync; steps count from 1."""
    calls = iter(range(1, 100))
    real = os.fsync

    def failing(fd: int) -> None:
        if next(calls) == step:
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", failing)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("step", range(1, 9))
async def test_failed_sync_leaves_nothing_visible(
    step: int, links: bool, store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.delete((await store.put_bytes(PDF)).id)  # all folders are made
    if not links:
        refuse_links(monkeypatch)
    async with store.stage() as staged:
        await staged.write(PDF)
        with monkeypatch.context() as patch:
            fail_sync(patch, step)
            try:
                await staged.commit(filename="report.pdf")
            except StoreError as error:
                assert error.details["errno"] == "EIO"
                failed = True
            else:
                failed = False
        assert failed == (step <= (5 if links else 6))  # content, three folders, metadata; without links the copy
        if failed:
            assert visible(root) == inner(root, "blobs") == inner(root, "meta") == []
            assert len(inner(root, "staging")) == 1
            if step > 1:  # the disk recovers
                await staged.commit(filename="report.pdf")
    assert visible(root) == ([] if step == 1 else ["report.pdf"])
    assert inner(root, "staging") == []
    for ref in await store.list():
        assert await store.get(ref.id) == PDF


@pytest.mark.parametrize("step", range(1, 6))
async def test_failed_sync_keeps_the_artifact_that_was_there(
    step: int, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await store.put_bytes(PDF, filename="one.pdf")
    with monkeypatch.context() as patch:
        fail_sync(patch, step)
        with pytest.raises(StoreError):
            await store.put_bytes(PDF, filename="two.pdf")
    now = await store.stat(ref.id)
    assert await store.get(ref.id) == PDF == Path(str(now.path)).read_bytes()
    assert Path(str(now.path)).name == now.filename == ("two.pdf" if step == 5 else "one.pdf")  # the last is after it
    await store.delete(ref.id)
    assert_empty(store.root)


# --- processes, signals, cancellation --------------------------------------------------------------------------------


SAME_CONTENT = """
import asyncio, os, sys
from pathlib import Path
from transports.artifacts import LocalStore
data = bytes(range(256)) * 4000
gate, go = os.pipe()
pids = []
for number in range(16):
    if not (pid := os.fork()):
        os.close(go)
        os.read(gate, 1)  # until all are there
        async def main():
            store = LocalStore(Path(sys.argv[1]))
            for name in (None, f"own-{number}.bin"):
                ref = await store.put_bytes(data, namespace="same", filename=name)
                assert Path(ref.path).read_bytes() == data and await store.get(ref.id) == data
        asyncio.run(main())
        os._exit(0)
    pids.append(pid)
os.close(gate)
os.close(go)
print([os.waitpid(pid, 0)[1] for pid in pids] == [0] * 16)
"""


def test_sixteen_writers_of_the_same_content(store: LocalStore, root: Path) -> None:
    assert run_script(SAME_CONTENT, root) == "True\n"
    (ref,) = asyncio.run(store.list())
    names = visible(root)
    assert len(names) == 17 and len([name for name in names if name.startswith("same_")]) == 1
    assert len({(root / name).stat().st_ino for name in names}) == 1
    assert len(inner(root, "blobs")) == len(inner(root, "meta")) == 1 and inner(root, "staging") == []
    assert asyncio.run(store.delete(ref.id))
    assert_empty(root)


WRITE_AND_DELETE = """
import asyncio, os, random, sys
from pathlib import Path
from transports.artifacts import LocalStore
from transports.errors import ArtifactNotFound
pids = []
for number in range(6):
    if not (pid := os.fork()):
        async def main():
            store = LocalStore(Path(sys.argv[1]))
            for turn in range(25):
                ref = await store.put_bytes(b"shared" * 1000, namespace="abc"[turn % 3], filename="x.bin")
                try:
                    assert await store.get(ref.id) == b"shared" * 1000
                except ArtifactNotFound:
                    pass
                await store.delete(ref.id)
        asyncio.run(main())
        os._exit(0)
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids])
"""


def test_writers_and_deleters_of_the_same_content(root: Path) -> None:
    assert ast.literal_eval(run_script(WRITE_AND_DELETE, root)) == [0] * 6
    assert_empty(root)


KILLED = """
import asyncio, hashlib, os, random, signal, sqlite3, sys, time
from pathlib import Path
from transports.artifacts import LocalStore
root = Path(sys.argv[1])
chance = random.Random(os.urandom(8))
def content(round, turn):
    return random.Random(round * 1000 + turn).randbytes((100, 70_000, 1_500_000)[turn % 3])
async def write(round):
    store = LocalStore(root)
    for turn in range(1000):
        ref = await store.put_bytes(content(round, turn), namespace="k", filename="same.bin" if turn % 2 else None)
        if turn % 4 == 3:
            await store.delete(ref.id)
        os.write(go, b"x")
async def check():
    store = LocalStore(root)
    refs = await store.list()
    for ref in refs:
        data = await store.get(ref.id)
        assert hashlib.sha256(data).hexdigest() == ref.sha256 and ref.id == "k_" + ref.sha256[:12]
        assert Path(ref.path).read_bytes() == data
    names = {path.stem for path in root.glob(".abp/meta/*.json")}
    assert names == {ref.id for ref in refs}
    with sqlite3.connect(root / ".abp/index.sqlite") as db:
        assert names <= {key for (key,) in db.execute("SELECT id FROM artifacts")}
    db.close()
    whole = {path.name for path in root.glob(".abp/blobs/*/*")}
    for path in [*root.glob("*.bin"), *root.glob(".abp/blobs/*/*")]:  # also what no id names is whole
        assert hashlib.sha256(path.read_bytes()).hexdigest() in whole, path
    assert not [problem for problem in (await store.fsck()).problems if problem.kind not in ("orphan", "index")]
    assert not [problem for problem in (await store.fsck()).problems if problem.kind == "index"]  # it is mended
    for ref in refs:
        await store.delete(ref.id)
    return len(refs)
counts = []
gate, go = os.pipe()
os.set_blocking(go, False)
for round in range(200):
    if not (pid := os.fork()):
        asyncio.run(write(round))
    os.read(gate, 1)  # it has stored something
    time.sleep(chance.uniform(0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.write(go, b"x")
    os.read(gate, 10_000)
    if round % 50 == 49:
        counts.append(asyncio.run(check()))
print(counts)
"""


def test_200_killed_writers_leave_ids_absent_or_whole(store: LocalStore, root: Path) -> None:
    counts = ast.literal_eval(run_script(KILLED, root))
    assert len(counts) == 4 and min(counts) >= 50
    orphans = inner(root, "staging")
    for name in orphans:
        os.utime(root / ".abp/staging" / name, (time.time() - 7200,) * 2)
    asyncio.run(store.put_bytes(PDF))
    assert inner(root, "staging") == []
    with pytest.MonkeyPatch.context() as later:
        real = time.time
        later.setattr(time, "time", lambda: real() + 7200)
        content = inner(root, "blobs")
        left = [swept.id for swept in asyncio.run(store.gc(dry_run=True))]
        assert inner(root, "blobs") == content
        assert [swept.id for swept in asyncio.run(store.gc())] == left
    assert inner(root, "blobs") == [f"{sha(PDF)[:2]}/{sha(PDF)}"] and len(left) == len(content) - 1


async def test_sweep_leaves_the_young_and_the_living(root: Path) -> None:
    await LocalStore(root).put_bytes(PDF)
    staging = root / ".abp/staging"
    gone = subprocess.Popen(["true"])
    gone.wait()
    hour = 3600
    ages = {
        f"{gone.pid}-0a": 2 * hour, f"{gone.pid}-0b": hour / 2, f"{os.getpid()}-0c": 0.0,
        f"{os.getppid()}-0d": 0.0, f"{10**12}-0e": 2 * hour, "notes.txt": 2 * hour,
    }  # fmt: skip
    for name, age in ages.items():
        (staging / name).write_text("x")
        os.utime(staging / name, (time.time() - age,) * 2)
    async with LocalStore(root).stage():
        assert set(ages) - set(inner(root, "staging")) == {f"{gone.pid}-0a", f"{10**12}-0e"}  # old, and nobody's
    # a living process that wrote long ago: make it look as if the limit had passed since it started
    living = staging / f"{os.getpid()}-0f"
    living.write_text("x")
    real = time.time
    store = LocalStore(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + 1.5 * hour)
        async with store.stage():
            left = inner(root, "staging")
    assert left == sorted([f"{os.getpid()}-0c", f"{os.getppid()}-0d", f"{os.getpid()}-0f", "notes.txt"])
    # a process with the number of the dead writer, started after its last write, is another one
    os.utime(living, (1_000_000_000,) * 2)
    async with LocalStore(root).stage():
        assert living.name not in inner(root, "staging")


async def test_cancelled_write_waits_for_its_thread_and_leaves_nothing(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, finished = threading.Event(), threading.Event()
    real = os.write

    def slow(fd: int, data: bytes) -> int:
        if len(data) > 1000:
            started.set()
            time.sleep(0.2)
            finished.set()
        return real(fd, data)

    async def put() -> None:
        async with store.stage() as staged:
            await staged.write(b"x" * 2_000_000)

    monkeypatch.setattr(os, "write", slow)
    before = fds()
    task = asyncio.create_task(put())
    await asyncio.to_thread(started.wait)
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()  # an impatient caller
    with pytest.raises(asyncio.CancelledError):
        await task
    assert finished.is_set() and fds() == before
    assert_empty(root)


async def test_cancelled_at_any_moment(store: LocalStore, root: Path) -> None:
    await store.put_bytes(PNG, filename="warm.png")
    before = fds()
    data = os.urandom(3_000_000)
    for moment in range(30):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0004 * moment):
                await store.put_bytes(data, filename="data.bin")
                await asyncio.sleep(10)
        assert inner(root, "staging") == []
        names = visible(root)
        assert names in (["warm.png"], ["data.bin", "warm.png"])
        for ref in await store.list():
            await store.get(ref.id)
            if ref.filename == "data.bin":
                await store.delete(ref.id)
    assert fds() == before


async def test_descriptors_go_back_to_the_baseline(store: LocalStore) -> None:
    ref = await store.put_bytes(os.urandom(3 << 20))
    before = fds()
    for _ in range(5):
        await store.get(ref.id)
        stream = store.open(ref.id)
        await anext(stream)
        await stream.aclose()
        reading = asyncio.create_task(store.get(ref.id))
        await asyncio.sleep(0.0005)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        with pytest.raises(SizeMismatch):
            await store.put_bytes(PDF, size=1)
        with pytest.raises(ArtifactNotFound):
            await store.get("nothing_0123456789ab")
        await store.stat(ref.id)
        await store.list()
    assert fds() == before


async def test_many_at_once(store: LocalStore, root: Path) -> None:
    contents = [os.urandom(1000) for _ in range(60)]
    refs = await asyncio.gather(*(store.put_bytes(data, filename="same.bin") for data in contents))
    assert len({ref.path for ref in refs}) == 60
    for data, ref in zip(contents, refs, strict=True):
        assert Path(str(ref.path)).read_bytes() == data == await store.get(ref.id)


def test_one_store_object_in_several_loops(root: Path) -> None:
    store = LocalStore(root)
    ref = asyncio.run(store.put_bytes(PDF))
    assert asyncio.run(store.get(ref.id)) == PDF
    assert asyncio.run(LocalStore(root).list()) == [ref]


# --- the store that keeps nothing ------------------------------------------------------------------------------------


async def test_none_store_verifies_and_describes(caplog: pytest.LogCaptureFixture) -> None:
    store = NoneStore(max_bytes=1000)
    ref = await store.put_bytes(PDF, size=len(PDF), filename="../a.pdf", meta={"capability": "c"})
    assert ref.id == f"truncated_{sha(PDF)[:12]}" and ref.path is None and ref.filename == "a.pdf"
    assert (ref.mime_type, ref.size_bytes, ref.sha256) == ("application/pdf", len(PDF), sha(PDF))
    assert ref.source["truncated"] is True and ref.source["original_size"] == len(PDF)
    assert ref.source["warning"] == "Content not stored (no ArtifactStore configured)"
    assert ref.source["capability"] == "c" and ref.source["verified"] is True
    await store.put_bytes(PNG)
    assert len(caplog.records) == 1
    with pytest.raises(SizeMismatch):
        await store.put_bytes(PDF, size=1)
    with pytest.raises(TooLarge):
        await store.put_bytes(b"x" * 1001)
    with pytest.raises(ArtifactNotFound):
        await store.stat(ref.id)
    with pytest.raises(ArtifactNotFound):
        await anext(store.open(ref.id))
    assert await store.list() == [] and await store.delete(ref.id) is False


async def test_none_store_staging_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = NoneStore(max_bytes=2_000_000)
    async with store.stage() as staged:
        await staged.write(PDF)
        await staged.write(b"z" * 1_000_000)
        assert staged.size == len(PDF) + 1_000_000
        assert (await staged.commit()).sha256 == sha(PDF + b"z" * 1_000_000)
        with pytest.raises(UsageError):
            await staged.commit()
    assert list(tmp_path.iterdir()) == []
    async with store.stage() as staged:
        staged.path.write_bytes(PDF)
        assert (await staged.commit(size=len(PDF))).sha256 == sha(PDF)
    assert list(tmp_path.iterdir()) == []
    async with store.stage() as staged:
        staged.path.write_bytes(b"z" * 2_000_001)
        with pytest.raises(TooLarge):
            await staged.commit()
        await staged.reset()
        with pytest.raises(StoreError, match="nothing was written"):
            await staged.commit()
        with pytest.raises(TooLarge):
            await staged.write(b"z" * 2_000_001)
        with pytest.raises(UsageError):
            await staged.commit()
    assert list(tmp_path.iterdir()) == []


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["plain", "with space", "100%25 #1?", "ünï", "a:b"])
def test_open_store_takes_folders_and_urls(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    for address in (place, str(place), place.as_uri()):
        store = open_store(address, max_bytes=5)
        assert isinstance(store, LocalStore) and store.root == place and store.max_bytes == 5
        again = open_store(store.url)
        assert isinstance(again, LocalStore) and again.root == place and again.url == store.url
    assert not place.exists()


def test_open_store_defaults_and_refusals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    default = open_store()
    assert (
        isinstance(default, LocalStore) and default.root == tmp_path / "abp-mcp-bridge" and default.max_bytes == 1 << 30
    )
    assert isinstance(open_store("none:"), NoneStore) and open_store("none:").url == "none:"
    monkeypatch.chdir(tmp_path)
    relative = open_store("sub/out")
    assert isinstance(relative, LocalStore) and relative.root == tmp_path / "sub/out"
    secret = "hunter2"
    for bad in (
        f"s3://user:{secret}@bucket/x?sig={secret}",
        "ftp:x",
        "file:relative",
        "file://host/x",
        "file:///x?y",
        "",
        "a\0b",
        "none:x",
    ):
        with pytest.raises(UsageError, match=r"file:///.*none:") as caught:
            open_store(bad)
        assert secret not in caught.value.message
    assert list(tmp_path.iterdir()) == []
