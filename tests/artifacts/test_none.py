"""The store that keeps nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.support.local_store import PDF, PNG, sha
from transports.artifacts import MemoryStore, NoneStore, Scope, open_store
from transports.errors import ArtifactNotFound, SizeMismatch, StoreError, TooLarge, UsageError
from transports.routing import Router


@pytest.mark.requirement("R2-5.2i", "R2-6.0c", "R2-6.4d", "R2-7.4a", "R2-7.4b", "R2-7.4c", "R2-7.4d", "R2-7.4e")
async def test_none_store_verifies_and_describes(caplog: pytest.LogCaptureFixture) -> None:
    store = NoneStore(max_bytes=1000)
    ref = await store.put_bytes(PDF, size=len(PDF), filename="../a.pdf", meta={"capability": "c"})
    assert ref.id == f"truncated_{sha(PDF)[:12]}" and ref.path is None and ref.filename == "a.pdf"
    assert (ref.mime_type, ref.size_bytes, ref.sha256) == ("application/pdf", len(PDF), sha(PDF))
    assert ref.source["truncated"] is True and ref.source["original_size"] == len(PDF)
    assert ref.source["warning"] == "Content not stored (no ArtifactStore configured)"
    assert ref.source["capability"] == "c" and ref.source["verified"] is True
    view = store.scoped(Scope(session="s"))
    assert (await view.put_text("x")).scope == view.scope and not await store.exists(ref.id)
    assert len(caplog.records) == 1
    with pytest.raises(SizeMismatch):
        await store.put_bytes(PDF, size=1)
    with pytest.raises(TooLarge):
        await store.put_bytes(b"x" * 1001)
    with pytest.raises(ArtifactNotFound):
        await store.stat(ref.id)
    with pytest.raises(ArtifactNotFound):
        await anext(store.open(ref.id))
    with pytest.raises(ArtifactNotFound):
        await store.get(ref)
    assert await store.get(ref.id) is None and await store.list() == [] and await store.delete(ref.id) is False
    assert await store.gc() == [] and (await store.fsck()).problems == ()


@pytest.mark.requirement("R2-7.4g")
@pytest.mark.requirement("R2-7.4a")
async def test_unstored_reference_is_marked_truncated_in_json() -> None:
    ref = await NoneStore().put_bytes(PDF, filename="a.pdf")
    shown = ref.as_dict()
    assert not ref.stored and shown["truncated"] is True and shown["uri"] is None and shown["path"] is None
    assert shown["warning"] == "Content not stored (no ArtifactStore configured)"
    warning = "Content not stored (no ArtifactStore configured)"
    assert shown["source"] == {"warning": warning, "truncated": True}  # as the document shows it
    assert "preview" not in shown
    kept = await MemoryStore().put_bytes(PDF, meta={"truncated": True})
    assert kept.stored and not {"truncated", "warning", "source"} & kept.as_dict().keys()


@pytest.mark.requirement("R2-7.4f")
async def test_unstored_text_has_preview_of_500_characters() -> None:
    store = NoneStore()
    text = "é€𝄞" * 1000
    refs = [await store.put_text(text), await store.put_bytes(text.encode(), mime_type="application/json")]
    async with store.stage() as staged:
        staged.path.write_bytes(text.encode())
        refs.append(await staged.commit(mime_type="text/markdown"))
    assert [ref.as_dict()["preview"] for ref in refs] == [text[:500]] * 3
    assert (await store.put_text("short")).as_dict()["preview"] == "short"
    for content in (PNG, b"\xff\xfe\xfd"):
        assert "preview" not in (await store.put_bytes(content, mime_type="text/plain")).as_dict()


@pytest.mark.requirement("R2-7.4h")
async def test_preview_length_is_configurable() -> None:
    for length in (10, 1000):
        store = NoneStore(max_inline_preview=length).scoped(Scope(user="ann"))
        assert (await store.put_text("𝄞" * 2000)).as_dict()["preview"] == "𝄞" * length
    assert "preview" not in (await NoneStore(max_inline_preview=0).put_text("text")).as_dict()
    for length in (-1, 1001):
        with pytest.raises(UsageError, match=f"between 0 and 1,000 characters, not {length}"):
            NoneStore(max_inline_preview=length)


async def test_none_store_removes_staged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = NoneStore(max_bytes=2_000_000)
    async with store.stage() as staged:
        staged.path.write_bytes(PDF)
        assert (await staged.commit(size=len(PDF))).sha256 == sha(PDF)
    assert list(tmp_path.iterdir()) == []
    async with store.stage() as staged:
        staged.path.write_bytes(b"z" * 2_000_001)
        with pytest.raises(TooLarge):
            await staged.commit()
        await staged.reset()
        with pytest.raises(StoreError, match="nothing was written"):
            await staged.commit()
    assert list(tmp_path.iterdir()) == []


async def test_explicit_none_store_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    store = open_store("none:")
    ref = await store.scoped(Scope(session="s")).put_bytes(PDF)
    routed = await Router(store).route({"n": 1}, capability="count")
    assert not ref.stored and routed.warnings == () and caplog.records == []
    await NoneStore().put_bytes(PDF)
    assert len(caplog.records) == 1
