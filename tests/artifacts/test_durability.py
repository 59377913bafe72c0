"""What waits for the disk: files always, answers without a file only if that is asked for."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import Connect
from transports.artifacts import LocalStore
from transports.memory import Call


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The inodes that were synced to the disk."""
    inodes: set[int] = set()
    fsync = os.fsync

    def record(fd: int) -> None:
        fsync(fd)
        inodes.add(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", record)
    yield inodes


def inode(path: Path) -> int:
    return path.stat().st_ino


async def test_content_and_metadata_are_fsynced_unless_durability_is_process(tmp_path: Path, synced: set[int]) -> None:
    async with LocalStore(tmp_path / "out") as store:
        await store.put_bytes(b"first", namespace="a")  # makes the folders, which are synced always
        synced.clear()
        quick = await store.put_bytes(b"quick", namespace="a", filename="a.txt", durability="process")
        assert not synced
        slow = await store.put_bytes(b"slow", namespace="a", filename="b.txt")
        needed = {store.root, store.root / ".abp" / "meta", store.root / ".abp" / "meta" / f"{slow.id}.json"}
        blob = store.root / ".abp" / "blobs" / slow.sha256
        assert {inode(path) for path in (*needed, blob, blob.parent)} <= synced
        synced.clear()
        again = await store.put_bytes(b"quick", namespace="a")  # a file needs it
        blob = store.root / ".abp" / "blobs" / again.sha256
        assert {inode(blob), inode(blob.parent), inode(store.root)} <= synced
        for ref, data in ((quick, b"quick"), (slow, b"slow")):
            assert (ref.path and ref.path.read_bytes()) == data


@pytest.mark.parametrize("setting", ["", "disk"])
async def test_answer_without_file_is_fsynced_only_if_configured(
    app_of: Connect, synced: set[int], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    async def answer(params: Mapping[str, object], call: Call) -> object:
        return {"n": 1, **params}

    monkeypatch.setenv("ABP_DURABILITY", setting)
    async with app_of({"answer": answer}) as app:
        json = (await app.call("answer")).artifact()
        file = (
            await app.call("answer", {"file": {"content": "aGVsbG8=", "mimeType": "image/png", "encoding": "base64"}})
        ).artifact("file")
    assert json.path and file.path
    assert inode(file.path) in synced
    assert (inode(json.path) in synced) == (setting == "disk")
