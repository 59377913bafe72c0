"""The local store: many writers, killed writers, cancellation, open files."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, assert_empty, fds, inner, run_processes, run_script, visible
from tests.support.slow import slow_but
from transports.artifacts import LocalStore
from transports.errors import SizeMismatch

#: What a program begins with, to take the portable way or the one of this system.
WAYS = {
    "posix": "",
    "portable": "from tests.support.portable_way import portable_way; way = portable_way(); way.__enter__()",
}


# --- processes, signals, cancellation --------------------------------------------------------------------------------


SAME_CONTENT = """
data = bytes(range(256)) * 4000
async def main(number):
    store = LocalStore(Path(sys.argv[1]))
    for name in (None, f"own-{number}.bin"):
        ref = await store.put_bytes(data, namespace="same", filename=name)
        assert Path(ref.path).read_bytes() == data and await store.get(ref.id) == data
"""


@pytest.mark.load
@pytest.mark.fault(44)
@pytest.mark.requirement("R4-15h")
@pytest.mark.parametrize(("way", "writers"), slow_but([("posix", 5), ("posix", 16), ("portable", 16)], ("posix", 5)))
def test_concurrent_writers_store_one_artifact(way: str, writers: int, store: LocalStore, root: Path) -> None:
    run_processes(writers, WAYS[way] + SAME_CONTENT, root)
    (ref,) = asyncio.run(store.list())
    names = visible(root)
    assert len(names) == writers + 1 and len([name for name in names if name.startswith("same_")]) == 1
    assert len({(root / name).stat().st_ino for name in names}) == (1 if way == "posix" else writers + 1)
    assert len(inner(root, "blobs")) == len(inner(root, "meta")) == 1 and inner(root, "staging") == []
    assert asyncio.run(store.delete(ref.id))
    assert_empty(root)


WRITE_AND_DELETE = """
async def main(number):
    store = LocalStore(Path(sys.argv[1]))
    for turn in range(int(sys.argv[2])):
        ref = await store.put_bytes(b"shared" * 1000, namespace="abc"[turn % 3], filename="x.bin")
        with suppress(ArtifactNotFound):
            assert await store.get(ref) == b"shared" * 1000
        await store.delete(ref.id)
"""


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.fault(44)
@pytest.mark.parametrize(("way", "turns"), slow_but([("posix", 6), ("posix", 25), ("portable", 25)], ("posix", 6)))
def test_concurrent_writers_and_deleters_do_not_fail(way: str, turns: int, root: Path) -> None:
    run_processes(6, WAYS[way] + WRITE_AND_DELETE, root, turns)
    assert_empty(root)


WRITE_WITH_RETENTION = """
async def main(number):
    root, stopped, parent = Path(sys.argv[1]), Path(sys.argv[1] + ".stopped"), os.getppid()
    if number:
        store = LocalStore(root)
        while not stopped.exists() and os.getppid() == parent:
            await store.list()
            problems = (await store.fsck()).problems
            assert not problems, problems
        return
    view = LocalStore(root, retention=Retention(max_artifacts_per_session=5)).scoped(Scope(session="s"))
    most = 0
    try:
        for turn in range(200):
            await view.put_bytes(b"%d" % turn)
            most = max(most, len(os.listdir(root / ".abp" / "meta")))
        assert most == 5
    finally:
        stopped.touch()
"""


@pytest.mark.slow
def test_lists_and_checks_beside_a_writer_hide_no_artifact_and_report_no_problem(root: Path) -> None:
    run_processes(3, WRITE_WITH_RETENTION, root)


KILLED = """
import asyncio, hashlib, os, random, signal, sqlite3, sys, time
from pathlib import Path
from transports.artifacts import LocalStore
root, COPIES = Path(sys.argv[1]), "way" in globals()
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
    whole = {path.name for path in root.glob(".abp/blobs/*")}
    for path in [*root.glob("*.bin"), *root.glob(".abp/blobs/*")]:  # also what no id names is whole
        data = path.read_bytes()  # a copy begins as an empty file, which reserves its name
        assert hashlib.sha256(data).hexdigest() in whole or (not data and COPIES), path
    assert not [problem for problem in (await store.fsck()).problems if problem.kind not in ("orphan", "name", "index")]
    assert not [problem for problem in (await store.fsck()).problems if problem.kind == "index"]  # it is mended
    for ref in refs:
        await store.delete(ref.id)
    return len(refs)
