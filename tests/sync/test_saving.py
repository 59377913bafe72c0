"""Blocking copies of artifacts out of a store, and closing one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transports import MemoryTransport
from transports.artifacts import Retention, Scope
from transports.sync import LocalStore, connect, open_store

PDF = b"%PDF-1.7\n" + b"x" * 1000


async def make(params: Mapping[str, object], call: object) -> object:
    return {"document": PDF}


def test_a_session_saves_from_a_store_without_files(tmp_path: Path) -> None:
    with connect("memory:", transport=MemoryTransport({"make": make}), store="memory:") as app:
        ref = app.call("make").artifacts["document"]
        assert app.save(ref, tmp_path / "a.pdf") == tmp_path / "a.pdf"
        assert app.store.export(ref.id, tmp_path / "b.pdf") == tmp_path / "b.pdf"
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes() == PDF


def test_a_store_is_closed_at_the_end_of_its_block(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [link for link in links if str(tmp_path) in link]

    with open_store(tmp_path / "out", retention=Retention()) as store:
        view = store.scoped(Scope(session="s"))
        assert store.get(view.put_bytes(PDF).id) == PDF and open_files() != []
    assert open_files() == []
    other = LocalStore(tmp_path / "out", retention=Retention())
    other.scoped(Scope(session="s")).put_bytes(PDF[:10])
    other.close()
    assert open_files() == []


def test_content_of_several_pieces_is_whole_from_a_store_that_nothing_else_holds_open(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ref = store.put_bytes(bytes(3 << 20))
    assert sum(map(len, store.open(ref))) == 3 << 20
    pieces = store.open(ref, chunk_size=100)
    assert len(next(pieces)) == 100 == len(next(pieces))
    del pieces  # left in the middle
