"""Content that is not in an answer: fetched by the transport, measured before a byte moves, within the limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from transports._internal.masking import KNOWN_SECRETS, MAX_MASKED_BYTES
from transports.artifacts import open_store
from transports.base import Features
from transports.errors import ABPError, BadDescriptor, SizeMismatch, StoreError, TooLarge, TransportError
from transports.protocol._find_content import Found
from transports.protocol.binary import BinaryData, Handle
from transports.routing import Fetcher, Router
from transports.routing._router import declared_text, metadata_of


class Far:
    """A transport that has one content."""

    features = Features()

    def __init__(self) -> None:
        self.saved: list[tuple[Handle, float]] = []

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        self.saved.append((handle, timeout))
        path.write_bytes(b"abc")


async def fetched(path: Path, size: int | None, *, declared: int | None = None, limit: int = 3) -> Far:
    far = Far()
    fetcher = Fetcher(cast(Any, far), timeout=7.0, limit=limit)
    await fetcher.into(cast(Any, SimpleNamespace(path=path)), BinaryData(Handle("1", size), size=declared))
    return far


async def test_transport_saves_content_left_in_app(tmp_path: Path) -> None:
    far = await fetched(tmp_path / "a", 3, declared=3)
    assert far.saved == [(Handle("1", 3), 7.0)] and (tmp_path / "a").read_bytes() == b"abc"
    assert (await fetched(tmp_path / "b", None, declared=3)).saved


@pytest.mark.parametrize(("appends", "size", "followed"), [(True, 4 << 20, 1), (False, 4 << 20, 0), (True, 1000, 0)])
async def test_a_large_file_is_followed_if_the_transport_only_appends(
    tmp_path: Path, appends: bool, size: int, followed: int
) -> None:
    far, follow = Far(), Mock()
    far.features = Features(appends=appends)
    staged = cast(Any, SimpleNamespace(path=tmp_path / "a", follow=follow))
    for binary in (BinaryData(Handle("1", size)), BinaryData(Handle("1"), size=size)):
        follow.reset_mock()
        await Fetcher(cast(Any, far)).into(staged, binary)
        assert follow.call_count == followed


@pytest.mark.requirement("R5-4b")
async def test_app_content_of_wrong_or_excessive_size_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(SizeMismatch):
        await fetched(tmp_path / "a", 3, declared=2)
    with pytest.raises(TooLarge, match="3 bytes, over the limit of 2"):
        await fetched(tmp_path / "a", 3, limit=2)
    with pytest.raises(TransportError, match="stayed in the app"):
        await Fetcher().into(cast(Any, SimpleNamespace(path=tmp_path / "a")), BinaryData(Handle("1", 3)))
    assert not (tmp_path / "a").exists()
    with pytest.raises(StoreError, match="cannot write a file"):
        await fetched(tmp_path / "gone" / "a", 3)


@pytest.mark.parametrize(
    ("pieces", "stored"),
    [
        ([b"a value-", b"of-a"], b"a **********"),
        ([b"x" * MAX_MASKED_BYTES, b" value-of-a", b"."], b"x" * MAX_MASKED_BYTES + b" value-of-a."),
    ],
    ids=["small", "large"],
)
async def test_secret_is_masked_in_written_content_up_to_a_mebibyte_and_in_its_name(
    pieces: list[bytes], stored: bytes, tmp_path: Path
) -> None:
    class Writing(Fetcher):
        async def into(
            self, staged: Any, binary: BinaryData, on_download: object = None
        ) -> tuple[BinaryData, Sequence[str]]:
            await staged.write(b"a first try")
            await staged.reset()
            for piece in pieces:
                await staged.write(piece)
            assert staged.size == len(stored)
            return BinaryData(binary.content, filename="report-value-of-a.pdf"), ()

        async def release(self, binary: BinaryData | ABPError) -> None:
            pass

    KNOWN_SECRETS.add("A", "value-of-a")
    try:
        for store in (open_store("memory:"), open_store(tmp_path)):
            router = Router(store, fetcher=Writing())
            ref = (await router.route({"file": BinaryData(Handle("1"))}, capability="report")).artifact()
            assert await store.get(ref) == stored
            assert ref.filename and "SECRET" in ref.filename
    finally:
        KNOWN_SECRETS.forget()
    assert not [*tmp_path.rglob("*value-of-a*")]


def test_broken_content_has_no_declared_text_or_metadata() -> None:
    broken = Found((), BadDescriptor("no"))
    assert declared_text(broken) is None and metadata_of({"a": 1}, [broken]) == {}
