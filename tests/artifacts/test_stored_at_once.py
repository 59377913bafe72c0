"""The local store: answers that are stored at once do not disturb each other."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_store import fail_when, sha
from transports.artifacts import ArtifactRef, LocalStore
from transports.artifacts._files import try_lock
from transports.errors import StoreError, StoreUnavailable


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
