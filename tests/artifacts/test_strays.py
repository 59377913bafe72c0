"""What others left in the folders of a local store: names of dead writers, symlinks, changes of the folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import inner, sha, visible
from transports.artifacts import LocalStore

DEAD, DIGEST = 999_999_999, sha(b"x")


def intend(root: Path, name: str, process: int = DEAD, digest: str = DIGEST, number: str = "0a") -> Path:
    """Leave word of a name that a writer was about to give to a copy, as where there are no hard links."""
    intent = root / ".abp" / "staging" / f"{process}-{number}.name"
    intent.write_text(f"{digest}\n{name}")
    return intent


async def test_name_reserved_by_dead_writer_is_freed_after_an_hour(store: LocalStore, root: Path, clock: Clock) -> None:
    await store.put_bytes(b"x", filename="owned.bin")
    for name in ("", ".", "..", "a/b", "a\0b", "absent", "owned.bin"):
        intend(root, name, number=f"{len(inner(root, 'staging')):02x}")
    intend(root, "other.bin", digest="x" * 64, number="f0")
    for name in ("reserved.bin", "mine.bin", "other.bin", "theirs.bin"):
        (root / name).touch()
    (root / "theirs.bin").write_bytes(b"of a user, who was faster")
    intend(root, "theirs.bin", number="f1")
    intent = intend(root, "reserved.bin", number="f2")
    alive = intend(root, "mine.bin", os.getpid())
    clock.passes(1800)
    assert await store.gc() == []
    assert intent.exists()
    clock.passes(1810)
    assert [(one.kind, one.id, one.size_bytes) for one in await store.gc()] == [("name", "reserved.bin", 0)]
    assert visible(root) == ["mine.bin", "other.bin", "owned.bin", "theirs.bin"]
    assert inner(root, "staging") == [alive.name]


async def test_gc_removes_dead_writers_copy_despite_name_contention(
    store: LocalStore, root: Path, clock: Clock
) -> None:
    ref = await store.put_bytes(b"x", filename="a.bin")
    content = root / ".abp" / "blobs" / DIGEST
    (root / ".abp" / "meta" / f"{ref.id}.json").unlink()
    (root / "a.bin").unlink()
    shutil.copy2(content, root / "copy.bin")
    for number in range(8):  # they are read in any order
        intend(root, "copy.bin", number=f"{number:02x}", digest=sha(b"%d" % number))
    intend(root, "copy.bin", number="0a")
    clock.passes(7200)
    assert ("name", "copy.bin") in [(one.kind, one.id) for one in await store.gc()]
    assert visible(root) == []


async def test_gc_removes_name_and_content_of_a_lost_artifact_in_one_run(
    store: LocalStore, root: Path, clock: Clock
) -> None:
    ref = await store.put_bytes(b"x", filename="a.bin")
    (root / ".abp" / "meta" / f"{ref.id}.json").unlink()
    await asyncio.sleep(0.5)
    clock.passes(3599.8)  # where the name is a hard link, its removal makes the content young again
    announced = await store.gc(dry_run=True)
    assert {(removal.kind, removal.id) for removal in announced} == {("name", "a.bin"), ("content", ref.sha256)}
    assert {*await store.gc()} == {*announced}


async def test_fsck_reports_every_symlink_despite_missing_folder(store: LocalStore, root: Path) -> None:
    await store.put_bytes(b"x")
    inside = root / ".abp"
    shutil.rmtree(inside / "locks")
    shutil.rmtree(inside / "quarantine", ignore_errors=True)
    links = [inside / part / "link" for part in ("meta", "staging", "blobs")]
    for link in links:
        link.symlink_to(root)
    told = {one.id for one in (await store.fsck()).problems if one.kind == "symlink"}
    assert told == {str(link.relative_to(root)) for link in links}


async def test_change_token_changes_with_store_content(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transports.artifacts.local._store._TIME_RESOLUTION", 60.0)  # however busy the machine is
    store = LocalStore(root)
    assert await store.change_token() == 0
    await store.put_bytes(b"x")
    first = await store.change_token()
    assert first != await store.change_token()  # another change within the time's resolution would not be seen
    clock.passes(100)
    second = await store.change_token()
    assert second == await store.change_token() != first
    await store.put_bytes(b"y")
    assert await store.change_token() != second


@pytest.mark.parametrize("suffix", ["", ".crdownload"])
async def test_download_of_a_browser_that_was_killed_is_removed_after_an_hour(tmp_path: Path, suffix: str) -> None:
    async with LocalStore(tmp_path) as store:
        ref = await store.put_text("a")
        download = tmp_path / ".abp" / "staging" / f"d7266ec6-c579-4cde-ba2e-e0123456789a{suffix}"
        download.write_bytes(bytes(7))
        assert await store.gc() == []
        hours_ago = time.time() - 7200
        os.utime(download, (hours_ago, hours_ago))
        assert [(removal.kind, removal.id) for removal in await store.gc()] == [("staged", download.name)]
        assert not download.exists() and await store.get(ref.id) == b"a"
