"""What happens to a store at once: content that is stored while the same is removed stays, and answers that are stored
beside each other do not disturb each other."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, PNG, fail_when, inner, sha
from transports.artifacts import ArtifactRef, ArtifactStore, LocalStore, MemoryStore, Retention, Scope
from transports.artifacts._files import try_lock
from transports.artifacts._retention import Entry, Removal
from transports.artifacts.local._tree import Folder
from transports.errors import StoreError, StoreUnavailable

VIEW = Scope(session="s")


def put_elsewhere(store: ArtifactStore, data: bytes) -> None:
    """Store content from another thread and event loop, as another process would."""
    thread = threading.Thread(target=lambda: asyncio.run(store.scoped(VIEW).put_bytes(data)))
    thread.start()
    thread.join()


class Interrupted(Retention):
    """A retention beside which something happens between the plan and the removal."""

    def plan(self, entries: Iterable[Entry], now: float, incoming: Entry | None = None) -> list[Removal]:
        out = super().plan(entries, now, incoming)
        if incoming is None:
            interrupt["work"]()
        return out


interrupt: dict[str, Callable[[], object]] = {"work": lambda: None}


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("reason", ["expired", "fifo"])
async def test_content_stored_again_after_eviction_plan_is_kept(
    kind: str, reason: str, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Interrupted.only(ttl_seconds=60) if reason == "expired" else Interrupted.only(max_artifacts_per_session=5)
    store = LocalStore(root, retention=limit) if kind == "local" else MemoryStore(retention=limit)
    writer: ArtifactStore = LocalStore(root) if kind == "local" else store.scoped(Scope())
    writer.retention = None
    async with store:
        view = store.scoped(VIEW)
        ref, other = await view.put_bytes(PDF), await view.put_bytes(b"other")
        if reason == "expired":
            clock.passes(100)
        else:
            object.__setattr__(limit, "max_artifacts_per_session", 0)
        monkeypatch.setitem(interrupt, "work", lambda: put_elsewhere(writer, PDF))
        removed = await store.gc()
        assert [one.id for one in removed] == [other.id]
        object.__setattr__(limit, "max_artifacts_per_session", None)
        assert await view.get(ref.id) == PDF


async def test_put_before_delete_takes_lock_is_kept(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await store.scoped(VIEW).put_bytes(PDF)
    first = [True]

    def lock(fd: int) -> bool:
        if first.pop() if first else False:
            put_elsewhere(LocalStore(root), PDF)
        return try_lock(fd)

    monkeypatch.setattr("transports.artifacts.local._tree.try_lock", lock)
    assert await store.delete(ref.id)  # what was there when it began is gone
    assert await store.get(ref.id) == PDF
    assert await store.delete(ref.id) and not await store.exists(ref.id)


async def test_delete_keeps_content_that_another_process_stored_under_new_ids(store: LocalStore, root: Path) -> None:
    first = await store.put_bytes(PDF, namespace="first")
    assert await store.delete(first.id)  # now it knows all ids with this content
    other = LocalStore(root)
    kept, removed = [await other.put_bytes(PDF, namespace=namespace) for namespace in ("second", "third")]
    assert await store.delete(removed.id)
    assert await other.get(kept.id) == PDF
    assert await store.delete(kept.id)
    assert inner(root, "blobs") == []


@pytest.mark.skipif(not Folder.is_supported(), reason="names are copies on this system, not links")
async def test_delete_keeps_content_of_restored_metadata(store: LocalStore, root: Path) -> None:
    first, second, third = [await store.put_bytes(PDF, namespace=namespace) for namespace in ("a", "b", "c")]
    files = [root / ".abp" / "meta" / f"{third.id}.json", Path(str(third.path))]
    backup = [file.read_bytes() for file in files]
    assert await store.delete(third.id) and await store.delete(first.id)
    files[0].write_bytes(backup[0])  # as a backup does, or a program that does not change the lock file
    files[1].hardlink_to(Path(str(second.path)))
    assert await store.delete(second.id)
    assert await store.get(third.id) == PDF


async def test_delete_keeps_content_that_damaged_metadata_names(store: LocalStore, root: Path) -> None:
    damaged, intact = await store.put_bytes(PDF), await store.put_bytes(PNG)
    metadata = root / ".abp" / "meta" / f"{damaged.id}.json"
    metadata.write_text(metadata.read_text().replace(damaged.sha256, intact.sha256))
    Path(str(intact.path)).unlink()
    assert await store.delete(damaged.id)
    assert await store.get(intact.id) == PNG


async def put(store: LocalStore, data: bytes) -> ArtifactRef:
    return await store.put_bytes(data, namespace="a", durability="process", filename="same.bin")


async def test_put_waiting_for_lock_does_not_block_others(store: LocalStore, root: Path) -> None:
    free = next(data for data in (b"%d" % number for number in range(9)) if sha(data)[:2] != sha(b"held")[:2])
    await put(store, b"held")
    lock = root / ".abp/locks" / sha(b"held")[:2]
    with lock.open("r+b") as file:
        assert try_lock(file.fileno())
        waiting = asyncio.ensure_future(put(store, b"held"))
        async with asyncio.timeout(30):
            assert await store.get((await put(store, free)).id) == free
        assert not waiting.done()
    assert (await waiting).sha256 == sha(b"held")


async def test_one_failed_put_does_not_fail_concurrent_ones(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_when(monkeypatch, os, "link", lambda _, target: target == sha(b"7"), errno.EIO)
    found = await asyncio.gather(*(put(store, b"%d" % number) for number in range(20)), return_exceptions=True)
    assert [number for number, one in enumerate(found) if isinstance(one, StoreError)] == [7]
    refs = await store.list()
    assert len({ref.path for ref in refs}) == 19 and not any((root / ".abp/staging").iterdir())
    assert {ref.path.read_bytes() for ref in refs if ref.path} == {b"%d" % number for number in range(20)} - {b"7"}


async def test_cancelled_put_waits_for_files_in_use(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, real = threading.Event(), threading.Event(), os.link

    def slow(*arguments: Any, **options: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        real(*arguments, **options)

    monkeypatch.setattr(os, "link", slow)
    storing = asyncio.ensure_future(put(store, b"slow"))
    other = asyncio.ensure_future(put(store, b"other"))
    await asyncio.to_thread(begun.wait, 30)
    storing.cancel()
    await asyncio.wait([storing], timeout=0.05)
    assert not storing.done()  # its files are in use
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await storing
    assert await store.get((await other).id) == b"other"
    assert (await store.fsck()).problems == ()


async def test_answer_is_rejected_without_thread_and_next_is_stored(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # without a thread that waits for work
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StoreUnavailable, match="can't start new thread") as caught:
            await put(store, b"refused")
        await store.aclose()
    assert caught.value.retryable
    assert await store.get((await put(store, b"stored")).id) == b"stored"