counts = []
gate, go = os.pipe()
os.set_blocking(go, False)
for round in range(int(sys.argv[2])):
    if not (pid := os.fork()):
        asyncio.run(write(round))
    os.read(gate, 1)  # it has stored something
    time.sleep(chance.uniform(0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.write(go, b"x")
    os.read(gate, 10_000)
    if round % 20 == 19:
        counts.append(asyncio.run(check()))
print(counts)
"""


@pytest.mark.slow
@pytest.mark.fault(41)
@pytest.mark.parametrize(("way", "writers"), [("posix", 200), ("portable", 40)])
def test_killed_writers_leave_no_partial_artifacts(
    way: str, writers: int, store: LocalStore, root: Path, clock: Clock
) -> None:
    printed = run_script(WAYS[way] + KILLED, root, writers, timeout=300)  # a guard against a hang, not a measurement
    counts = ast.literal_eval(printed)
    assert len(counts) == writers // 20 and min(counts) >= 20
    # The script has deleted all artifacts: whatever is there was left by a writer that died.
    assert inner(root, "meta") == [] == inner(root, "quarantine")
    # What is written of a name that a copy gets goes with it, and is not told.
    left = {("staged", name) for name in inner(root, "staging") if not name.endswith(".name")}
    left |= {("content", Path(name).name) for name in inner(root, "blobs")}
    left |= {("name", name) for name in visible(root)}
    assert "staged" in {kind for kind, _ in left} or writers < 200  # 200 deaths leave something, 40 may not
    problems = {(one.kind, one.id) for one in asyncio.run(store.fsck()).problems}
    told = {("orphan" if kind == "content" else kind, name) for kind, name in left if kind != "staged"}
    assert problems == told
    assert asyncio.run(store.gc()) == []  # it is young
    clock.passes(7200)
    assert {(one.kind, one.id) for one in asyncio.run(store.gc(dry_run=True))} == left
    assert {(one.kind, one.id) for one in asyncio.run(store.gc())} == left
    assert_empty(root)
    ref = asyncio.run(store.put_bytes(PDF))
    assert asyncio.run(store.get(ref.id)) == PDF


@pytest.mark.fault(41)
async def test_sweep_keeps_young_files_and_files_of_live_processes(root: Path, clock: Clock) -> None:
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
    store = LocalStore(root)
    clock.passes(1.5 * hour)
    async with store.stage():
        left = inner(root, "staging")
    clock.passes(-1.5 * hour)
    assert left == sorted([f"{os.getpid()}-0c", f"{os.getppid()}-0d", f"{os.getpid()}-0f", "notes.txt"])
    # a process with the number of the dead writer, started after its last write, is another one
    os.utime(living, (1_000_000_000,) * 2)
    async with LocalStore(root).stage():
        assert living.name not in inner(root, "staging")


async def test_store_reads_do_not_leak_file_descriptors(store: LocalStore) -> None:
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
        await store.put_bytes(PDF)
        assert await store.get("nothing_0123456789ab") is None
        await store.stat(ref.id)
        await store.list()
    assert fds() == before


def test_one_store_works_across_event_loops(root: Path) -> None:
    store = LocalStore(root)
    ref = asyncio.run(store.put_bytes(PDF))
    assert asyncio.run(store.get(ref.id)) == PDF
    assert asyncio.run(LocalStore(root).list()) == [ref]
