"""The local store: files that another program replaces, keeps open or refuses while an artifact is read, stored or
removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, PNG, fail_when, inner, refuse_links, sha, visible
from tests.support.portable_way import portable_way
from tests.support.slow import slow_but
from transports.artifacts import LocalStore, _files as system
from transports.artifacts._ref import OtherCase
from transports.artifacts.local._blobs import BlobStore
from transports.artifacts.local._index import read_metadata
from transports.artifacts.local._tree import Folder
from transports.errors import Corrupt, StoreError


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The portable way, which waits for no file that is open."""
    monkeypatch.setattr(system, "_PATIENCE", 0.0)
    with portable_way():
        yield


async def test_content_stored_again_during_damaged_read_is_kept(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await store.put_bytes(PDF)
    blob = root / ".abp/blobs" / ref.sha256
    blob.write_bytes(b"?" * len(PDF))
    quarantine = BlobStore.quarantine

    def later(*arguments: Any) -> Any:
        blob.write_bytes(PDF)  # the same inode, as of a new file that got the number of the former one
        return quarantine(*arguments)

    monkeypatch.setattr(BlobStore, "quarantine", later)
    with pytest.raises(Corrupt) as caught:
        await store.get(ref.id)
    assert "quarantine" not in str(caught.value)
    assert inner(root, "quarantine") == [] and await store.get(ref.id) == PDF


async def test_unmovable_damaged_content_is_not_reported_as_quarantined(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await store.put_bytes(PDF)
    (root / ".abp/blobs" / ref.sha256).write_bytes(b"?" * len(PDF))

    with monkeypatch.context() as patch:
        fail_when(patch, Folder, "move", lambda *_: True, errno.EACCES)
        with pytest.raises(Corrupt) as caught:
            await store.get(ref.id)
    assert "quarantine" not in str(caught.value) and inner(root, "quarantine") == []
    with pytest.raises(Corrupt, match="was put into quarantine"):
        await store.get(ref.id)


@pytest.mark.parametrize("replaced", [True, False])
async def test_retried_commit_rehashes_file(
    replaced: bool, store: LocalStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    async with store.stage() as staged:
        await staged.write(PDF)
        with monkeypatch.context() as patch:
            fail_when(patch, Folder, "move", lambda *arguments: arguments[-1].endswith(".json"), errno.EIO)
            with pytest.raises(StoreError):
                await staged.commit()
        if replaced:
            (tmp_path / "other").write_bytes(PNG)
            (tmp_path / "other").replace(staged.path)
            with pytest.raises(StoreError, match="replaced"):
                await staged.commit()
            assert await store.list() == [] and inner(root, "blobs") == []
        else:
            await staged.write(b"more")
            assert await store.get((await staged.commit()).id) == PDF + b"more"


async def test_metadata_of_id_differing_in_case_is_kept(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that ignores case: the other id came between the first look and the lock."""
    ref = await store.put_bytes(PDF)
    looks = [False, True]

    def other(*arguments: Any) -> Any:
        if looks.pop(0):
            raise OtherCase
        return read_metadata(*arguments)

    monkeypatch.setattr("transports.artifacts.local._blobs.read_metadata", other)
    assert not await store.delete(ref.id)
    looks[:] = [True]
    assert not store._blobs.quarantine_metadata(ref.id)
    assert inner(root, "meta") == [f"{ref.id}.json"] and await store.get(ref.id) == PDF


async def test_failing_utime_does_not_fail_commit(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with portable_way():
        fail_when(monkeypatch, os, "utime", lambda path, *_: isinstance(path, str), errno.EACCES)
        assert await store.get((await store.put_bytes(PDF)).id) == PDF


@pytest.mark.usefixtures("portable")
@pytest.mark.parametrize("shared", slow_but([True, False], False))
async def test_copy_open_during_delete_is_removed_by_later_sweep(
    shared: bool, store: LocalStore, root: Path, clock: Clock
) -> None:
    ref = await store.put_bytes(PDF, filename="a.pdf")
    if shared:
        await store.put_bytes(PDF, filename="b.pdf", namespace="other")
    with (root / "a.pdf").open("rb"):
        assert await store.delete(ref.id)
        for _ in range(2):
            clock.passes(7200)
            assert await store.gc() == []
    clock.passes(7200)
    kinds = [one.kind for one in await store.gc()]
    assert kinds == (["name"] if shared else ["name", "content"])
    assert visible(root) == (["b.pdf"] if shared else [])
    clock.passes(7200)
    assert await store.gc() == [] and inner(root, "staging") == []


@pytest.mark.usefixtures("portable")
async def test_an_open_leftover_does_not_stop_a_sweep(store: LocalStore, root: Path, clock: Clock) -> None:
    await store.put_bytes(PDF)
    staging, orphan = root / ".abp/staging", root / ".abp/blobs" / sha(PNG)
    leftovers = [staging / "999999999-0a", staging / "999999999-0b", orphan, root / ".abp/quarantine" / sha(PNG)]
    orphan.parent.mkdir(exist_ok=True)
    for leftover in leftovers:
        leftover.write_bytes(PNG)
    clock.passes(200_000)
    with leftovers[0].open("rb"), leftovers[2].open("rb"):
        assert [one.kind for one in await store.gc()] == ["staged", "quarantine"]
    assert [one.kind for one in await store.gc()] == ["staged", "content"]


@pytest.mark.usefixtures("portable")
@pytest.mark.parametrize("opened", slow_but(["metadata", "content", "name"], "metadata"))
async def test_metadata_repair_leaves_open_files_to_later_sweep(
    opened: str, store: LocalStore, root: Path, clock: Clock
) -> None:
    ref = await store.put_bytes(PDF, filename="a.pdf")
    paths = {
        "metadata": root / ".abp/meta" / f"{ref.id}.json",
        "content": root / ".abp/blobs" / ref.sha256,
        "name": root / "a.pdf",
    }
    paths["metadata"].write_text("{")
    with paths[opened].open("rb"):
        (told,) = [one for one in (await store.fsck(repair=True)).problems if one.kind == "metadata"]
        moved = opened != "metadata"
        assert ("it was put into quarantine" in told.message) == moved
        assert {name: path.exists() for name, path in paths.items()} == {
            "metadata": not moved,
            "content": not moved or opened == "content",
            "name": not moved or opened == "name",
        }
    await store.fsck(repair=True)
    clock.passes(7200)
    kinds = {"metadata": [], "content": ["content"], "name": ["name"]}
    assert [one.kind for one in await store.gc()] == kinds[opened]
    assert visible(root) == [] and (await store.fsck()).problems == ()
    assert (await store.put_bytes(PDF, filename="a.pdf")).path == paths["name"]


@pytest.mark.usefixtures("portable")
async def test_open_damaged_copy_does_not_block_storing_content_again(
    store: LocalStore, root: Path, clock: Clock
) -> None:
    ref = await store.put_bytes(PDF, filename="a.pdf")
    content = root / ".abp/blobs" / ref.sha256
    times = content.stat()
    for path in (content, root / "a.pdf"):
        path.write_bytes(PDF[::-1])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with (root / "a.pdf").open("rb"):
        again = await store.put_bytes(PDF, filename="a.pdf")
        assert again.path == root / "a-2.pdf" and again.path.read_bytes() == PDF
    clock.passes(7200)
    assert [one.kind for one in await store.gc()] == ["name"] and visible(root) == ["a-2.pdf"]
    assert await store.get(again.id) == PDF
