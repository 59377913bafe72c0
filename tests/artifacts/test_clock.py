"""A machine's clock that jumps, forward or back, for a moment or for good: nothing goes too early, nothing stays for
ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF
from transports.artifacts import ArtifactStore, LocalStore, MemoryStore, Retention, Scope

DAY, HOUR = 86400.0, 3600.0


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, root: Path) -> ArtifactStore:
    limit = Retention.only(ttl_seconds=HOUR)
    return LocalStore(root, retention=limit) if request.param == "local" else MemoryStore(retention=limit)


async def kept(store: ArtifactStore) -> set[str]:
    """The ids that are there, as every way to look at the store tells them."""
    planned = {one.id for one in await store.gc(dry_run=True)}
    listed = {ref.id for ref in await store.list()}
    assert {one for one in planned | listed if await store.exists(one)} == listed == listed - planned
    assert {one.id for one in await store.gc()} == planned
    return listed


@pytest.mark.parametrize("jump", [DAY, -DAY, 40 * 365 * DAY, -40 * 365 * DAY])
@pytest.mark.parametrize("comes_back", [False, True], ids=["for good", "for a moment"])
async def test_artifact_expires_after_its_ttl(
    jump: float, comes_back: bool, store: ArtifactStore, clock: Clock
) -> None:
    async with store:
        before = await store.put_bytes(b"before")
        clock.passes(60)
        clock.jumps(jump)
        assert await kept(store) == {before.id}
        during = await store.put_bytes(b"during")
        clock.passes(60)
        assert await kept(store) == {before.id, during.id}
        if comes_back:
            clock.jumps(-jump)
            assert await kept(store) == {before.id, during.id}
        after = await store.put_bytes(b"after")
        assert after.id in await kept(store)
        clock.passes(HOUR - 180)
        assert await kept(store) == {before.id, during.id, after.id}
        clock.passes(400)  # they were looked at in time, so they are as old as that at least
        assert await kept(store) == set()


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_eviction_removes_oldest_despite_clock_jump(jump: float, clock: Clock) -> None:
    for strategy in ("lru", "fifo"):
        limit = Retention.only(max_artifacts_per_session=2, cleanup_strategy=strategy)
        async with MemoryStore(retention=limit) as store:
            view = store.scoped(Scope(session="s"))
            refs = []
            for number in range(4):
                refs.append(await view.put_bytes(b"%d" % number))
                clock.passes(10)
                clock.jumps(jump if number == 1 else 0)
            assert {ref.id for ref in await view.list()} == {refs[2].id, refs[3].id}


async def test_ttl_of_future_artifact_counts_from_first_check(root: Path, clock: Clock) -> None:
    """It knows only the machine's clock, so what it finds was stored in the future."""
    clock.jumps(DAY)
    ref = await LocalStore(root).put_bytes(PDF)
    clock.jumps(-DAY)
    async with LocalStore(root, retention=Retention.only(ttl_seconds=HOUR)) as store:
        assert list(await store.gc()) == []
        clock.passes(HOUR - 10)
        assert list(await store.gc()) == [] and await store.exists(ref.id)
        clock.passes(20)
        assert [one.id for one in await store.gc()] == [ref.id]
