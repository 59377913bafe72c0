"""Finding artifacts: versions under one name, words in texts."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from tests.support.local_store import fail_when
from transports import StoreError, UsageError
from transports.artifacts import ArtifactStore, LocalStore, MemoryStore, Query, Scope, find, search, versions
from transports.surfaces.cli._commands import run


@pytest.fixture(params=["memory", "local", "indexed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "memory":
        return MemoryStore()
    return LocalStore(tmp_path / "out", search_index=request.param == "indexed")


@pytest.mark.requirement("R4-4c")
async def test_versions_of_name_are_listed_latest_last(store: ArtifactStore, ticking_clock: None) -> None:
    first, second = [await store.put_bytes(data, filename="report.pdf") for data in (b"one", b"two")]
    other = await store.put_bytes(b"other", filename="other.pdf")
    assert [ref.id for ref in await versions(store, "report.pdf")] == [first.id, second.id]
    assert await store.get((await versions(store, "report.pdf"))[0].id) == b"one"
    await store.put_bytes(b"one", filename="report.pdf")  # the older one again
    assert [ref.id for ref in await versions(store, "report.pdf")] == [second.id, first.id]
    await store.put_bytes(b"other", filename="report.pdf")  # a second name of the same content
    assert [ref.id for ref in await versions(store, "report.pdf")] == [second.id, first.id, other.id]
    assert [ref.id for ref in await versions(store, "other.pdf")] == [other.id]
    mine = store.scoped(Scope(session="s"))
    own = await mine.put_bytes(b"mine", filename="report.pdf")
    assert [ref.id for ref in await versions(mine, "report.pdf")] == [own.id]
    assert await versions(store, "nothing.pdf") == []


async def test_find_accepts_mime_type_wildcards(store: ArtifactStore) -> None:
    picture = await store.put_bytes(b"\x89PNG\r\n\x1a\n", mime_type="image/png")
    text = await store.put_text("image/*")
    for kind, ids in (
        ("image/*", {picture.id}),
        ("image/", {picture.id}),
        ("*/*", {picture.id, text.id}),
        ("im/*", set()),
    ):
        assert {ref.id for ref in (await find(store, Query(mime_type=kind))).artifacts} == ids, kind


@pytest.mark.requirement("R4-16f")
async def test_texts_are_searched_by_words(store: ArtifactStore, ticking_clock: None) -> None:
    tea = await store.put_text("Tea_time: Größe 7, in the MORNING")
    coffee = await store.put_text('{"coffee": ["morning", "noon"]}', mime_type="application/json")
    await store.put_bytes(b"%PDF-1.7 morning", mime_type="application/pdf")
    mine = store.scoped(Scope(session="s"))
    own = await mine.put_text("a morning of one's own")

    async def found(words: str, view: ArtifactStore = store) -> list[str]:
        return [ref.id for ref in await search(view, words)]

    assert await found("morning") == [tea.id, coffee.id, own.id]  # the oldest first
    assert await found("Morning TIME") == [tea.id] == await found("tea größe 7 mor")
    assert await found("mor time") == [] == await found("eveni") == await found("grosse")
    assert await found('noon" OR "x') == []
    assert await found("morning", mine) == [own.id]
    await store.delete(coffee.id)
    await store.put_text("late morning")
    assert len(await found("morning")) == 3 and coffee.id not in await found("morning")
    for nothing in ("", "…", "*"):
        with pytest.raises(UsageError, match="at least one word"):
            await search(store, nothing)


async def test_search_index_drops_removed_text_and_survives_damage(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, search_index=True)
    first, second = await store.put_text("a password, say"), await store.put_text("nothing to see")
    index = tmp_path / ".abp" / "text.sqlite"
    assert not index.exists()  # before the first search
    assert [ref.id for ref in await search(store, "password")] == [first.id]
    assert index.stat().st_mode & 0o777 == 0o600
    await store.delete(first.id)
    assert [ref.id for ref in await search(store, "nothing")] == [second.id]
    with sqlite3.connect(index) as db:
        assert [text for (text,) in db.execute("SELECT text FROM texts")] == ["nothing to see"]
    db.close()
    for damage in (lambda: index.unlink(), lambda: index.write_bytes(b"no database" * 1000)):
        damage()
        assert [ref.id for ref in await search(store, "nothing")] == [second.id]


async def test_search_index_on_read_only_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path, search_index=True)
    await store.put_text("some words")
    fail_when(monkeypatch, os, "open", lambda path, *_: path == "text.sqlite", errno.EROFS)
    with pytest.raises(StoreError, match=r"cannot use the text index in .*: Read-only file system"):
        await search(store, "words")


def test_cli_lists_versions_and_searches_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    async def fill() -> None:
        store = LocalStore(tmp_path)
        for text in ("first words", "second words"):
            await store.put_text(text, filename="notes.txt")

    asyncio.run(fill())
    assert run(["artifacts", "versions", "notes.txt", "--out", str(tmp_path)]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["notes.txt", "notes-2.txt"]
    assert run(["artifacts", "search", "second", "words", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[-1] == "notes-2.txt"
    assert run(["artifacts", "search", "third", "--out", str(tmp_path)]) == 0
    assert "no text in" in capsys.readouterr().err
