"""The local store: deleting, damaged content, folders of others, disks that refuse."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_store import PDF, PNG, assert_empty, fail_when, inner, refuse_links, run_script, visible
from transports.artifacts import LocalStore
from transports.errors import Corrupt, StoreError, StoreFull, UsageError

# --- deleting, damage, drift -----------------------------------------------------------------------------------------


@pytest.mark.fault(47)
@pytest.mark.requirement("R2-6.4f", "R4-11g")
@pytest.mark.parametrize("damage", ["flip", "longer", "shorter"])
async def test_damage_is_detected_quarantined_and_healed(damage: str, store: LocalStore, root: Path) -> None:
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


async def test_part_of_cut_or_longer_content_raises_corrupt(store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(b"x" * 300, filename="a.bin")
    async with aclosing(store.open(ref, offset=1, length=200, chunk_size=100)) as chunks:
        assert await anext(chunks) == b"x" * 100
        os.truncate(root / "a.bin", 50)
        with pytest.raises(Corrupt, match=ref.id):
            await anext(chunks)
    assert inner(root, "quarantine") == [ref.sha256]
    longer = await store.put_bytes(PDF, filename="a.pdf")
    os.truncate(root / "a.pdf", len(PDF) + 1)
    async with aclosing(store.open(longer, offset=1, length=2)) as chunks:
        with pytest.raises(Corrupt, match=longer.id):
            await anext(chunks)


@pytest.mark.fault(47)
async def test_storing_again_does_not_reuse_damaged_copy(store: LocalStore, root: Path) -> None:
    ref = await store.put_bytes(PDF)
    with Path(str(ref.path)).open("r+b") as file:
        file.write(b"!")
    assert await store.get((await store.put_bytes(PDF)).id) == PDF
    assert inner(root, "quarantine") == [ref.sha256] and Path(str(ref.path)).read_bytes() == PDF
    await store.delete(ref.id)
    assert_empty(root)
    assert inner(root, "quarantine") == []


# --- folders that are not ours ---------------------------------------------------------------------------------------


@pytest.mark.fault(43)
@pytest.mark.parametrize("place", ["", ".abp", ".abp/staging", ".abp/blobs", ".abp/meta", ".abp/locks"])
async def test_symlinked_folders_are_rejected(place: str, store: LocalStore, root: Path, tmp_path: Path) -> None:
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


@pytest.mark.fault(40)
async def test_unusable_store_root_raises_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, why in (("file", "not a folder"), ("x" * 300, "too long")):
        with pytest.raises(StoreError, match=why):
            await LocalStore(tmp_path / name).put_bytes(PDF)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root: to give a folder away")
async def test_default_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root, own = tmp_path / "abp-mcp-bridge", tmp_path / "abp-mcp-bridge-root"
    root.mkdir()
    assert LocalStore(None).root == root and not caplog.text
    await LocalStore(None).put_bytes(PDF)
    os.chown(root, 65534, 65534)
    for _ in range(2):
        store = LocalStore(None)
        assert store.root == own
        assert [ref.id for ref in [await store.put_bytes(PDF)]] == [ref.id for ref in await store.list()]
    told = f"{root} belongs to nobody; files go to {own} (ABP_OUTPUT_DIR names another folder)"
    assert [record.getMessage() for record in caplog.records] == [told]
    os.chown(own, 65534, 65534)
    for store in (LocalStore(None), LocalStore(root)):
        with pytest.raises(StoreError, match=r"belongs to nobody and is not used; .*ABP_OUTPUT_DIR"):
            await store.put_bytes(PDF)
        with pytest.raises(StoreError, match="belongs to nobody"):
            await store.list()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root: to become somebody else")
def test_users_of_one_machine_get_separate_default_folders() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        top = Path(folder)
        top.chmod(0o1777)
        asyncio.run(LocalStore(top / "abp-mcp-bridge").put_bytes(PDF))
        as_nobody = AS_NOBODY.replace("LocalStore(Path(place))", "LocalStore(None)")
        code = as_nobody.replace("import asyncio", f"import tempfile; tempfile.tempdir = {folder!r}\nimport asyncio")
        done = subprocess.run(
            [sys.executable, "-c", code, "default"], capture_output=True, text=True, check=True, timeout=60
        )
        assert (top / "abp-mcp-bridge-nobody" / "x.txt").read_bytes() == b"x"
        assert done.stdout == "" and done.stderr.count("\n") == 1
        assert f"{top}/abp-mcp-bridge belongs to root; files go to {top}/abp-mcp-bridge-nobody" in done.stderr
        for mode in (0o700, 0o777):
            (top / "abp-mcp-bridge").chmod(mode)
            assert "make the folder writable, or name another folder" in run_script(AS_NOBODY, top / "abp-mcp-bridge")


# --- disks that refuse -----------------------------------------------------------------------------------------------


@pytest.mark.fault(39)
async def test_full_disk_raises_and_keeps_earlier_artifact(small_disk: Path) -> None:
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


@pytest.mark.fault(39)
async def test_store_keeps_min_free_disk_space(small_disk: Path) -> None:
    store = LocalStore(small_disk / "out", min_free_bytes=4 << 20)
    earlier = await store.put_bytes(PDF, filename="earlier.pdf")
    with pytest.raises(StoreFull, match="ABP_MIN_FREE_DISK"):
        await store.put_bytes(os.urandom(5 << 20))
    assert os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize > 4 << 20
    with pytest.raises(StoreFull):
        async with store.stage() as staged:
            staged.path.write_bytes(os.urandom(5 << 20))  # as a browser does
            await staged.commit()
    (small_disk / "filler").write_bytes(os.urandom(5 << 20))
    with pytest.raises(StoreFull):  # before anybody writes
        async with store.stage():
            raise AssertionError("it began")
    assert inner(store.root, "staging") == [] and visible(store.root) == ["earlier.pdf"]
    assert await store.get(earlier.id) == PDF


@pytest.mark.fault(40)
async def test_read_only_file_system_allows_only_reads(small_disk: Path) -> None:
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
    for place in sys.argv[1:]:
        try:
            await LocalStore(Path(place)).put_bytes(b"x", filename="x.txt")
        except StoreError as error:
            print(error.details["errno"], error.code, error.message)
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.fault(40)
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root: to become somebody else")
def test_folder_without_permission_raises_and_changes_nothing() -> None:
    def files() -> list[Path]:
        return [path for path in sorted(top.rglob("*")) if path.is_file() and path.parent.name != "locks"]

    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        top = Path(folder)
        top.chmod(0o755)
        closed = {"a": ".", "b": "out", "c": "out/.abp/staging", "d": "out/.abp/meta", "e": "out/.abp/blobs"}
        places = [top / name / "out" for name in closed]
        for place, inside in zip(places, closed.values(), strict=True):
            place.parent.mkdir()
            if inside != ".":
                asyncio.run(LocalStore(place).put_bytes(PDF))
                for path in [place, *place.rglob("*")]:
                    os.chown(path, 65534, 65534)
            (place.parent / inside).chmod(0o555)
        before = files()
        printed = run_script(AS_NOBODY, *places).splitlines()
        for line, place in zip(printed, places, strict=True):
            assert line.startswith("EACCES STORE_ERROR ") and "ABP_OUTPUT_DIR" in line and str(place.parent) in line
        assert files() == before


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


@pytest.mark.slow
@pytest.mark.fault(40)
def test_exhausted_file_descriptors_leave_no_staging_files(root: Path) -> None:
    assert run_script(OUT_OF_FILES, root) == "['.abp', 'first.txt', 'second.txt'] 2\n"
    assert inner(root, "staging") == []


def fail_sync(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the disk fail at one fsync; steps count from 1."""
    calls = itertools.count(1)
    fail_when(monkeypatch, os, "fsync", lambda _: next(calls) == step, errno.EIO)


