"""The local store: files that another program replaces, keeps open or refuses while an artifact is read, stored or
removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, PNG, inner, refuse_links, visible
from tests.support.portable_way import portable_way
from tests.support.slow import slow_but
from transports.artifacts import LocalStore, _files as system
from transports.artifacts.local._blobs import BlobStore
from transports.artifacts.local._tree import Folder
from transports.errors import Corrupt, StoreError


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


@pytest.mark.parametrize("replaced", [True, False])
async def test_retried_commit_rehashes_file(
    replaced: bool, store: LocalStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    move = Folder.move

    def broken(folder: Folder, name: str, target: Folder, new: str) -> None:
        if new.endswith(".json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        move(folder, name, target, new)

    async with store.stage() as staged:
        await staged.write(PDF)
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "move", broken)
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


@pytest.mark.parametrize("shared", slow_but([True, False], False))
async def test_copy_open_during_delete_is_removed_by_later_sweep(
    shared: bool, store: LocalStore, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_PATIENCE", 0.0)
    with portable_way():
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


async def test_open_damaged_copy_does_not_block_storing_content_again(
    store: LocalStore, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_PATIENCE", 0.0)
    with portable_way():
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
