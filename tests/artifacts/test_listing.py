"""The local store: a list reads the metadata only where something changed, and never shows what is not there."""

from __future__ import annotations

import errno
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.artifacts.conftest import database
from tests.support.limits import change_limits
from tests.support.local_store import fail_when
from transports.artifacts import LocalStore, Retention, Scope
from transports.artifacts.local import _index
from transports.artifacts.local._index import Index
from transports.errors import StoreError


class Folder:
    """The metadata folder: how often its names were read."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = root / ".abp/meta"
        self.reads = 0
        scandir = os.scandir

        def counted(path: int) -> object:
            self.reads += 1
            return scandir(path)

        patch.setattr(os, "scandir", counted)
        change_limits(patch, _index, settled=0)

    def settle(self) -> None:
        """Wait until a change would give the folder another time of change."""
        probe = self.path.with_name("probe")
        while True:
            probe.touch()
            changed = probe.stat().st_ctime_ns
            probe.unlink()
            if changed > self.path.stat().st_ctime_ns:
                return
            time.sleep(0.001)


async def test_names_are_reread_only_after_change(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = store.scoped(Scope(session="s"))
    first = await view.put_bytes(b"1")
    await store.put_bytes(b"of nobody")
    folder = Folder(root, monkeypatch)

    async def listed(expected: list[object], *, reads: int) -> None:
        folder.settle()
        before = folder.reads
        assert await LocalStore(root).scoped(Scope(session="s")).list() == expected
        assert folder.reads - before == reads

    await listed([first], reads=1)
    await listed([first], reads=0)
    second = await view.put_bytes(b"2")
    await listed([first, second], reads=1)
    await listed([first, second], reads=0)
    await store.delete(first.id)
    await listed([second], reads=1)
    await listed([second], reads=0)
    for lie in ("DELETE FROM artifacts WHERE session = 's'", "UPDATE artifacts SET inode = 1, size = 9"):
        with closing(database(root)) as db, db:
            db.execute(lie)
        await listed([second], reads=1)
        await listed([second], reads=0)
    with closing(database(root)) as db, db:
        db.execute("UPDATE artifacts SET session = 'other', size = 9")
    await listed([], reads=0)  # a lie within a row is found by a check
    await store.fsck()
    await listed([second], reads=0)


async def test_retention_does_not_count_artifact_whose_metadata_is_gone(store: LocalStore, root: Path) -> None:
    view = store.scoped(Scope(session="s"))
    refs = [await view.put_bytes(b"%d" % number) for number in range(3)]
    assert await view.list() == refs
    (root / f".abp/meta/{refs.pop().id}.json").unlink()
    limited = LocalStore(root, retention=Retention(max_artifacts_per_session=2))
    assert await limited.gc() == [] and await limited.list() == refs


async def test_stale_listing_does_not_overwrite_newer_index(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that read the names before another one stored drops the row that it does not know."""
    first = await store.put_bytes(b"1")
    folder = Folder(root, monkeypatch)
    folder.settle()
    slow, fast = LocalStore(root), LocalStore(root)
    mark, keys = slow._catalog._list_files()
    second = await store.put_bytes(b"2")
    folder.settle()
    assert await fast.list() == [first, second]
    slow._catalog._sync_index(keys, mark)
    with closing(database(root)) as db:
        assert db.execute("SELECT count(*) FROM artifacts").fetchone() == (2,)
    assert await fast.list() == [first, second]


async def test_recent_folder_change_forces_relisting(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_bytes(b"1")
    folder = Folder(root, monkeypatch)
    change_limits(monkeypatch, _index, settled=float("inf"))  # no time is long enough on this clock
    for reads in (1, 2):
        await store.list()
        assert folder.reads == reads


async def test_long_listing_of_unchanged_store_queries_index_once(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [await store.put_bytes(b"%d" % number) for number in range(4)]
    folder = Folder(root, monkeypatch)
    change_limits(monkeypatch, _index, few=2)
    folder.settle()
    assert await store.list() == refs
    asked: list[Scope] = []
    rows = Index.rows

    def counted(index: Index, scope: Scope, *folder: str) -> object:
        asked.append(scope)
        return rows(index, scope, *folder)

    monkeypatch.setattr(Index, "rows", counted)
    assert await store.list() == refs
    assert asked == [Scope()]
    await store.delete(refs.pop(1).id)
    (root / ".abp/meta" / f"{refs[1].id}.json").write_bytes(b"damaged")  # in its place: the same file
    assert await store.list() == refs
    (root / ".abp/meta" / f"{refs[1].id}.json").unlink()
    assert await store.list() == [refs[0], refs[2]]


async def test_list_is_not_shortened_while_too_many_files_are_open(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await store.put_bytes(b"1")
    with monkeypatch.context() as patch:
        fail_when(patch, os, "open", lambda path, *_: str(path).endswith(".json"), errno.EMFILE)
        with pytest.raises(StoreError, match="too many files are open"):
            await store.list()
    assert await store.list() == [ref]
