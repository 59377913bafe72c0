"""Artifacts copied out of a session's store, and which stores a session closes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.apps import PDF, answering
from transports import MemoryTransport, Session, UsageError, connect
from transports.artifacts import ArtifactStore, LocalStore, Retention, open_store
from transports.errors import ArtifactNotFound


def session(store: ArtifactStore | str | Path) -> Session:
    return connect("memory:", transport=MemoryTransport({"export": answering({"document": PDF})}), store=store)


@pytest.mark.parametrize("address", ["memory:", "local"])
async def test_save_copies_from_any_store(address: str, tmp_path: Path) -> None:
    async with session(tmp_path / "out" if address == "local" else address) as app:
        ref = (await app.call("export")).artifacts["document"]
        assert await app.save(ref, tmp_path / "new" / "a.pdf") == tmp_path / "new" / "a.pdf"
        assert await app.save(ref.id, tmp_path / "b.pdf") == tmp_path / "b.pdf"
        with pytest.raises(ArtifactNotFound):
            await app.save("nothing_0123456789ab", tmp_path / "c.pdf")
    assert await app.save(ref, tmp_path / "d.pdf") == tmp_path / "d.pdf"
    assert [(tmp_path / name).read_bytes() for name in ("new/a.pdf", "b.pdf", "d.pdf")] == [PDF] * 3


async def test_reference_bytes_are_read_and_invalid_sources_rejected(tmp_path: Path) -> None:
    async with session("memory:") as app:
        result = await app.call("export")
        ref = result.artifact()
        assert await app.store.get(ref) == await app.store.get(ref.id) == PDF
        assert b"".join([piece async for piece in app.store.open(ref, offset=1, length=3)]) == PDF[1:4]
        wrong: Any = result
        with pytest.raises(UsageError, match=r"an artifact is a reference, such as result"):
            await app.store.get(wrong)
        with pytest.raises(UsageError, match=r"artifact must be a reference, .* not Result"):
            await app.save(wrong, tmp_path / "a.pdf")
        with pytest.raises(UsageError, match="it is a folder; name a file in it"):
            await app.save(ref, f"{tmp_path}/new/")
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of stores that were closed."""
    addresses: list[str] = []
    original = LocalStore.aclose

    async def aclose(self: LocalStore) -> None:
        addresses.append(self.url)
        await original(self)

    monkeypatch.setattr(LocalStore, "aclose", aclose)
    return addresses


async def test_a_session_closes_only_a_store_that_it_opened(tmp_path: Path, closed: list[str]) -> None:
    for address in (tmp_path / "out", (tmp_path / "out").as_uri()):
        closed.clear()
        async with session(address) as app:
            await app.call("export")
            assert closed == []
        assert closed == [(tmp_path / "out").as_uri()]
    closed.clear()
    async with session(open_store(tmp_path / "out", retention=Retention(cleanup_on_session_end=True))) as app:
        await app.call("export")
    assert closed == []
