"""A staged file is hashed while another program appends to it, and what is stored is what the file holds at the end."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.local_store import sha
from transports.artifacts import LocalStore, _content as following
from transports.artifacts._content import Meter, measure_file
from transports.artifacts.local import _store as staging
from transports.artifacts.local._store import LocalStaged
from transports.errors import StoreError, TooLarge

DATA = random.Random(1).randbytes(3_000_000)
OTHER = DATA[::-1]


async def until_read(staged: LocalStaged, size: int) -> None:
    """Wait until the follower has read ``size`` bytes."""
    await eventually(lambda: staged._follower is not None and staged._follower._meter.size == size)


def followers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "abp-follow"]


@asynccontextmanager
async def stage(store: LocalStore) -> AsyncIterator[LocalStaged]:
    staged = LocalStaged(store)
    await staged.prepare()
    yield staged
    await staged.aclose()
    assert not followers()


async def test_followed_content_is_not_read_again(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(fd: int, limit: int, begun: Meter | None) -> Meter:
        measured.append(begun.size if begun else 0)
        return measure_file(fd, limit, begun)

    async with stage(store) as staged:
        staged.follow()
        with staged.path.open("xb", buffering=0) as file:
            for end in (1, 1_500_000, 2_900_000):
                file.write(DATA[file.tell() : end])
                await until_read(staged, end)
            monkeypatch.setattr(staging, "measure_file", measure)
            file.write(DATA[2_900_000:])
        ref = await staged.commit(size=len(DATA))
    assert measured[0] >= 2_900_000 and ref.sha256 == sha(DATA)
    assert await store.get(ref.id) == DATA


def _shrunk(path: Path) -> bytes:
    os.truncate(path, 1_000_000)
    return DATA[:1_000_000]


def _swapped(path: Path) -> bytes:
    path.unlink()
    path.write_bytes(OTHER)
    return OTHER


def _renamed_over(path: Path) -> bytes:
    path.with_name("new").write_bytes(OTHER)
    path.with_name("new").rename(path)
    return OTHER


@pytest.mark.parametrize("change", [_shrunk, _swapped, _renamed_over])
async def test_replaced_file_is_rehashed_from_start_on_commit(
    store: LocalStore, change: Callable[[Path], bytes]
) -> None:
    async with stage(store) as staged:
        staged.follow()
        staged.path.write_bytes(DATA)
        await until_read(staged, len(DATA))
        held = change(staged.path)
        ref = await staged.commit()
    assert ref.sha256 == sha(held) and await store.get(ref.id) == held


async def test_truncated_file_is_followed_from_start(store: LocalStore) -> None:
    async with stage(store) as staged:
        staged.follow()
        staged.path.write_bytes(DATA)
        await until_read(staged, len(DATA))
        os.truncate(staged.path, 0)
        await until_read(staged, 0)
        with staged.path.open("r+b") as file:
            file.write(OTHER)
        await until_read(staged, len(OTHER))
        ref = await staged.commit()
    assert ref.sha256 == sha(OTHER)


async def test_background_fsync_failure_fails_commit(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports it once, and the last sync would be told that all is well."""
    failed = threading.Event()

    def sync(_: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(following, "_SYNC_EVERY", 1_000_000)
    monkeypatch.setattr(following, "sync_data", sync)
    async with stage(store) as staged:
        staged.follow()
        staged.path.write_bytes(DATA)
        assert await asyncio.to_thread(failed.wait, 15)
        with pytest.raises(StoreError, match="the disk is broken"):
            await staged.commit()
    assert not await store.list()


async def test_follower_ends_with_its_file_in_any_state(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store", max_bytes=1000)

    def too_large(path: Path) -> None:
        path.write_bytes(DATA)

    def symlink(path: Path) -> None:
        path.symlink_to(tmp_path)

    ways = (
        (None, StoreError, "nothing was written"),
        (too_large, TooLarge, "over the limit"),
        (symlink, StoreError, "is a symlink"),
        (os.mkfifo, StoreError, "is not a regular file"),
        (os.mkdir, StoreError, "is not a regular file"),
    )
    for make, error, words in ways:
        async with stage(store) as staged:
            staged.follow()
            assert len(followers()) == 1
            if make is not None:
                make(staged.path)
            with pytest.raises(error, match=words):
                await staged.commit()
    async with stage(store) as staged:
        staged.follow()
        await staged.reset()
        assert not followers()
        await staged.write(b"written")
        assert (await staged.commit()).size_bytes == 7


async def test_file_is_reread_after_follower_failure(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add = Meter.add

    def failing(meter: Meter, chunk: memoryview) -> None:
        add(meter, chunk[:1000])  # half of the piece is counted
        raise KeyError("half")

    async with stage(store) as staged:
        with monkeypatch.context() as patch:
            patch.setattr(Meter, "add", failing)
            staged.follow()
            staged.path.write_bytes(DATA)
            await eventually(lambda: "could not be measured" in caplog.text)
        ref = await staged.commit(size=len(DATA))
    assert ref.sha256 == sha(DATA) and await store.get(ref.id) == DATA
