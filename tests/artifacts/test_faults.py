"""What stores survive: an index that is lost or lies, folders that were tampered with, a full disk, and a real S3
server that freezes, is cut off, refuses, or gives back other bytes."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.artifacts.conftest import database
from tests.support.clock import Clock
from tests.support.limits import change_limits
from tests.support.local_store import PDF, inner, run_processes, visible
from tests.support.object_server import BUCKET, SECRET, Proxy, SeaweedFS, environment
from tests.support.slow import slow_but
from transports.artifacts import ArtifactRef, LocalStore, Retention, Scope
from transports.artifacts.local import _index
from transports.artifacts.objects._store import ObjectStore
from transports.errors import ArtifactNotFound, Corrupt, StoreFull, StoreUnavailable

HOUR = 3600


async def put(store: LocalStore, count: int, **options: Any) -> list[ArtifactRef]:
    return [
        await store.put_bytes(b"%d" % n, namespace=f"n{n:03}", filename=f"{n}.txt", **options) for n in range(count)
    ]


# --- the index --------------------------------------------------------------------------------------------------------


KEEPS = Retention(ttl_seconds=None, max_artifact_bytes=None)


@pytest.mark.load
@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("damage", "live"),
    slow_but(
        itertools.product(["delete", "empty", "half", "junk", "of another version"], [True, False]),
        *(("delete", False), ("empty", True), ("junk", True), ("of another version", False)),
    ),
)
async def test_lost_or_broken_index_is_rebuilt(
    damage: str, live: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_limits(monkeypatch, _index, pause=0.0)
    store = LocalStore(root, retention=KEEPS if live else None)  # one that stays open, or that is opened when asked
    refs = await put(store, 12, durability="process")
    assert await store.list() == refs
    path = root / ".abp/index.sqlite"
    other = database(root)  # another process, which may have it open
    if damage == "delete":
        path.unlink()
    elif damage == "of another version":
        with closing(database(root)) as db:
            db.execute("PRAGMA user_version = 99")
            db.execute("DROP TABLE artifacts")
    elif damage == "junk":
        path.write_bytes(os.urandom(path.stat().st_size))
    else:
        other.execute("SELECT count(*) FROM artifacts").fetchone()
        os.truncate(path, 0 if damage == "empty" else path.stat().st_size // 2)
    assert await store.list() == refs
    more = await store.put_bytes(b"more")
    assert await store.list() == [*refs, more]
    with closing(database(root)) as db:
        assert db.execute("SELECT count(*) FROM artifacts").fetchone() == (13,)
    assert await LocalStore(root).list() == [*refs, more]
    assert (await LocalStore(root).fsck()).problems == ()
    other.close()


@pytest.mark.fault(46)
async def test_tampered_index_is_corrected(store: LocalStore, root: Path) -> None:
    refs = await put(store, 5)
    assert await store.list() == refs
    with closing(database(root)) as db:
        db.execute("DELETE FROM artifacts WHERE id = ?", (refs[0].id,))
        db.execute("UPDATE artifacts SET size = 999 WHERE id = ?", (refs[1].id,))
        db.execute("UPDATE artifacts SET size = 999, inode = 1 WHERE id = ?", (refs[2].id,))  # of an older file
        columns = (
            "'x_0123456789ab', sha256, size, mime, names, source, created, stored, inode, used, NULL, NULL, NULL, NULL"
        )
        db.execute(f"INSERT INTO artifacts SELECT {columns} FROM artifacts WHERE id = ?", (refs[3].id,))
        db.commit()
    lie = (await LocalStore(root).list())[1]
    assert (lie.id, lie.size_bytes) == (refs[1].id, 999)
    assert await store.stat(lie.id) == refs[1] and await store.get(lie.id) == b"1"  # what counts is the metadata
    assert [ref for ref in await store.list() if ref.id != lie.id] == [refs[0], *refs[2:]]
    found = await store.fsck()
    assert [(one.kind, one.id) for one in found.problems] == [("index", refs[1].id)]
    assert (await store.fsck()).problems == () and await store.list() == refs


@pytest.mark.fault(43)
@pytest.mark.parametrize("name", ["index.sqlite", "index.sqlite-wal"])
async def test_symlinked_index_is_not_followed(
    name: str, root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    await LocalStore(root).put_bytes(PDF)
    path = root / ".abp" / name
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    store = LocalStore(root)
    refs = [*await store.list(), await store.put_bytes(b"x")]
    with caplog.at_level(logging.WARNING):
        assert await LocalStore(root).list() == refs  # read file by file
    assert f"{name} is not a regular file" in caplog.text
    assert [(one.kind, one.id) for one in (await store.fsck()).problems] == [("symlink", f".abp/{name}")]
    assert victim.read_bytes() == b"precious"


async def test_unwritable_index_does_not_block_store(store: LocalStore, root: Path) -> None:
    refs = await put(store, 2)
    with closing(database(root)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.MonkeyPatch.context() as patch:
            change_limits(patch, _index, wait=0.05)
            fresh = LocalStore(root)
            mine = await fresh.put_bytes(b"mine")
            assert await fresh.get(mine.id) == b"mine"
            assert {ref.id for ref in await fresh.list()} == {ref.id for ref in (*refs, mine)}
    assert {ref.id for ref in await LocalStore(root).list()} == {ref.id for ref in (*refs, mine)}


async def test_stale_index_row_is_not_reused_for_new_file_with_same_inode(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_limits(monkeypatch, _index, wait=0.05)
    store = LocalStore(root, retention=KEEPS)
    old = await store.put_bytes(b"same", filename="old.txt")
    assert await store.list() == [old]
    with closing(database(root)) as db:
        db.execute("BEGIN IMMEDIATE")  # such as another process that was stopped
        await store.delete(old.id)
        new = await store.put_bytes(b"same", filename="new.txt")
        db.execute("ROLLBACK")
        assert new.id == old.id
        await store.aclose()
        inode = (root / f".abp/meta/{new.id}.json").stat().st_ino
        db.execute("UPDATE artifacts SET inode = ?", (inode,))  # as file systems often do
        db.commit()
    reader = LocalStore(root)
    assert await reader.list() == [new]
    assert (await reader.fsck()).problems == ()


@pytest.mark.fault(39)
async def test_index_survives_full_disk(small_disk: Path) -> None:
    store = LocalStore(small_disk / "out")
    refs = await put(store, 20)
    with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(b"x" * 4096)
    with pytest.raises(StoreFull):
        await put(store, 40)
    there = await store.list()
    assert there[:20] == refs and await store.get(refs[0].id) == b"0"
    (small_disk / "filler").unlink()
    last = await store.put_bytes(b"last")
    assert (await LocalStore(small_disk / "out").list())[-1] == last
    assert [one for one in (await store.fsck()).problems if one.kind not in ("index", "orphan")] == []


# --- fsck and gc ------------------------------------------------------------------------------------------------------


@pytest.mark.fault(46)
async def test_fsck_names_each_problem(store: LocalStore, root: Path, tmp_path: Path) -> None:
    missing, flipped, unreadable, good = await put(store, 4)
    (root / ".abp/blobs" / missing.sha256).unlink()
    with (root / flipped.filename).open("r+b") as file:
        file.write(b"!")
    (root / ".abp/meta" / f"{unreadable.id}.json").write_text("{")
    (root / ".abp/meta/a_0123456789ab.json").symlink_to(tmp_path / "nowhere")
    found = await store.fsck()
    kinds = sorted((one.kind, one.id) for one in found.problems)
    assert kinds == sorted(
        [
            ("content", missing.id),
            ("content", flipped.id),
            ("metadata", unreadable.id),
            ("metadata", "a_0123456789ab"),
            ("symlink", ".abp/meta/a_0123456789ab.json"),
            ("orphan", unreadable.sha256),
        ]
    )
    assert inner(root, "quarantine") == [flipped.sha256]
    for ref in (missing, flipped):
        with pytest.raises(Corrupt):
            await store.get(ref.id)
    assert await store.get(good.id) == b"3"


WRITERS_AND_EVICTERS = """
async def main(number):
    store = LocalStore(Path(sys.argv[1]), retention=Retention(max_artifacts_per_session=5))
    view = store.scoped(Scope(session="shared"))
    for turn in range(30):
        ref = await view.put_bytes(b"%d" % turn * 1000, namespace=f"p{number}")
        with suppress(ArtifactNotFound):  # another process needed the room
            assert await view.get(ref) == b"%d" % turn * 1000