@pytest.mark.parametrize(
    ("step", "links"), [*((step, False) for step in range(1, 8)), *((step, True) for step in (1, 5, 6))]
)
async def test_failed_fsync_leaves_nothing_visible(
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


@pytest.mark.parametrize("step", range(1, 7))
async def test_failed_fsync_keeps_existing_artifact(
    step: int, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await store.put_bytes(PDF, filename="one.pdf")
    with monkeypatch.context() as patch:
        fail_sync(patch, step)
        with pytest.raises(StoreError):
            await store.put_bytes(PDF, filename="two.pdf")
    now = await store.stat(ref.id)
    assert await store.get(ref.id) == PDF == Path(str(now.path)).read_bytes()
    assert Path(str(now.path)).name == now.filename == ("two.pdf" if step == 6 else "one.pdf")  # the last is after it
    await store.delete(ref.id)
    assert_empty(store.root)


@pytest.mark.skipif(os.name != "posix", reason="Windows makes no links")
async def test_content_that_cannot_be_closed_is_not_stored(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems report only at the end what they could not write."""
    await store.delete((await store.put_bytes(PDF)).id)  # all folders are made
    link = os.link

    def link_and_break(source: str, target: str, **options: Any) -> None:
        link(source, target, **options)
        inode = os.stat(source, dir_fd=options["src_dir_fd"]).st_ino
        descriptors = [fd for fd in range(256) if is_open_as(fd, inode)]
        assert descriptors
        for fd in descriptors:
            os.close(fd)

    async with store.stage() as staged:
        await staged.write(PDF)
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", link_and_break)
            with pytest.raises(StoreError):
                await staged.commit()
        assert visible(store.root) == inner(store.root, "blobs") == inner(store.root, "meta") == []
        ref = await staged.commit()
    assert await store.get(ref.id) == PDF


def is_open_as(fd: int, inode: int) -> bool:
    with suppress(OSError):
        return os.fstat(fd).st_ino == inode
    return False


@pytest.mark.parametrize("call", ["unlink", "close"])
async def test_error_after_commit_does_not_fail_it(
    call: str, store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, call)
    failed = []

    def failing(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        if inner(root, "meta"):
            failed.append(arguments)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        ref = await store.put_bytes(PDF)
    assert failed and await store.get(ref.id) == PDF


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
async def test_store_works_without_directory_fsync(
    code: int, store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, files = os.fsync, []

    def files_only(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, os.strerror(code))
        files.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fsync", files_only)
    ref = await store.put_bytes(PDF, filename="report.pdf")
    assert len(files) == 2 and await store.get(ref.id) == PDF  # content and metadata are synced
    assert await store.delete(ref.id)
    assert_empty(root)
