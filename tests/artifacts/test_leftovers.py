"""What a writer or a deleter leaves that dies between any two steps, and what others leave in the folders of a local
store: names, symlinks, changes of the folder."""

from __future__ import annotations

import ast
import asyncio
import itertools
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, inner, run_script, sha, visible
from tests.support.slow import slow_but
from transports.artifacts import LocalStore

KILLED_AT_EACH_STEP = """
import asyncio, errno, os, sys, time
from pathlib import Path
from transports.artifacts import LocalStore
job, way, top = sys.argv[1], sys.argv[2], Path(sys.argv[3])
STEPS = ("open", "link", "rename", "replace", "unlink")
real_time, real_link = time.time, os.link
def no_links(*_, **__):
    raise OSError(errno.EPERM, "no links")
def die_at(step):
    count = [0]
    def wrap(function):
        def call(*arguments, **options):
            if function.__name__ != "open" or arguments[1] & os.O_EXCL:  # what changes a folder
                count[0] += 1
            if count[0] == step:
                os._exit(9)
            return function(*arguments, **options)
        return call
    for name in STEPS:
        setattr(os, name, wrap(getattr(os, name)))
async def work(store, ref):
    if job == "put":
        await store.put_bytes(b"secret", filename="secret.txt")
    else:
        await store.delete(ref.id)
async def look(root):
    store = LocalStore(root)
    refs = await store.list()
    owned = {"own.txt", *(Path(ref.path).name for ref in refs)}
    before = sorted(one.kind for one in (await store.fsck()).problems)
    await store.gc()
    left = sorted(set(os.listdir(root)) - owned - {".abp"})
    files = [path for path in root.rglob("*") if path.is_file()]
    traces = [str(path) for path in files if not refs and path.read_bytes() == b"secret" and path.name != "own.txt"]
    problems = [str(one) for one in (await store.fsck()).problems if one.kind != "index"]
    return before, left + traces + problems
if way == "copies":
    os.link = no_links
elif way == "portable":
    from tests.support.portable_way import portable_way
    portable = portable_way()
    portable.__enter__()
seen, bad = set(), []
for step in range(1, 200):
    root = top / str(step)
    store = LocalStore(root)
    ref = asyncio.run(store.put_bytes(b"secret", filename="secret.txt"))
    if job == "put":
        asyncio.run(store.delete(ref.id))
    (root / "own.txt").write_bytes(b"secret")
    if not (pid := os.fork()):
        die_at(step)
        asyncio.run(work(store, ref))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    time.time = lambda: real_time() + 7200
    kinds, wrong = asyncio.run(look(root))
    time.time = real_time
    seen.update(kinds)
    if wrong:
        bad.append((step, wrong))
    if status == 0:
        break
assert status == 0 and step > 3, (status, step)
print((sorted(seen), bad))
"""


@pytest.mark.load
@pytest.mark.fault(41)
@pytest.mark.parametrize(
    ("job", "way"), slow_but(itertools.product(["put", "delete"], ["links", "copies", "portable"]), ("put", "links"))
)
def test_process_killed_between_steps_leaves_nothing_after_gc(job: str, way: str, tmp_path: Path) -> None:
    kinds, bad = ast.literal_eval(run_script(KILLED_AT_EACH_STEP, job, way, tmp_path))
    assert bad == []
    assert "name" in kinds and "orphan" in kinds  # fsck had told of them


async def test_foreign_files_in_root_are_kept(store: LocalStore, root: Path, clock: Clock) -> None:
    ref = await store.put_bytes(PDF, filename="report.pdf")
    (root / "copy.pdf").write_bytes(PDF)
    times = (root / "report.pdf").stat()
    os.utime(root / "copy.pdf", ns=(times.st_atime_ns, times.st_mtime_ns))  # as `cp -p` does
    (root / "empty.txt").touch()
    os.link(root / "report.pdf", root / "stray.pdf")
    assert [one.id for one in (await store.fsck()).problems] == ["stray.pdf"]
    assert list(await store.gc()) == []  # it is young
    clock.passes(7200)
    assert [(one.kind, one.id) for one in await store.gc()] == [("name", "stray.pdf")]
    assert visible(root) == ["copy.pdf", "empty.txt", "report.pdf"] and await store.get(ref.id) == PDF


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
