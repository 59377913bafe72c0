"""Copies of artifacts out of a store: whole, verified, or not there at all."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.artifacts.test_contract import kind, opened, store
from tests.support.local_store import PDF, PNG, visible
from transports.artifacts import ArtifactRef, ArtifactStore, LocalStore, NoneStore, Scope
from transports.errors import ArtifactNotFound, Corrupt, StoreError, StoreFull, UsageError

__all__ = ["kind", "opened", "store"]


async def test_export_creates_folders_and_replaces_file(store: ArtifactStore, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    ref, other = await store.put_bytes(data), await store.put_bytes(PDF)
    target = tmp_path / "new" / "deep" / "file.bin"
    for artifact, content in ((ref, data), (ref.id, data), (other, PDF)):
        assert await store.export(artifact, target) == target.resolve() and target.read_bytes() == content
    assert await store.export(ref, str(target)) == target.resolve()
    assert visible(target.parent) == ["file.bin"]
    empty = await store.put_bytes(b"")
    assert (await store.export(empty, tmp_path / "empty")).read_bytes() == b""


async def test_exporting_unknown_artifact_creates_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    ref = await store.scoped(Scope(session="theirs")).put_bytes(PDF)
    view = store.scoped(Scope(session="mine"))
    for artifact in (ref, ref.id, "nothing_0123456789ab"):
        with pytest.raises(ArtifactNotFound):
            await view.export(artifact, tmp_path / "new" / "file.bin")
    with pytest.raises(ArtifactNotFound, match="not kept"):
        await NoneStore().export(ref, tmp_path / "new" / "file.bin")
    with pytest.raises(UsageError, match=r"await app\.save\(ref, path\)"):
        (await NoneStore().put_bytes(PDF)).save_as(tmp_path / "new" / "file.bin")
    assert not (tmp_path / "new").exists()


async def test_reference_with_mismatched_content_is_not_exported(store: ArtifactStore, tmp_path: Path) -> None:
    ref = await store.put_bytes(PDF)
    target = tmp_path / "file.bin"
    target.write_text("before")
    for wrong in ({"sha256": "0" * 64}, {"size_bytes": ref.size_bytes + 1}):
        fields = {name: getattr(ref, name) for name in ArtifactRef.__dataclass_fields__} | wrong
        with pytest.raises(Corrupt, match="nothing was written"):
            await store.export(ArtifactRef(**fields), target)
    assert target.read_text() == "before" and not [name for name in visible(tmp_path) if name.startswith(".abp-")]


async def test_damaged_content_is_not_exported(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    ref = await store.put_bytes(PDF)
    assert ref.path is not None
    ref.path.write_bytes(PDF[:-1] + b"!")
    folder = tmp_path / "exported"
    with pytest.raises(Corrupt):
        ref.save_as(folder / "saved.pdf")
    with pytest.raises(Corrupt):
        await store.export(ref, folder / "exported.pdf")
    assert not folder.exists() or visible(folder) == []


async def test_cancelled_export_keeps_existing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path / "out")
    ref = await store.put_bytes(os.urandom(3_000_000))
    target = tmp_path / "file.bin"
    target.write_text("before")
    first = asyncio.Event()

    async def slow(*_: object) -> AsyncGenerator[bytes, None]:
        yield b"x" * 1000
        first.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "_read_range", slow)
    task = asyncio.create_task(store.export(ref, target))
    await first.wait()
    assert len(visible(tmp_path)) == 3  # the store, the file, and a temporary file
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert visible(tmp_path) == ["file.bin", "out"] and target.read_text() == "before"


async def test_save_as_copies_the_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path / "out")
    ref = await store.put_bytes(PNG, filename="a.png")
    assert ref.path == tmp_path / "out" / "a.png" and ref.as_dict()["path"] == str(ref.path)
    monkeypatch.chdir(tmp_path)
    assert ref.save_as("new/b.png") == tmp_path / "new" / "b.png"
    assert (tmp_path / "new" / "b.png").read_bytes() == PNG and visible(tmp_path / "new") == ["b.png"]
    ref.path.unlink()
    with pytest.raises(StoreError, match="cannot read an artifact"):
        ref.save_as(tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


async def test_exported_copy_keeps_mode_and_symlink_of_replaced_file(tmp_path: Path) -> None:
    ref = await LocalStore(tmp_path / "out").put_bytes(PDF)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert ref.save_as(tmp_path / "link") == tmp_path / "real"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == PDF
    (tmp_path / "kept.pdf").touch(mode=0o640)
    (tmp_path / "plain").touch()
    for name, like in (("kept.pdf", "kept.pdf"), ("new.pdf", "plain")):
        mode = (tmp_path / like).stat().st_mode
        assert stat.S_IMODE(ref.save_as(tmp_path / name).stat().st_mode) == stat.S_IMODE(mode)


async def test_export_does_not_replace_non_regular_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    ref = await store.put_bytes(PDF)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert ref.path is not None
    (tmp_path / "own").symlink_to(ref.path)
    unusable = {"folder": "name a file in it", "pipe": "regular file", "own": "own file", "\0": "choose another path"}
    for name, why in unusable.items():
        with pytest.raises(UsageError, match=why):
            ref.save_as(tmp_path / name)
        with pytest.raises(UsageError, match=why):
            await store.export(ref, tmp_path / name)
    assert visible(tmp_path) == ["folder", "out", "own", "pipe"] and visible(tmp_path / "folder") == []
    assert ref.path.read_bytes() == PDF


async def test_export_to_full_disk_leaves_no_file(small_disk: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    ref = await store.put_bytes(os.urandom(10 << 20))
    with pytest.raises(StoreFull, match="choose another path"):
        ref.save_as(small_disk / "file.bin")
    with pytest.raises(StoreFull, match="choose another path"):
        await store.export(ref, small_disk / "file.bin")
    assert visible(small_disk) == []
