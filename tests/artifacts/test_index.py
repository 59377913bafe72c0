"""The index of an object store: it answers what the objects say, and finds again whatever it may have missed."""

from __future__ import annotations

import itertools
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.artifacts.conftest import OpenIndexed, both_indexes, tamper
from tests.support.clock import Clock
from tests.support.limits import change_limits
from transports.artifacts import (
    ArtifactRef,
    ArtifactStore,
    MemoryStore,
    Query,
    Retention,
    Scope,
    find,
    open_store,
    reindex,
)
from transports.artifacts.objects import _catalog
from transports.errors import ArtifactNotFound, StoreUnavailable, UsageError


async def ids(store: ArtifactStore) -> list[str]:
    return [ref.id for ref in await store.list()]


async def fill(store: ArtifactStore) -> None:
    """36 artifacts that differ in all that a query asks for."""
    kinds = ("text/plain", "image/png", "image/gif")
    for number in range(36):
        view = store.scoped(Scope(session="s", user="u")) if number % 4 == 0 else store
        meta = {"capability": ("a.b", "c", 7)[number % 3], "app": ("one", "two", "ä\0")[number // 3 % 3]}
        content = b"%d" % number * (number + 1)
        await view.put_bytes(content, namespace=f"n{number}", mime_type=kinds[number // 2 % 3], meta=meta)


@pytest.mark.usefixtures("ticking_clock")
async def test_query_result_is_the_same_with_and_without_index(open_indexed: OpenIndexed) -> None:
    store = open_indexed()
    await fill(store)
    plain = open_indexed(None)
    refs = (await store.list())[::-1]
    assert refs == (await plain.list())[::-1] and len(refs) == 36
    middle = datetime.fromisoformat(str(refs[18].source["created"]))
    queries = [
        Query(capability="a.b"),
        Query(capability="c", app="two"),
        Query(app="ä\0", limit=None),
        Query(capability="nothing"),
        Query(mime_type="text/plain", min_bytes=20),
        Query(mime_type="image/"),
        Query(since=middle, max_bytes=60),
        Query(until=middle.astimezone(UTC) + timedelta(milliseconds=1), capability="a.b"),
        Query(limit=7),
    ]
    sizes, fresh = [], open_indexed()
    for query, scope in itertools.product(queries, (Scope(), Scope(session="s"), Scope(user="u", tenant="t"))):
        given = (fresh.scoped(scope), plain.scoped(scope))
        with_index, without = [await find(view, query) for view in given]
        assert with_index == without, query
        sizes.append(len(with_index.artifacts))
        expected = [ref for ref in refs if scope.covers(ref.scope) and query.matches(ref)][: query.limit]
        assert [*with_index.artifacts] == expected
    assert len(set(sizes)) > 6
    pages: list[ArtifactRef] = []
    cursor: str | None = None
    while True:
        page = await find(store, Query(limit=5, cursor=cursor))
        pages += page.artifacts
        if (cursor := page.next) is None:
            break
        if len(pages) % 2:
            await store.delete(page.artifacts[-1].id)  # a cursor needs no artifact
    assert pages == refs
    await store.aclose()
    assert len(await store.list()) == len(await plain.list()) < 36  # it is opened again
    for bad in ({"limit": 0}, {"since": datetime(2026, 1, 1)}, {"cursor": "x"}):
        with pytest.raises(UsageError):
            Query(**bad)


async def test_retention_reads_only_removable_artifacts(open_indexed: OpenIndexed, clock: Clock) -> None:
    store, twin = open_indexed(), MemoryStore()
    for one in (store, twin):
        await one.put_bytes(b"old")
        for session, count in (("s", 2), ("large", 5)):
            view = one.scoped(Scope(session=session, trace="t"))
            for number in range(count):
                await view.put_bytes(b"%d" % number)
    clock.passes(100)
    for one in (store, twin):
        await one.put_bytes(b"new")
        for number in range(3):
            await one.scoped(Scope(tenant="x", session="s", trace=str(number))).put_bytes(b"%d" % number)
    many = Retention.only(max_artifacts_per_session=3, ttl_seconds=1000)
    looked = await store._list_candidates(Scope(), many)
    assert {entry.scope.session for entry in looked} == {"large"} and len(looked) == 5
    for policy in (
        many,
        Retention.only(ttl_seconds=50),
        Retention.only(max_trace_bytes=2),
        Retention.only(max_session_bytes=2, ttl_seconds=50, cleanup_strategy="fifo"),
        Retention.only(max_artifacts_per_trace=1, cleanup_strategy="none"),
        Retention(),
    ):
        store.retention = twin.retention = policy
        assert {one.id for one in await store.gc(dry_run=True)} == {one.id for one in await twin.gc(dry_run=True)}
        assert {ref.id for ref in await store.list()} == {ref.id for ref in await twin.list()}
        assert {ref.id for ref in (await find(store, Query())).artifacts} == set(await ids(twin))
    removed = await store.gc()
    assert not removed and len(await store.list()) == 12


@both_indexes
@pytest.mark.usefixtures("ticking_clock")
async def test_index_is_rebuilt_from_objects(open_indexed: OpenIndexed) -> None:
    plain = open_indexed(None)
    refs = [await plain.scoped(Scope(session=str(n % 2))).put_bytes(b"%d" % n) for n in range(5)]
    bad = await plain.put_bytes(b"bad")
    await plain._bucket.put(f"meta/{bad.id}.json", b"{", "application/json")
    store = open_indexed()
    assert await store.list() == refs  # built by the first question
    token = await store.change_token()
    ghost = "ghost_0123456789ab"
    await plain.delete(refs[0].id)
    renamed = await plain.scoped(refs[1].scope).put_bytes(b"1", filename="renamed.txt")
    new = await plain.put_bytes(b"new")
    await tamper(store, "DELETE FROM abp_artifacts_1 WHERE id = ? AND store = ?", refs[2].id)
    await tamper(store, "UPDATE abp_artifacts_1 SET id = ? WHERE id = ? AND store = ?", ghost, refs[3].id)
    report = await reindex(store)
    wrong = {refs[0].id, renamed.id, new.id, refs[2].id, refs[3].id, ghost}
    assert (report.artifacts, set(report.corrected), report.unreadable) == (6, wrong, (bad.id,))
    truth = await plain.list()
    assert await store.list() == truth and len(truth) == 5
    assert await store.change_token() != token == token
    assert (await reindex(store)).corrected == ()
    await tamper(store, "UPDATE abp_artifacts_1 SET metadata = '{', e_tag = '' WHERE id = ? AND store = ?", new.id)
    assert new.id not in await ids(store)
    problems = [(one.kind, one.id) for one in (await store.fsck()).problems]
    assert problems == [("index", new.id), ("metadata", bad.id)] and await store.list() == truth
    rows = store._catalog._index  # type: ignore[attr-defined]
    await rows._run(lambda cursor, _: cursor.execute("DROP TABLE abp_artifacts_1"))
    assert await store.list() == truth  # made anew


@pytest.mark.parametrize("index", ["sqlite"], indirect=True)
async def test_index_deleted_while_in_use_is_rebuilt(
    open_indexed: OpenIndexed, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two stores lists what is its own, whether the file is deleted between two questions or during one."""
    one, file = open_indexed(), Path(index.removeprefix("sqlite://"))
    library, bucket = one._bucket._obstore, pytest.importorskip("obstore").store.MemoryStore()
    monkeypatch.setattr(
        "transports.artifacts.objects._catalog._import_obstore", lambda: (library, lambda *_, **__: bucket)
    )
    change_limits(monkeypatch, _catalog, interval=3600.0)  # the first question looks, no other
    two = open_store(f"s3://memory/two?index={index}")
    ours, theirs = [await one.put_bytes(b"ours")], [await two.put_bytes(b"theirs")]
    assert await one.list() == ours and await two.list() == theirs
    token = await one.change_token()
    file.unlink()
    later = open_store(two.url)
    assert await later.list() == theirs  # numbered before the other one
    theirs.append(await two.put_bytes(b"more"))
    ours.append(await one.put_bytes(b"more"))
    for asked, expected in ((later, theirs), (one, ours), (two, theirs)):
        assert {ref.id for ref in await asked.list()} == {ref.id for ref in expected}
    assert await one.change_token() != token
    rows = two._catalog._index  # type: ignore[attr-defined]
    mark, marked = rows.mark_built, list[int]()

    async def mark_a_new_one(number: int) -> None:
        if not marked:
            file.unlink()
        marked.append(number)
        await mark(number)

    monkeypatch.setattr(rows, "mark_built", mark_a_new_one)
    await reindex(two)  # what was built is lost before it is marked as a whole
    assert {ref.id for ref in await two.list()} == {ref.id for ref in theirs} and len(marked) == 2
    await two.aclose()
    await later.aclose()


async def test_password_does_not_appear_in_messages(memory_bucket: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("psycopg")
    secret = "hunter2"
    for address in (
        f"postgresql://u:{secret}@127.0.0.1:1/db?connect_timeout=1&application_name=x",
        f"postgresql://u:%{secret}@127.0.0.1:1/db",
        f"postgresql://u:{secret}@127.0.0.1:port/db",
        "postgresql%3A%2F%2Fu%3Ahunter2%40127.0.0.1%3A1%2Fdb%3Fconnect_timeout%3D1",
    ):
        store = open_store(f"{memory_bucket}?index={address}")
        with caplog.at_level(logging.DEBUG):
            ref = await store.put_bytes(b"x")
            with pytest.raises(StoreUnavailable, match="cannot be used") as caught:
                await store.list()
        shown = (repr(store), store.url, caplog.text, str(caught.value.as_dict()), repr(ref))
        assert not [text for text in shown if secret in text]
        assert caught.value.__context__ is None or secret not in str(caught.value.__context__)
        await store.aclose()
    again = open_store(f"{memory_bucket}?index=postgresql://u:{secret}@h:5/db?sslmode=require")
    assert again.url == f"{memory_bucket}?index=postgresql://u@h:5/db?sslmode=require"
    for bad in (f"mysql://u:{secret}@h/db", "sqlite://relative", "sqlite:///folder/", "", "x"):
        with pytest.raises(UsageError, match="is not an index; use postgresql://") as refused:
            open_store(f"{memory_bucket}?index={bad}")
        assert secret not in refused.value.message
    with pytest.raises(UsageError, match="has no index"):
        await reindex(open_store(memory_bucket))
    with pytest.raises(UsageError, match="no index to rebuild"):
        await reindex(MemoryStore())
    with pytest.raises(ArtifactNotFound):
        await open_store(memory_bucket).stat("a_0123456789ab")
