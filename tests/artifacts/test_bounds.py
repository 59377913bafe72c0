"""Every bound of the room: a case at it, and one beyond it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.local_store import PNG, visible
from transports.artifacts import (
    ArtifactRef,
    LocalStore,
    MemoryStore,
    Retention,
    Scope,
    _base as eviction,
    search as find,
)
from transports.artifacts._base import ArtifactStore, Evictor
from transports.artifacts._content import Meter, describe
from transports.artifacts._opening import sweeping
from transports.artifacts._retention import Entry
from transports.artifacts.local import _maintenance as maintenance

HASH = "a" * 64


# --- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[5000], [4095, 5000], [4096, 1], [1, 4095, 9]])
def test_meter_keeps_first_4096_bytes_as_head(pieces: list[int]) -> None:
    meter = Meter(10_000)
    for size in pieces:
        meter.add(memoryview(b"x" * size))
    assert (len(meter.head), meter.size) == (4096, sum(pieces))


def kept(**meta: object) -> dict[str, object]:
    source = describe(Meter(1), meta=meta).source
    return {key: value for key, value in source.items() if key in (*meta, "warnings")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab " * 333 + "x", "ab " * 333 + "x"),
        ("ab " * 333 + "xy", "ab " * 333 + "…"),
        ("x" * 99, "x" * 99),
        ("x" * 100, "…"),
        ("x" * 99 + " " + "y" * 100, "x" * 99 + " …"),
    ],
)
def test_metadata_text_keeps_1000_characters_and_no_run_of_100(text: str, expected: str) -> None:
    assert kept(a=text) == {"a": expected}


def test_metadata_over_32_kib_is_dropped_with_a_warning() -> None:
    def said(size: int) -> dict[str, object]:
        texts = ["x" * 95] * 300
        rest = size - len(json.dumps({"a": [*texts, ""]}, separators=(",", ":")))
        return kept(a=[*texts, *(["y" * 95] * (rest // 98)), "z" * (rest % 98)])

    assert "a" in said(32_768) and "warnings" not in said(32_768)
    assert said(32_769) == {"warnings": ["meta had 32,769 bytes of JSON and was left out"]}


# --- metadata ---------------------------------------------------------------------------------------------------------


async def test_last_10_names_of_content_are_remembered() -> None:
    async with MemoryStore() as store:
        for number in range(11):
            ref = await store.put_bytes(PNG, filename=f"{number}.png")
            assert ref.source["requested_names"] == [f"{one}.png" for one in range(max(0, number - 9), number + 1)]


async def test_random_name_is_used_after_999_collisions(root: Path) -> None:
    async with LocalStore(root) as store:
        await store.put_bytes(b"first")
        for name in ("a.bin", *(f"a-{number}.bin" for number in range(2, 999))):
            (root / name).touch()
        assert (await store.put_bytes(b"second", filename="a.bin")).filename == "a-999.bin"
        before = visible(root)
        assert len((await store.put_bytes(b"third", filename="a.bin")).filename) == len("a-0123456789abcdef.bin")
        assert len(visible(root)) == len(before) + 1


async def test_search_covers_first_mib_of_text() -> None:
    async with MemoryStore() as store:
        refs: Sequence[ArtifactRef] = [
            await store.put_bytes(b"." * (length - 5) + b"apple", mime_type="text/plain")
            for length in (1_048_576, 1_048_577)
        ]
        assert [ref.id for ref in await find(store, "apple")] == [refs[0].id]
        assert [ref.id for ref in await find(store, "appl")] == [ref.id for ref in refs]


# --- time -------------------------------------------------------------------------------------------------------------


async def test_expiry_is_checked_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 100.0
    monkeypatch.setattr(eviction, "time", SimpleNamespace(monotonic=lambda: at, time=lambda: at))
    looked: list[float] = []

    class Store:
        retention, scope = Retention.only(ttl_seconds=1), Scope()

        async def _list_candidates(self, scope: Scope, policy: Retention) -> Sequence[Entry]:
            looked.append(at)
            return []

    evictor = Evictor()
    for at in (160.0, 160.5, 220.5, 221.0):  # noqa: B007 - the clock reads it
        await evictor.make_room(cast("ArtifactStore", Store()), Store.retention, "key", 1)
    assert looked == [160.5, 221.0]


async def sweep(store: ArtifactStore, times: int, before_each: Callable[[int], object]) -> None:
    """Sweep a store so often, without the waiting. ``before_each`` gets the number of the sweep, from 1."""
    number = 0
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal number
        assert seconds == 60.0
        number += 1
        if number > times:
            enough.set()
            await asyncio.Event().wait()
        before_each(number)

    async with asyncio.timeout(15), sweeping(store, sleep=sleep):
        await enough.wait()


async def test_leftovers_are_collected_every_60th_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(retention=Retention())
    done: list[str] = []

    def noting(what: str) -> object:
        async def sweep() -> list[object]:
            done.append(what)
            return []

        return sweep

    monkeypatch.setattr(store, "gc", noting("gc"))
    monkeypatch.setattr(store, "enforce_retention", noting("retention"))
    await sweep(store, 61, lambda number: None)
    assert done == ["gc", *["retention"] * 59, "gc", "retention"]


async def test_failed_sweep_is_reported_once_and_does_not_stop_the_next(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = LocalStore(root, retention=Retention.only(ttl_seconds=0.001))
    await store.put_bytes(b"x")
    away = root.with_name("away")
    root.rename(away)
    root.write_bytes(b"no folder")

    def bring_back(number: int) -> None:
        if number == 3:
            root.unlink()
            away.rename(root)

    await sweep(store, 3, bring_back)
    assert ["cannot be swept" in message for message in caplog.messages] == [True]
    assert visible(root) == []


@pytest.mark.parametrize(("seconds", "removed"), [(3600.0, False), (3600.5, True)])
async def test_staged_file_of_dead_writer_is_kept_for_an_hour(
    root: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, removed: bool
) -> None:
    async with LocalStore(root) as store:
        await store.put_bytes(b"x")
        staged = root / ".abp" / "staging" / "999999999-0a"
        staged.touch()
        at = staged.stat().st_mtime + seconds
        monkeypatch.setattr("time.time", lambda: at)
        assert await store.scoped(Scope(session="s")).gc() == []
        assert [one.kind for one in await store.gc(dry_run=True)] == ["staged"] * removed
        assert staged.exists() and len(await store.gc()) == removed


@pytest.mark.parametrize("beyond", [0.0, 0.5])
async def test_gc_keeps_orphans_an_hour_and_damaged_content_a_day(
    root: Path, monkeypatch: pytest.MonkeyPatch, beyond: float
) -> None:
    async with LocalStore(root) as store:
        ref: ArtifactRef = await store.put_bytes(b"x")
        inside = root / ".abp"
        (inside / "meta" / f"{ref.id}.json").unlink()
        (inside / "quarantine").mkdir(exist_ok=True)
        damaged = inside / "quarantine" / HASH
        damaged.touch()
        blob = inside / "blobs" / ref.sha256
        for file, stays, kinds in ((blob, 3600.0, {"content", "name"}), (damaged, 86400.0, {"quarantine"})):
            at = file.stat().st_ctime + stays + beyond
            monkeypatch.setattr(maintenance, "time", SimpleNamespace(time=lambda at=at: at))
            found = {one.kind for one in await store.gc(dry_run=True)}
            assert kinds.isdisjoint(found) if not beyond else kinds <= found


async def test_session_artifacts_are_counted_only_if_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each artifact would cost as much as the session has artifacts."""
    counted: list[Scope] = []
    entries = MemoryStore._list_entries

    async def counting(self: MemoryStore, scope: Scope) -> list[Entry]:
        counted.append(scope)
        return await entries(self, scope)

    monkeypatch.setattr(MemoryStore, "_list_entries", counting)
    for retention, times in ((Retention.only(ttl_seconds=60), 0), (Retention.only(max_artifacts_per_session=9), 3)):
        store = MemoryStore(retention=retention).scoped(Scope(session="s"))
        for number in range(3):
            await store.put_bytes(b"%d" % number)
        assert len(counted) == times
