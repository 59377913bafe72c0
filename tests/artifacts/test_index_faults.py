"""What the index of an object store misses, it finds again: writers that die, machines that meet, outages."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts.conftest import OpenIndexed, tamper
from tests.support.clock import Clock
from tests.support.limits import change_limits
from transports.artifacts import LocalStore, Query, Retention, Scope, find, open_store, reindex
from transports.artifacts.objects import _catalog
from transports.artifacts.objects._catalog import IndexedCatalog
from transports.artifacts.objects._index import StoreIndex
from transports.artifacts.objects._store import ObjectStore
from transports.errors import StoreUnavailable


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["announce", "object", "tell"])
async def test_leftovers_of_dead_writer_are_recovered(
    step: str, open_indexed: OpenIndexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storing, storing again and deleting end before the announcement, the object or the row."""
    store = open_indexed()
    kept, again, gone = [await store.put_bytes(name.encode()) for name in ("kept", "again", "gone")]
    assert len(await store.list()) == 3  # the index is built

    async def die(*_: object) -> None:
        raise Killed

    names = {"announce": ["announce"], "object": [], "tell": ["put", "remove"]}[step]
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(StoreIndex, name, die)
        dying = open_indexed()
        if step == "object":
            put, delete = dying._bucket.put, dying._bucket.delete
            patch.setattr(dying._bucket, "put", lambda key, *more: die() if "meta/" in key else put(key, *more))
            patch.setattr(dying._bucket, "delete", lambda key: die() if "meta/" in key else delete(key))
        for work in (
            dying.put_bytes(b"new"),
            dying.put_bytes(b"again", filename="renamed.txt"),
            dying.delete(gone.id),
        ):
            with pytest.raises(Killed):
                await work
    truth = await open_indexed(None).list()
    assert len(truth) == 3 and (again in truth) == (gone in truth) == (step != "tell") and kept in truth
    assert await open_indexed().list() == truth
    assert (await open_indexed().fsck()).problems == ()


class Turns:
    """The order in which two stores take their steps: announce a change, make it, tell the index."""

    def __init__(self, order: Sequence[str]) -> None:
        self._left = [*order]
        self._changed = asyncio.Condition()

    def keep(self, store: ObjectStore, who: str, patch: pytest.MonkeyPatch) -> None:
        bucket, index = store._bucket, store._catalog._index  # type: ignore[attr-defined]
        for method in ("announce", "put", "remove"):
            patch.setattr(index, method, self._gate(getattr(index, method), who))
        for method in ("put", "delete"):
            patch.setattr(bucket, method, self._gate(getattr(bucket, method), who, "meta/"))

    def _gate(self, work: Callable[..., Any], who: str, prefix: str = "") -> Callable[..., Any]:
        async def in_turn(key: Any, *more: Any) -> Any:
            if prefix and not key.startswith(prefix):
                return await work(key, *more)
            async with self._changed:
                await self._changed.wait_for(lambda: self._left[0] == who)
                try:
                    return await work(key, *more)
                finally:
                    del self._left[0]
                    self._changed.notify_all()

        return in_turn


