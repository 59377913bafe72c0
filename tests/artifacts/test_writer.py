"""The local store: small answers that are stored at once share one visit to the disk's thread, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.counted import opened_names
from tests.support.local_store import sha
from transports.artifacts import ArtifactRef, LocalStore
from transports.artifacts._files import try_lock
from transports.artifacts.local import _store as writer
from transports.artifacts.local._tree import Tree
from transports.errors import StoreError


async def put(store: LocalStore, data: bytes) -> ArtifactRef:
    return await store.put_bytes(data, namespace="a", durability="process")


async def test_answers_stored_at_once_share_their_folders(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await put(store, b"first")
    opened = opened_names(monkeypatch)
    refs = await asyncio.gather(*(put(store, b"%d" % number) for number in range(64)))
    assert opened.count("meta") <= 4  # of at most 32 answers a visit, and one visit may begin early
    monkeypatch.undo()
    assert [await store.get(ref.id) for ref in refs] == [b"%d" % number for number in range(64)]
    assert {ref.id for ref in await store.list()} == {first.id, *(ref.id for ref in refs)}
    assert (await store.fsck()).problems == ()


async def test_answers_stored_in_a_row_share_their_folders_while_these_are_in_their_places(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_STAY", 15.0)
    first = await put(store, b"first")
    folders = sorted(place for place in root.rglob("*") if place.is_dir())
    before = psutil.Process().num_fds()
    opened = opened_names(monkeypatch)
    for number in range(40):
        await put(store, b"%d" % number)
    assert opened.count("meta") <= 1 and await store.exists(first.id)
    assert psutil.Process().num_fds() < before + 20
    assert sorted(place for place in root.rglob("*") if place.is_dir()) == folders  # no content needs one of its own
    places = (root, root / ".abp", root / ".abp/meta", root / ".abp/staging")
    for number, place in enumerate(places):
        place.rename(root.with_name(f"away{number}"))
        ref = await put(store, b"moved %d" % number)
        assert ref.path and ref.path.read_bytes() == await store.get(ref.id) == b"moved %d" % number
    for number, place in enumerate(places):
        shutil.rmtree(place)
        ref = await put(store, b"removed %d" % number)
        assert ref.path and ref.path.read_bytes() == await store.get(ref.id) == b"removed %d" % number
    (root / ".abp/meta").rename(root / ".abp/away")
    (root / ".abp/meta").symlink_to(root / ".abp/away")
    with pytest.raises(StoreError, match="symlink"):
        await put(store, b"followed")


async def test_an_answer_that_waits_for_a_lock_holds_up_no_other(store: LocalStore, root: Path) -> None:
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


async def test_an_answer_that_fails_fails_alone(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def failing(source: str, target: str, **options: Any) -> None:
        if target == sha(b"7"):
            raise OSError(errno.EIO, "input/output error")
        real(source, target, **options)

    monkeypatch.setattr(os, "link", failing)
    found = await asyncio.gather(*(put(store, b"%d" % number) for number in range(20)), return_exceptions=True)
    assert [number for number, one in enumerate(found) if isinstance(one, StoreError)] == [7]
    assert len(await store.list()) == 19 and not any((root / ".abp/staging").iterdir())


async def test_a_cancelled_answer_is_waited_for(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_thread_ends_with_the_store_and_its_loop(tmp_path: Path) -> None:
    def threads() -> set[threading.Thread]:
        return {one for one in threading.enumerate() if one.name.startswith("abp-store")}

    before = threads()
    store = LocalStore(tmp_path / "out")

    async def work(number: int) -> None:
        async with store:
            await put(store, b"%d" % number)
            assert threads() - before

    for number in range(3):
        asyncio.run(work(number))
    end = time.monotonic() + 30
    while threads() - before:
        assert time.monotonic() < end
        time.sleep(0.01)


async def test_a_thread_that_cannot_be_started_fails_the_put_and_no_later_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ThreadPoolExecutor.submit

    def refuse(executor: ThreadPoolExecutor, *work: Any) -> Any:
        if executor._thread_name_prefix == "abp-store":
            raise RuntimeError("can't start new thread")
        return real(executor, *work)

    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", refuse)
        async with asyncio.timeout(10):
            with pytest.raises(StoreError, match="can't start new thread"):
                await put(store, b"refused")
    assert await store.get((await put(store, b"stored")).id) == b"stored"


async def test_work_that_cannot_be_begun_or_ends_oddly_is_answered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, loop = writer.Writer(Tree(root, own=True)), asyncio.get_running_loop()
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ours.run(lambda _: next(iter(())))
    lane = writer._Lane(Tree(root, own=True))
    lane.end()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(lane._executor, "submit", refuse)
    done = loop.create_future()
    lane.add(loop, (lambda _: None, done))  # behind the mark of the end
    with pytest.raises(StoreError, match="can't start new thread"):
        await asyncio.wait_for(done, 15)
