"""What every artifact store promises, run over all of them: a folder, memory, buckets.

`make slow` adds a real S3 server, and a folder on a system that is not POSIX.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.local_store import run_processes
from tests.support.portable_way import portable_way
from transports.artifacts import (
    ArtifactRef,
    ArtifactStore,
    Query,
    Removal,
    Retention,
    Scope,
    find,
    open_store,
)
from transports.errors import ArtifactNotFound, SizeMismatch, StoreError, StoreFull, TooLarge, UsageError

PDF = b"%PDF-1.7\n" + b"x" * 100
KINDS = (
    *("local", "memory", "bucket"),
    pytest.param("indexed", marks=pytest.mark.slow),
    pytest.param("portable", marks=pytest.mark.slow),
    pytest.param("object", marks=[pytest.mark.object_server, pytest.mark.slow]),
)
#: Opens the store of a test, with the options of :func:`open_store`; again and again the same, but for memory.
Open = Callable[..., ArtifactStore]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    address = {"memory": "memory:"}.get(kind, str(tmp_path / "out"))
    if kind in ("bucket", "indexed"):
        address = request.getfixturevalue("memory_bucket")
        if kind == "indexed":
            address += f"?index=sqlite://{tmp_path}/index.sqlite"
    elif kind == "object":
        address = request.getfixturevalue("bucket")
    stores: list[ArtifactStore] = []

    def open_one(**options: Any) -> ArtifactStore:
        stores.append(open_store(address, **options))
        return stores[-1]

    with portable_way() if kind == "portable" else nullcontext():
        yield open_one
        for one in stores:
            await one.aclose()


@pytest.fixture
def store(opened: Open) -> ArtifactStore:
    return opened()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- listing ----------------------------------------------------------------------------------------------------------


async def test_lists_and_pages_are_ordered_by_age_then_id(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    refs: list[ArtifactRef] = []
    for age in (3, 1, 1, 1, 2, 2):
        monkeypatch.setattr(time, "time", lambda age=age: now - age)
        refs.append(await store.put_bytes(b"%d!" % len(refs)))
    monkeypatch.undo()
    await store.put_bytes(b"0!")  # storing again does not make it younger
    found = await store.fsck()
    assert (found.artifacts, found.size_bytes, found.problems) == (6, 12, ())
    ids = [ref.id for ref in sorted(refs, key=lambda ref: (ref.source["created"], ref.id))]
    assert ids[0] == refs[0].id and {*ids[1:3]} == {refs[4].id, refs[5].id}
    assert [ref.id for ref in await store.list()] == ids
    page = await find(store, Query(limit=2))
    paged = [*page.artifacts]
    while page.next:
        page = await find(store, Query(limit=2, cursor=page.next))
        paged += page.artifacts
    assert [ref.id for ref in paged] == ids[::-1]


# --- putting ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-4.3a", "R2-5.2b", "R2-5.2c", "R2-5.3a", "R2-5.4a", "R2-6.0b", "R2-6.0d", "R2-6.0e")
@pytest.mark.requirement("R2-6.0a", "R4-12b")
async def test_store_accepts_bytes_text_stream_and_file(store: ArtifactStore, tmp_path: Path) -> None:
    data = os.urandom((1 << 20) + 9)
    file = tmp_path / "given.bin"
    file.write_bytes(data)

    async def stream() -> AsyncIterator[bytes]:
        for at in range(0, len(data), 100_000):
            yield data[at : at + 100_000]

    async def interrupted() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise ConnectionError("gone")

    for ref in (
        await store.put_bytes(data, namespace="a", size=len(data), filename="x.bin"),
        await store.put_stream(stream(), namespace="b", size=len(data)),
        await store.put_file(file, namespace="c", size=len(data)),
    ):
        assert (ref.sha256, ref.size_bytes) == (sha(data), len(data))
        assert ref.id == f"{'abc'['abc'.index(ref.id[0])]}_{sha(data)[:12]}" and ref.uri == f"artifact://{ref.id}"
        assert await store.get(ref.id) == data
        assert await store.stat(ref.id) == ref and await store.exists(ref.id)
    assert ref.filename == "given.bin"
    text = await store.put_text("grüße", filename="a.txt")
    assert text.mime_type == "text/plain" and await store.get(text.id) == "grüße".encode()
    assert (await store.put_text("{}", mime_type="application/json")).mime_type == "application/json"
    with pytest.raises(UsageError, match="UTF-8"):
        await store.put_text("\ud800")
    with pytest.raises(StoreError, match="read a file"):
        await store.put_file(tmp_path / "missing")
    with pytest.raises(SizeMismatch):
        await store.put_stream(stream(), namespace="d", size=1)
    with pytest.raises(ConnectionError):
        await store.put_stream(interrupted(), namespace="e")
    assert len(await store.list()) == 5 and await store.gc() == []


async def test_empty_content_can_be_stored(store: ArtifactStore) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        return
        yield b""

    for ref in (await store.put_bytes(b""), await store.put_stream(nothing(), size=0), await store.put_text("")):
        assert ref.size_bytes == 0 and await store.get(ref.id) == b""
    async with store.stage() as staged:
        with pytest.raises(StoreError, match="nothing was written"):
            await staged.commit()
        assert (await staged.commit(size=0)).size_bytes == 0


async def test_staged_file_may_be_written_externally(store: ArtifactStore) -> None:
    data = os.urandom(2_000_001)
    async with store.stage() as staged:
        assert not staged.path.exists()
        staged.path.write_bytes(data)
        staged.path.chmod(0o644)
        for declared in (len(data) - 1, len(data) + 1, 0):
            with pytest.raises(SizeMismatch) as caught:
                await staged.commit(size=declared)
            assert caught.value.details == {"declared": declared, "actual": len(data)}
        ref = await staged.commit(size=len(data))
        path = staged.path
        with pytest.raises(UsageError):
            await staged.commit()
        with pytest.raises(UsageError):
            await staged.write(b"more")
    assert not path.exists() and await store.get(ref.id) == data
    assert ref.path is None or stat.S_IMODE(ref.path.stat().st_mode) == 0o600


async def test_writing_continues_after_reset_and_after_non_bytes(store: ArtifactStore) -> None:
    async with store.stage() as staged:
        await staged.write(b"a" * 3_000_000)
        await staged.reset()
        assert staged.size == 0
        await staged.write(b"one ")
        with pytest.raises(TypeError):
            await staged.write("two")  # type: ignore[arg-type]
        await staged.write(b"three")
        ref = await staged.commit()
    assert await store.get(ref.id) == b"one three"


async def test_staged_file_changing_during_commit_is_detected(
    kind: str, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in ("local", "portable"):
        pytest.skip("the file itself is kept, not read again; see test_local")
    async with store.stage() as staged:
        staged.path.write_bytes(PDF)
        real = os.fstat

        def before_it_is_read(fd: int) -> os.stat_result:
            found = real(fd)
            if found.st_size == len(PDF) and found.st_mtime_ns != 10**9:
                staged.path.write_bytes(PDF[:-1] + b"!")
                os.utime(staged.path, (1, 1))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", before_it_is_read)
            with pytest.raises(StoreError, match="changed"):
                await staged.commit()
        assert await store.list() == []
        ref = await staged.commit()
    assert await store.get(ref.id) == PDF[:-1] + b"!"


@pytest.mark.requirement("R2-6.4g", "R2-7.1b")
async def test_limits(opened: Open, tmp_path: Path) -> None:
    store = opened(max_bytes=1000, retention=Retention(max_artifact_bytes=500), audit=tmp_path / "log")
    assert store.max_bytes == 500
    await store.put_bytes(b"x" * 500)
    for size in (501, 2_000_000):
        with pytest.raises(TooLarge, match="500 bytes"):
            await store.put_bytes(b"x" * size)
    async with store.stage() as staged:
        staged.path.write_bytes(b"x" * 501)
        with pytest.raises(TooLarge):
            await staged.commit()
    assert len(await store.list()) == 1
    refused = [(line["action"], line["wanted"], line["code"]) for line in lines(tmp_path / "log")[1:]]
    assert refused == [("refuse", "put", "TOO_LARGE")] * 3
    async with store.stage() as staged:
        await staged.write(b"y" * 499)
        with pytest.raises(TooLarge, match="500 bytes"):
            await staged.write(b"yy")
        with pytest.raises(UsageError):  # half of it must not become an artifact
            await staged.commit()
        await staged.reset()
        assert staged.size == 0
        await staged.write(b"y" * 500)
        ref = await staged.commit()
    assert await store.get(ref.id) == b"y" * 500


@pytest.mark.requirement("R2-5.3b")
async def test_same_content_is_one_artifact(store: ArtifactStore) -> None:
    first = await store.put_bytes(PDF, filename="one.pdf", meta={"run": 1})
    second = await store.put_bytes(PDF, meta={"run": 2})
    assert second.id == first.id and second.filename == "one.pdf"
    assert second.source == {**first.source, "run": 2, "stored_again": True}
    assert await store.list() == [second]
    await asyncio.gather(*(store.put_bytes(PDF) for _ in range(8)))
    assert [ref.id for ref in await store.list()] == [first.id] and await store.get(first.id) == PDF


async def test_untyped_text_gets_type_from_filename(store: ArtifactStore) -> None:
    for filename, content, mime_type in (
        ("people.csv", "n,ö\n1,2\n".encode(), "text/csv"),
        ("notes.MD", b"# a", "text/markdown"),
        ("a.json", b"{}", "application/json"),
        ("people.csv", "é".encode("latin-1"), "application/octet-stream"),
        ("people.csv", b"a\0b", "application/octet-stream"),
        ("people.csv", b"%PDF-1.7\n", "application/pdf"),
        ("page.html", b"no markup", "application/octet-stream"),
        ("run.js", b"alert(1)", "application/octet-stream"),
        ("photo.png", b"text!", "application/octet-stream"),
    ):
        assert (await store.put_bytes(content, filename=filename)).mime_type == mime_type, filename
        declared = await store.put_bytes(content + b"x", filename=filename, mime_type="application/octet-stream")
        assert declared.mime_type == "application/octet-stream"


@pytest.mark.fault(36)
@pytest.mark.requirement("R2-2.1b", "R2-5.4a", "R2-5.4b")
async def test_artifact_reference_for_model_is_short_and_without_secrets(store: ArtifactStore) -> None:
    secret = "hunter2-" * 4
    source = {
        "url": f"https://user:{secret}@host/file?sig={secret}#{secret}",
        "picture": "data:image/png;base64," + "QUJD" * 1000,
        "words": "word " * 1000,
        "blob": "QUJD" * 100,
        "auth": {"type": "bearer", "token": secret},
        "headers": {"Authorization": secret, "X-Api-Key": secret, "Cookie": secret, "Accept": "*/*"},
        "list": [{"access_token": secret}],
        "count": 3,
    }
    ref = await store.put_bytes(PDF, meta=source)
    for shown in (ref, await store.stat(ref.id), *await store.list()):
        text = json.dumps({**shown.as_dict(), "source": dict(shown.source)})
        assert secret not in text and "QUJDQUJD" not in text and len(text) < 3000
        assert shown.source["count"] == 3 and json.loads(text)["source"]["headers"]["Accept"] == "*/*"
        assert shown.source["url"] == "https://host/file?…"
    much = await store.put_bytes(PDF, meta={str(n): "x " * 450 for n in range(100)})
    assert "left out" in str(much.source["warnings"])


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R4-12e")
async def test_ranges(store: ArtifactStore) -> None:
    data = os.urandom(2_500_000)
    ref = await store.put_bytes(data)
    for offset, length in (
        (0, 10),
        (10, 0),
        (1_000_000, 1_000_001),
        (2_499_999, 50),
        (2_500_000, 1),
        (9_000_000, None),
    ):
        got = await store.get(ref.id, offset=offset, length=length)
        assert got == data[offset : None if length is None else offset + length]
    assert await store.get(ref.id, offset=5) == data[5:]
    pieces = [chunk async for chunk in store.open(ref.id, offset=7, length=1_000_000, chunk_size=4096)]
    assert b"".join(pieces) == data[7:1_000_007] and max(map(len, pieces)) <= 4096
    for bad in ({"offset": -1}, {"length": -1}):
        with pytest.raises(UsageError):
            await store.get(ref.id, **bad)


@pytest.mark.fault(42)
@pytest.mark.requirement("R2-5.2d", "R2-5.2e", "R2-5.2f")
async def test_unknown_artifact_ids_are_not_found(store: ArtifactStore) -> None:
    ref = await store.put_bytes(PDF)
    strange = ("", "..", "../x", "a/b_0123456789ab", "a_0123456789ab\n", "a\0b", "x" * 5000, "é_0123456789ab")
    for bad in (*strange, "nothing_0123456789ab", "a_0123456789ab-xyz"):
        with pytest.raises(ArtifactNotFound):
            await store.stat(bad)
        assert await store.get(bad) is None and await store.get(bad, offset=1, length=1) is None
        assert await store.exists(bad) is False and await store.delete(bad) is False
    assert await store.list() == [ref]


@pytest.mark.requirement("R2-5.2e", "R2-5.2f")
async def test_delete_removes_only_its_artifact(store: ArtifactStore) -> None:
    one, two = await store.put_bytes(PDF, namespace="one"), await store.put_bytes(PDF, namespace="two")
    assert await store.delete(one.id) is True and await store.delete(one.id) is False
    assert not await store.exists(one.id) and await store.get(two.id) == PDF
    assert await store.delete(two.id) and await store.list() == []


@pytest.mark.fault(45)
async def test_open_reader_finishes_after_delete_or_eviction(opened: Open) -> None:
    store = opened(retention=Retention(max_artifacts_per_session=1))
    mine = store.scoped(Scope(session="s"))
    data = os.urandom(5 << 20)
    for remove in ("delete", "evict"):
        ref = await mine.put_bytes(data, namespace=remove)
        stream = mine.open(ref.id, chunk_size=65536)
        got = await anext(stream)
        if remove == "delete":
            assert await mine.delete(ref.id)
        else:
            await mine.put_bytes(PDF)
        assert not await mine.exists(ref.id)
        got += b"".join([chunk async for chunk in stream])
        assert got == data
        assert await mine.get(ref.id) is None
        with pytest.raises(ArtifactNotFound):
            await mine.get(ref)


async def test_stored_artifacts_survive_restart(kind: str, opened: Open) -> None:
    if kind == "memory":
        pytest.skip("memory keeps nothing")
    ref = await opened().scoped(Scope(session="s", tenant="t")).put_bytes(PDF, filename="a.pdf")
    assert await opened().list() == [ref] and await opened().get(ref.id) == PDF
    assert await opened().scoped(Scope(session="s")).stat(ref.id) == ref
    assert not await opened().scoped(Scope(session="other")).exists(ref.id)


# --- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-6.4h", "R2-7.2a", "R2-7.2c", "R4-9d", "R4-11f")
async def test_artifact_of_other_session_is_not_found(store: ArtifactStore) -> None:
    alice, bob = store.scoped(Scope(session="alice")), store.scoped(Scope(session="bob"))
    mine = await alice.put_bytes(PDF, filename="secret.pdf")
    theirs = await bob.put_bytes(PDF, filename="secret.pdf")
    common = await store.put_bytes(PDF, filename="secret.pdf")
    assert len({mine.id, theirs.id, common.id}) == 3
    tails = {ref.id.removeprefix(f"artifact_{sha(PDF)[:12]}-") for ref in (mine, theirs)}
    assert len(tails) == 2 and {len(tail) for tail in tails} == {20}  # not to be guessed from the content
    assert mine.scope == Scope(session="alice") and mine.as_dict()["scope"] == {"session": "alice"}
    assert "scope" not in common.as_dict()
    assert await alice.list() == [mine] and await bob.list() == [theirs]
    assert {ref.id for ref in await store.list()} == {mine.id, theirs.id, common.id}
    unknown = mine.id[:-1] + ("0" if mine.id[-1] != "0" else "1")
    for key in (mine.id, common.id):
        with pytest.raises(ArtifactNotFound) as foreign:
            await bob.stat(key)
        with pytest.raises(ArtifactNotFound) as never:
            await bob.stat(unknown)
        assert repr(foreign.value.as_dict()).replace(key, "") == repr(never.value.as_dict()).replace(unknown, "")
        assert await bob.get(key) is None and await bob.get(unknown) is None
        assert not await bob.exists(key) and await bob.delete(key) is False
    assert await alice.get(mine.id) == PDF and await store.get(mine.id) == PDF
    assert await alice.delete(mine.id) and await bob.get(theirs.id) == PDF


async def test_scopes_nest(store: ArtifactStore) -> None:
    session = store.scoped(Scope(tenant="t", session="s"))
    first, second = session.scoped(Scope(trace="1")), session.scoped(Scope(trace="2"))
    one, two = await first.put_bytes(b"one"), await second.put_bytes(b"two")
    assert one.scope == Scope(tenant="t", session="s", trace="1")
    assert await first.list() == [one] and {ref.id for ref in await session.list()} == {one.id, two.id}
    assert not await first.exists(two.id) and await session.exists(two.id)
    assert await store.scoped(Scope(tenant="other")).list() == []
    with pytest.raises(UsageError, match="narrowed"):
        session.scoped(Scope(session="another"))
    for bad in ("", "x" * 201, "a\nb"):
        with pytest.raises(UsageError):
            Scope(session=bad)


# --- retention --------------------------------------------------------------------------------------------------------


async def fill(view: ArtifactStore, sizes: list[int]) -> list[str]:
    keys = []
    for number, size in enumerate(sizes):
        keys.append((await view.put_bytes(bytes([number]) * size, namespace=f"n{number}")).id)
    return keys


async def left(view: ArtifactStore, keys: list[str]) -> list[int]:
    there = {ref.id for ref in await view.list()}
    return [number for number, key in enumerate(keys) if key in there]


@pytest.mark.requirement("R2-7.1c", "R2-7.1g")
@pytest.mark.usefixtures("ticking_clock")
async def test_fifo_evicts_oldest_first(opened: Open) -> None:
    store = opened(retention=Retention(max_session_bytes=300, cleanup_strategy="fifo"))
    mine, theirs = store.scoped(Scope(session="s")), store.scoped(Scope(session="o"))
    others = await fill(theirs, [100, 100])
    keys = await fill(mine, [100, 100, 100])
    lru = store.scoped(Scope(session="s"))
    lru.retention = Retention(cleanup_strategy="lru")  # as another program may have, which records each use
    await lru.get(keys[0])
    keys += [(await mine.put_bytes(b"new" * 50)).id]
    assert await left(mine, keys) == [2, 3] and await left(theirs, others) == [0, 1]
    with pytest.raises(TooLarge, match="session"):
        await mine.put_bytes(b"x" * 301)
    assert await left(mine, keys) == [2, 3]


@pytest.mark.requirement("R2-6.4k", "R2-7.1f", "R2-7.1g")
@pytest.mark.usefixtures("ticking_clock")
async def test_lru_evicts_least_recently_used(opened: Open) -> None:
    store = opened(retention=Retention(max_artifacts_per_session=3, cleanup_strategy="lru"))
    mine = store.scoped(Scope(session="s"))
    keys = await fill(mine, [10, 10, 10])
    await mine.get(keys[0])
    keys += [(await mine.put_bytes(b"new")).id]
    assert await left(mine, keys) == [0, 2, 3]
    await mine.put_bytes(bytes([2]) * 10, namespace="n2")  # the same again takes no more room
    assert await left(mine, keys) == [0, 2, 3]


@pytest.mark.requirement("R2-7.1d", "R2-7.1e")
@pytest.mark.usefixtures("ticking_clock")
async def test_trace_limits_evict_only_from_that_trace(opened: Open) -> None:
    store = opened(retention=Retention(max_artifacts_per_trace=2, max_trace_bytes=1000))
    session = store.scoped(Scope(session="s"))
    one, two = session.scoped(Scope(trace="1")), session.scoped(Scope(trace="2"))
    others = await fill(two, [10, 10])
    keys = await fill(one, [10, 10, 10, 10])
    assert await left(one, keys) == [2, 3] and await left(two, others) == [0, 1]
    keys += [(await one.put_bytes(b"x" * 995)).id]
    assert await left(one, keys) == [4]
    await session.put_bytes(b"x" * 1001)  # of no trace
    assert await left(one, keys) == [4]


@pytest.mark.requirement("R2-7.1g")
@pytest.mark.usefixtures("ticking_clock")
async def test_without_eviction_new_artifact_is_rejected(opened: Open) -> None:
    store = opened(retention=Retention(max_artifacts_per_session=2, cleanup_strategy="none"))
    mine = store.scoped(Scope(session="s"))
    keys = await fill(mine, [10, 10])
    with pytest.raises(StoreFull, match="session"):
        await mine.put_bytes(b"new")
    assert await left(mine, keys) == [0, 1] and len(await mine.list()) == 2
    await mine.put_bytes(bytes(10), namespace="n0")  # it is there already
    await store.put_bytes(b"new")  # nobody's
    assert await mine.delete(keys[0])
    await mine.put_bytes(b"new")


@pytest.mark.requirement("R2-6.4j", "R2-7.1a")
async def test_artifacts_expire_after_ttl(opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(retention=Retention(ttl_seconds=60))
    old, again = await store.put_bytes(b"old"), await store.put_bytes(b"again")
    clock.passes(50)
    await store.put_bytes(b"again")  # counts from now
    clock.passes(20)
    assert [ref.id for ref in await store.list()] == [again.id]
    with pytest.raises(ArtifactNotFound):
        await store.get(old)
    assert [one.id for one in await store.gc(dry_run=True)] == [old.id]
    (gone,) = await store.gc()
    assert (gone.kind, gone.id, gone.size_bytes, gone.reason) == ("artifact", old.id, 3, "expired")
    assert await store.gc() == [] and await store.exists(again.id)
    clock.passes(130)
    monkeypatch.setattr(time, "monotonic", lambda: 1e12)
    await store.put_bytes(b"new")  # now and then a put looks for what has expired
    clock.passes(-200)
    assert {ref.sha256 for ref in await store.list()} == {sha(b"new")}


async def test_put_keeps_expired_artifacts_without_owner_if_asked(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(retention=Retention(ttl_seconds=60, keep_unscoped=True))
    old = await store.put_bytes(b"old")
    clock.passes(130)
    monkeypatch.setattr(time, "monotonic", lambda: 1e12)
    await store.put_bytes(b"new")  # looks for what has expired
    assert await store.exists(old.id)


@pytest.mark.requirement("R2-6.4s")
@pytest.mark.requirement("R2-6.4j")
async def test_removals_are_reported_to_callback(opened: Open, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    gone: list[Removal] = []
    limits = Retention.only(ttl_seconds=60, max_artifacts_per_session=1, on_removal=gone.append)
    store = opened(retention=limits)
    mine = store.scoped(Scope(session="s"))
    first, second = await mine.put_bytes(b"first"), await mine.put_bytes(b"second!")
    assert gone == [Removal("artifact", first.id, 5, "lru")]
    clock.passes(61)
    assert (await mine.put_bytes(b"second!")).id == second.id  # one that is stored again is not removed before
    assert len(gone) == 1
    clock.passes(61)
    await store.gc(dry_run=True)
    assert len(gone) == 1
    await store.gc()
    assert gone[1:] == [Removal("artifact", second.id, 7, "expired")]

    def fails(removal: Removal) -> None:
        raise RuntimeError("no")

    broken = opened(retention=replace(limits, on_removal=fails)).scoped(Scope(session="t"))
    await broken.put_bytes(b"third")
    kept = await broken.put_bytes(b"fourth")
    assert [ref.id for ref in await broken.list()] == [kept.id] and "on_removal" in caplog.text
    assert limits == replace(limits, on_removal=None) and "on_removal" not in repr(limits)


@pytest.mark.requirement("R2-6.4l")
async def test_end_session_cleans_up_only_when_configured(opened: Open) -> None:
    for cleanup in (False, True):
        store = opened(retention=Retention(cleanup_on_session_end=cleanup))
        mine, theirs = store.scoped(Scope(session="s")), store.scoped(Scope(session="o"))
        await fill(mine.scoped(Scope(trace="t")), [10, 10])
        await fill(theirs, [10])
        assert await mine.end_session() == (2 if cleanup else 0)
        assert len(await mine.list()) == (0 if cleanup else 2) and len(await theirs.list()) == 1
    with pytest.raises(UsageError, match="session"):
        await store.end_session()
    assert await opened().scoped(Scope(session="o")).end_session() == 0  # no retention, nothing to do


# --- the audit log ----------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.requirement("R4-9h", "R4-14l")
async def test_audit_log_records_user_and_action(opened: Open, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    store = opened(audit=log, retention=Retention(max_artifacts_per_session=1))
    alice, bob = store.scoped(Scope(user="alice", session="1")), store.scoped(Scope(user="bob", session="2"))
    ref = await alice.put_bytes(PDF, filename="private-name.pdf")
    await alice.get(ref.id)
    await alice.get(ref.id, offset=3, length=5)
    assert await bob.get(ref.id) is None
    assert await bob.delete(ref.id) is False
    stream = alice.open(ref.id, chunk_size=10)
    await anext(stream)
    await stream.aclose()
    with pytest.raises(SizeMismatch):
        await bob.put_bytes(PDF, size=1)
    other = await alice.put_bytes(b"other")
    assert await store.delete(other.id)
    found = lines(log)
    short = [(line["action"], line["who"], line.get("bytes"), line.get("code")) for line in found]
    me, you = {"user": "alice", "session": "1"}, {"user": "bob", "session": "2"}
    assert short == [
        ("put", me, len(PDF), None),
        ("read", me, len(PDF), None),
        ("read", me, 5, None),
        ("refuse", you, None, "ARTIFACT_NOT_FOUND"),
        ("refuse", you, None, "ARTIFACT_NOT_FOUND"),
        ("read", me, 10, "CANCELLED"),
        ("refuse", you, len(PDF), "SIZE_MISMATCH"),
        ("evict", me, len(PDF), None),
        ("put", me, 5, None),
        ("delete", {}, None, None),
    ]
    assert found[3]["wanted"] == "read" and found[3]["reason"] == "belongs to somebody else"
    assert found[7]["reason"] == "lru" and found[0]["id"] == ref.id and found[0]["process"] == os.getpid()
    assert all(str(line["time"]).endswith("Z") for line in found)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    assert "private-name" not in text and "PDF-1.7" not in text


async def test_unloggable_actions_are_not_performed(opened: Open, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    ref = await opened().put_bytes(PDF)
    for path in (tmp_path / "link", tmp_path, tmp_path / "no" / "folder"):
        store = opened(audit=path)
        for work in (store.put_bytes(b"x"), store.get(ref.id), store.delete(ref.id)):
            with pytest.raises(StoreError, match="audit log"):
                await work
    assert victim.read_text() == "precious"
    assert sha(b"x") not in {one.sha256 for one in await opened().list()}


async def test_audit_log_that_cannot_be_closed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    store = open_store("memory:", audit=log)
    await store.put_bytes(PDF)
    close = os.close

    def failing(fd: int) -> None:
        is_log = os.fstat(fd).st_ino == log.stat().st_ino
        close(fd)
        if is_log:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", failing)
        with pytest.raises(StoreError, match="cannot write the audit log"):
            await store.put_bytes(b"other")


SHARED_LOG = """
async def main(number):
    store = open_store("memory:", audit=sys.argv[1]).scoped(Scope(session=str(number)))
    for turn in range(200):
        await store.put_bytes(b"%d" % turn, namespace="n" * 60)
"""


@pytest.mark.slow
def test_processes_share_an_audit_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_processes(4, SHARED_LOG, log)
    found = lines(log)
    assert len(found) == 800 and {str(line["who"]) for line in found} == {str({"session": str(n)}) for n in range(4)}