@pytest.mark.slow
async def test_concurrent_changes_from_two_machines_stay_consistent(
    open_indexed: OpenIndexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step of each in every order: announce, change the object, tell the index. The clock goes back in between."""
    orders = sorted(set(itertools.permutations("aaabbb")))
    cases = [*((order, "put") for order in orders[:10]), *((order, "delete") for order in orders)]  # two puts are alike
    for number, (order, second) in enumerate(cases):
        name = f"n{number}"
        first = await open_indexed().put_bytes(b"x", namespace=name)
        turns = Turns(order)
        one, two = open_indexed(), open_indexed()
        turns.keep(one, "a", monkeypatch)
        turns.keep(two, "b", monkeypatch)
        index = two._catalog._index  # type: ignore[attr-defined]
        clock = index._database.now_sql
        monkeypatch.setattr(index, "_announcement", index._announcement.replace(clock, f"({clock} - 60.0)"))
        work = two.delete(first.id) if second == "delete" else two.put_bytes(b"x", namespace=name, filename="b.txt")
        async with asyncio.timeout(60):
            await asyncio.gather(one.put_bytes(b"x", namespace=name, filename="a.txt"), work)
        truth = [ref for ref in await open_indexed(None).list() if ref.id == first.id]
        assert [ref for ref in await open_indexed().list() if ref.id == first.id] == truth, (order, second)
        await one.aclose()
        await two.aclose()


async def test_unavailable_index_does_not_block_artifacts(
    tmp_path: Path, open_indexed: OpenIndexed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transports.artifacts._base._SEARCH_INTERVAL", -1.0)  # each put looks for what has expired
    place = tmp_path / "place"
    place.write_text("in the way of a folder")
    store = open_indexed(f"sqlite://{place}/index.sqlite", retention=Retention.only(ttl_seconds=1000))
    with caplog.at_level(logging.WARNING):
        first, second = await store.put_bytes(b"one"), await store.put_bytes(b"two")
        assert await store.get(first.id) == b"one" and await store.stat(second.id) == second
        assert await store.delete(second.id) and not await store.exists(second.id)
    assert caplog.text.count("the index") == 1 and "Artifacts are still stored" in caplog.text
    for work in (store.list(), find(store, Query()), store.gc(), store.change_token(), reindex(store)):
        with pytest.raises(StoreUnavailable, match=r"the index .* cannot be used: .*, or leave out \?index="):
            await work
    limited = open_indexed(f"sqlite://{place}/index.sqlite", retention=Retention.only(max_artifacts_per_session=9))
    with pytest.raises(StoreUnavailable, match="the index"):
        await limited.scoped(Scope(session="s")).put_bytes(b"nobody can count")
    place.unlink()
    assert await store.list() == [first]
    assert await open_indexed(f"sqlite://{place}/index.sqlite").list() == [first]


async def test_index_outage_is_recorded_for_other_machines(open_indexed: OpenIndexed, tmp_path: Path) -> None:
    store = open_indexed()
    first = await store.put_bytes(b"first")
    place = tmp_path / "place"
    place.write_text("in the way of a folder")
    cut_off = open_indexed(f"sqlite://{place}/index.sqlite")
    second = await cut_off.put_bytes(b"second")
    await cut_off.delete(first.id)
    noted = [one.key async for one in cut_off._bucket.list("unindexed/")]
    assert sorted(noted) == sorted(f"unindexed/{ref.id}" for ref in (first, second))
    assert await store.list() == [second]
    with pytest.MonkeyPatch.context() as patch:
        change_limits(patch, _catalog, given_up=-1.0)
        await store.list()
    assert not [one async for one in cut_off._bucket.list("unindexed/")]


async def test_slow_index_sync_does_not_overwrite_newer_rows(open_indexed: OpenIndexed) -> None:
    """What it read is older than the rows that writers have written since."""
    store = open_indexed()
    catalog = store._catalog
    assert isinstance(catalog, IndexedCatalog)
    index = catalog._index
    ref = await store.put_bytes(b"x")
    assert await store.list() == [ref]  # the index is built
    old, seen = await catalog._read_object(ref.id), await index.e_tags([ref.id])
    assert old and seen
    renamed = await store.put_bytes(b"x", filename="renamed.txt")
    await index.apply_differences([old], [], seen)
    await index.apply_differences([], [ref.id], seen)
    await index.apply_differences([old], [], {})
    assert await store.list() == [renamed]
    await store.delete(ref.id)
    await index.apply_differences([old], [], seen)
    assert await store.list() == []
    # it read an artifact that had no row when it was deleted
    ref = await open_indexed(None).put_bytes(b"y")
    old = await catalog._read_object(ref.id)
    await store.delete(ref.id)
    assert old
    await index.apply_differences([old], [], {})
    assert await store.list() == []


async def test_wrong_index_row_is_corrected_when_noticed(open_indexed: OpenIndexed) -> None:
    store = open_indexed(retention=Retention.only(ttl_seconds=1000))
    ref = await store.put_bytes(b"x")
    await tamper(store, "UPDATE abp_artifacts_1 SET stored = 5 WHERE id = ? AND store = ?", ref.id)
    assert list(await store.gc()) == []  # what counts is the metadata
    assert [entry.id for entry in await store._list_candidates(Scope(), Retention.only(ttl_seconds=1000))] == []
    assert await store.list() == [ref]


async def test_content_with_unreadable_row_is_kept_and_row_repaired(open_indexed: OpenIndexed, clock: Clock) -> None:
    store = open_indexed()
    refs = [await store.put_bytes(b"%d" % number) for number in range(3)]
    assert len(await store.list()) == 3
    clock.passes(7200)

    async def damage() -> None:  # the ETag of the row stays
        await tamper(store, "UPDATE abp_artifacts_1 SET metadata = '{' WHERE id = ? AND store = ?", refs[1].id)
        assert len(await store.list()) == 2

    await damage()
    assert list(await store.gc()) == []
    await damage()
    assert (await reindex(store)).corrected == (refs[1].id,)
    assert {ref.id for ref in await store.list()} == {ref.id for ref in refs}
    assert [await store.get(ref.id) for ref in refs] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("index", ["sqlite"], indirect=True)
async def test_index_outage_is_reported_to_all_waiters_at_once(
    open_indexed: OpenIndexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transports.artifacts.objects._index._PAUSE", 3600.0)
    store = open_indexed(f"sqlite://{tmp_path}/index.sqlite")
    rows, asked = store._catalog._index, []  # type: ignore[attr-defined]

    def fail() -> None:
        asked.append(1)
        raise StoreUnavailable("the index is down")

    monkeypatch.setattr(rows._database, "connect", fail)
    await asyncio.gather(*(store.put_bytes(b"%d" % number) for number in range(9)))
    assert len(asked) == 1


async def test_gc_keeps_unindexed_content(open_indexed: OpenIndexed, clock: Clock) -> None:
    plain, store = open_indexed(None), open_indexed()
    assert await store.list() == []
    ref = await plain.put_bytes(b"stored without the index")
    await plain._bucket.put(f"content/{'0' * 64}-x", b"orphan", "text/plain")
    clock.passes(7200)
    assert [(one.kind, one.reason) for one in await store.gc()] == [("content", "orphan")]
    assert await store.get(ref.id) == b"stored without the index" and await store.list() == [ref]


WRITER = """
import asyncio, itertools, sys
from transports.artifacts import Scope, open_store
async def main():
    async with open_store(sys.argv[1]) as store:
        view = store.scoped(Scope(session="s"))
        async def write(worker):
            for turn in itertools.count():
                ref = await view.put_bytes(b"%d" % (turn % 5), namespace=f"w{worker}", filename=f"{turn}.txt")
                if turn % 3 == 0:
                    await view.delete(ref.id)
                print(turn, flush=True)
        await asyncio.gather(*map(write, range(4)))
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.load
async def test_killed_writers_leave_a_recoverable_index(
    bucket: str, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real S3 server, a real PostgreSQL, and SIGKILL at any moment."""
    change_limits(monkeypatch, _catalog, interval=0.0)
    address = f"{bucket}?index={postgres}"
    for turns in (1, 3, 6):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, address, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(turns * 4):
            assert await asyncio.wait_for(process.stdout.readline(), 60)
        process.kill()
        await process.wait()
        plain = open_store(bucket)
        async with open_store(address) as store:
            async with asyncio.timeout(60):
                while await store.list() != await plain.list():  # the server may still have its last request
                    await asyncio.sleep(0.1)
            assert (await store.fsck()).problems == ()


async def test_a_read_only_store_lists_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "index.sqlite")

    store = LocalStore(tmp_path)
    ref = await store.put_bytes(b"x", filename="x.bin")
    monkeypatch.setattr("transports.artifacts.local._index.Index._open_index", refuse)
    assert [one.id for one in await LocalStore(tmp_path).list()] == [ref.id]
    assert not caplog.records