"""


@pytest.mark.slow
def test_concurrently_evicting_processes_leave_consistent_store(store: LocalStore, root: Path) -> None:
    run_processes(4, WRITERS_AND_EVICTERS, root)
    left = asyncio.run(store.list())
    assert 1 <= len(left) <= 5 + 3  # each of the others may have been on its way
    assert sorted(visible(root)) == sorted(ref.filename for ref in left)
    assert asyncio.run(store.fsck()).problems == ()


# --- the object store -------------------------------------------------------------------------------------------------


def below(server: SeaweedFS, url: str) -> list[str]:
    """What the server holds of a store, without its prefix."""
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
    return [name.removeprefix(prefix) for name in server.files(prefix)]


def overwrite(server: SeaweedFS, url: str, name: str, data: bytes) -> None:
    """Change what the server holds, behind the store's back."""
    path = f"{server.filer}/buckets/{BUCKET}/{url.removeprefix(f's3://{BUCKET}/')}/{name}"
    headers = {"Content-Type": "application/octet-stream"}
    urllib.request.urlopen(urllib.request.Request(path, data=data, method="PUT", headers=headers), timeout=10).close()


@pytest.mark.fault(46)
async def test_unreadable_bucket_metadata_is_reported_and_healed(memory_bucket: str, clock: Clock) -> None:
    store = ObjectStore(memory_bucket)
    good, bad = await store.put_bytes(b"good"), await store.put_bytes(b"bad")
    await store._bucket.put(f"meta/{bad.id}.json", b"{", "application/json")
    assert await store.list() == [good]
    for _ in range(2):
        assert [(one.kind, one.id) for one in (await store.fsck()).problems] == [("metadata", bad.id)]
    clock.passes(2 * HOUR)
    assert list(await store.gc()) == []  # its content is not known to be nobody's
    assert (await store.put_bytes(b"bad")).id == bad.id and await store.get(bad.id) == b"bad"  # storing again heals
    await store._bucket.put(f"meta/{bad.id}.json", b"{", "application/json")
    with pytest.raises(Corrupt):
        await store.stat(bad.id)
    assert await store.delete(bad.id) and not await store.exists(bad.id)
    await store.put_bytes(b"bad")
    await store._bucket.put(f"meta/{bad.id}.json", b"{", "application/json")
    (told,) = (await store.fsck(repair=True)).problems
    assert "quarantine" in told.message and (await store.fsck()).problems == ()
    assert await store.list() == [good] and await store.get(good.id) == b"good"
    assert f"quarantine/{bad.id}.json" in [one.key async for one in store._bucket.list("quarantine/")]
    assert len([one async for one in store._bucket.list("content/")]) == 1
    clock.passes(25 * HOUR)
    assert {one.kind for one in await store.gc()} == {"quarantine"}


