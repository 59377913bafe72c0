"""The threads of the local store meet what nobody expects: whoever stores gets an error, or bytes that are right."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.support.eventually import eventually
from tests.support.local_store import sha
from transports.artifacts import LocalStore
from transports.artifacts._content import Meter
from transports.artifacts.local._store import LocalStaged

DATA = os.urandom(300_000)


async def staged_file(store: LocalStore) -> LocalStaged:
    staged = await store._new_staged()
    assert isinstance(staged, LocalStaged)
    await staged.prepare()
    return staged


async def test_a_sync_that_fails_unexpectedly_fails_the_commit(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = await staged_file(store)
    staged.path.write_bytes(DATA)

    def failing(fd: int) -> None:
        raise ValueError("not a file today")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        async with asyncio.timeout(20):
            with pytest.raises(ValueError, match="not a file today"):
                await staged.commit(size=len(DATA))
    await staged.aclose()
    assert await store.list() == []


async def test_a_file_whose_follower_fails_unexpectedly_is_read_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged = await staged_file(store)
    add = Meter.add

    def failing(meter: Meter, chunk: memoryview) -> None:
        add(meter, chunk[:1000])  # half of the piece is counted
        raise KeyError("half")

    with monkeypatch.context() as patch:
        patch.setattr(Meter, "add", failing)
        staged.follow()
        staged.path.write_bytes(DATA)
        await eventually(lambda: "could not be measured" in caplog.text)
    ref = await staged.commit(size=len(DATA))
    await staged.aclose()
    assert ref.sha256 == sha(DATA) and await store.get(ref.id) == DATA
