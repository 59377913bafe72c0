"""The local store: what a writer or a deleter leaves that dies between any two steps is removed by a sweep."""

from __future__ import annotations

import ast
import itertools
import os
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, run_script, visible
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