@pytest.mark.slow
async def test_content_being_read_survives_deletion(bucket: str, object_server: SeaweedFS) -> None:
    store = ObjectStore(bucket)
    for remove in ("delete", "store again"):
        ref = await store.put_bytes(b"A" * 3_000_000)
        first, second = (store.open(ref.id, chunk_size=1000) for _ in range(2))
        await anext(first)
        await anext(second)
        (content,) = (name for name in below(object_server, bucket) if name.startswith("content/"))
        await (store.delete(ref.id) if remove == "delete" else store.put_bytes(b"A" * 3_000_000))
        assert content in below(object_server, bucket)
        await first.aclose()
        assert content in below(object_server, bucket)
        assert len(b"".join([chunk async for chunk in second])) == 2_999_000
        assert content not in below(object_server, bucket)


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.fault(48)
async def test_frozen_server_is_reported_unavailable_within_budget(bucket: str, object_server: SeaweedFS) -> None:
    store, hasty = ObjectStore(bucket), ObjectStore(bucket, timeout=0.6)
    data = os.urandom(12 << 20)
    ref = await store.put_bytes(data)
    stream = hasty.open(ref.id, chunk_size=65536)
    await anext(stream)

    async def refused(work: Awaitable[object]) -> None:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            await work
        assert time.monotonic() - started < 3.0 and caught.value.retryable

    with object_server.frozen():
        await asyncio.gather(
            refused(hasty.put_bytes(b"small")),
            refused(hasty.put_bytes(os.urandom(12 << 20))),
            refused(hasty.get(ref.id)),
            refused(hasty.stat(ref.id)),
            refused(hasty.list()),
            refused(hasty.delete(ref.id)),
            refused(hasty.gc()),
        )
        with pytest.raises(StoreUnavailable):
            async for _ in stream:
                pass
    for _ in range(50):  # it has requests of ours to answer first
        try:
            again = await store.put_bytes(data)
            break
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    assert again.sha256 == ref.sha256 == hashlib.sha256(await store.get(ref)).hexdigest()


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.fault(48)
@pytest.mark.parametrize("limit", slow_but([2000, 3 << 20], 3 << 20))
async def test_interrupted_upload_leaves_nothing_and_can_be_retried(
    limit: int, bucket: str, object_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(12 << 20)
    async with Proxy(object_server.ports["s3"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        store = ObjectStore(bucket, timeout=8.0)
        async with store.stage() as staged:
            await staged.write(data)
            proxy.cut_up = limit
            with pytest.raises(StoreUnavailable) as caught:
                await staged.commit(filename="a.bin")
            assert caught.value.retryable and SECRET not in str(caught.value.as_dict())
            assert not [name for name in below(object_server, bucket) if name.startswith(("meta", "content"))]
            proxy.cut_up = None
            assert await store.list() == []
            ref = await staged.commit(filename="a.bin")  # the same staged file
        assert hashlib.sha256(await store.get(ref)).hexdigest() == ref.sha256 == hashlib.sha256(data).hexdigest()
        await store.delete(ref.id)
    assert below(object_server, bucket) == []


@pytest.mark.slow
@pytest.mark.fault(48)
async def test_interrupted_download_resumes_where_it_stopped(
    bucket: str, object_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(6 << 20)
    ref = await ObjectStore(bucket).put_bytes(data)
    async with Proxy(object_server.ports["s3"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        store = ObjectStore(bucket, timeout=6.0)
        proxy.cut_down = 3 << 20
        assert await store.get(ref.id) == data
        assert proxy.connections > 1
        proxy.cut_down = 100_000
        with pytest.raises(StoreUnavailable):
            await store.get(ref.id)


@pytest.mark.slow
@pytest.mark.fault(47)
async def test_corruption_in_transit_and_in_bucket_is_detected(
    bucket: str, object_server: SeaweedFS, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"A" * 500_000
    ref = await ObjectStore(bucket).put_bytes(data)
    spoilt: list[bytes] = []

    def spoil(chunk: bytes) -> bytes:
        if b"A" * 1000 in chunk and not spoilt:
            spoilt.append(chunk)
            return chunk.replace(b"A" * 1000, b"A" * 999 + b"B", 1)
        return chunk

    async with Proxy(object_server.ports["s3"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        store = ObjectStore(bucket)
        proxy.spoil = spoil
        with pytest.raises(StoreUnavailable, match="in transit"):
            await store.get(ref.id)
        assert spoilt and await store.get(ref.id) == data  # nothing was put into quarantine for it
        (content,) = (name for name in below(object_server, bucket) if name.startswith("content/"))
        overwrite(object_server, bucket, content, b"A" * 499_999 + b"B")
        problems = (await store.fsck()).problems
        assert [(one.kind, one.id) for one in problems] == [("content", ref.id)]
        assert [name for name in below(object_server, bucket) if name.startswith("quarantine/")]
        with pytest.raises(Corrupt, match="missing"):
            await store.get(ref.id)
        assert await store.get((await store.put_bytes(data)).id) == data  # storing it again heals it
        clock.passes(25 * HOUR)
        assert {one.kind for one in await store.gc()} >= {"quarantine"}
        (content,) = (name for name in below(object_server, bucket) if name.startswith("content/"))
        overwrite(object_server, bucket, content, b"A" * 499_000)  # it is cut off
        with pytest.raises(Corrupt):
            await store.get(ref.id)


@pytest.mark.slow
@pytest.mark.fault(48)
async def test_wrong_credentials_or_bucket_raise_store_unavailable(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "wrong-secret-of-mine"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    store = ObjectStore(bucket)
    for work in (store.put_bytes(PDF), store.list(), store.stat("a_0123456789ab")):
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="AWS_SECRET_ACCESS_KEY") as caught:
            await work
        assert not caught.value.retryable and time.monotonic() - started < 10
        assert caught.value.details["reason"] == "SignatureDoesNotMatch" and wrong not in str(caught.value.as_dict())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    missing = ObjectStore("s3://no-such-bucket/x", timeout=2)
    for work in (missing.put_bytes(PDF), missing.stat("a_0123456789ab")):
        with pytest.raises(StoreUnavailable):
            await work


@pytest.mark.fault(48)
async def test_overloaded_server_is_asked_again_and_one_that_refuses_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([(503, "SlowDown")] * 6 + [(404, "NoSuchKey"), (403, "SignatureDoesNotMatch")])

    async def answer(_: web.Request) -> web.Response:
        status, code = next(answers)
        return web.Response(status=status, text=f"<Error><Code>{code}</Code><Message>{code}</Message></Error>")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        for name, value in environment(f"http://127.0.0.1:{server.port}").items():
            monkeypatch.setenv(name, value)
        store = ObjectStore(f"s3://{BUCKET}/x")
        with pytest.raises(ArtifactNotFound):
            await store.stat("a_0123456789ab")
        with pytest.raises(StoreUnavailable, match="AWS_SECRET_ACCESS_KEY") as refused:
            await store.stat("a_0123456789ab")
    assert not refused.value.retryable and refused.value.details["reason"] == "SignatureDoesNotMatch"
    assert not [*answers]


UPLOAD = """
import asyncio, os, sys
from transports.artifacts.objects._store import ObjectStore
async def main():
    store = ObjectStore(sys.argv[1])
    for turn in range(100):
        await store.put_bytes(os.urandom(11 << 20), namespace="k")
        print(turn, flush=True)
asyncio.run(main())
"""


@pytest.mark.fault(48)
@pytest.mark.slow
async def test_killed_uploads_leave_no_partial_artifacts(
    bucket: str, object_server: SeaweedFS, clock: Clock, tmp_path: Path
) -> None:
    given = {**os.environ, "TMPDIR": str(tmp_path)}
    # A writer that is not seen from here may run in another container.
    unseen = tmp_path / "abp-spool-999999999-new"
    unseen.mkdir()
    for pause in (0.05, 0.15, 0.3):
        process = subprocess.Popen([sys.executable, "-c", UPLOAD, bucket], stdout=subprocess.PIPE, env=given)
        assert process.stdout is not None and process.stdout.readline()
        await asyncio.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        hours_ago = time.time() - 7200
        left = {*tmp_path.glob("abp-spool-*")} - {unseen}
        for folder in left:
            os.utime(folder, (hours_ago, hours_ago))
    assert len(left) <= 1  # the next one removes what a killed one left, after an hour
    assert unseen.is_dir()
    store = ObjectStore(bucket)
    refs = await store.list()
    assert len(refs) >= 3
    for ref in refs:
        assert hashlib.sha256(await store.get(ref)).hexdigest() == ref.sha256
        await store.delete(ref.id)
    assert await store.gc() == []  # what is on its way elsewhere is left alone
    clock.passes(2 * HOUR)
    await store.gc()
    assert below(object_server, bucket) == []


async def test_machines_share_a_bucket_prefix(memory_bucket: str) -> None:
    one, two = ObjectStore(memory_bucket), ObjectStore(memory_bucket, retention=Retention(max_artifacts_per_session=2))
    first = await one.scoped(Scope(session="s")).put_bytes(b"1")
    assert first.path is None and one.url == memory_bucket and await two.list() == [first]
    content, meta = sorted([one.key async for one in one._bucket.list("")])  # as documented
    assert meta == f"meta/{first.id}.json" and content.startswith(f"content/{first.sha256}-")
    await one.scoped(Scope(session="s")).put_bytes(b"1", filename="renamed.txt")
    assert [ref.filename for ref in await two.list()] == ["renamed.txt"]
    view = two.scoped(Scope(session="s"))
    for data in (b"2", b"3"):
        await view.put_bytes(data)
    assert len(await one.list()) == 2 and not await one.exists(first.id)
