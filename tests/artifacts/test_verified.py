"""``ref.open()``: a file of an artifact that gives no byte that was not stored."""

from __future__ import annotations

import io
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from transports import ArtifactRef, UsageError, open_store
from transports.errors import Corrupt, StoreError

MB = 1 << 20


async def stored(folder: Path, content: bytes) -> tuple[ArtifactRef, Path]:
    """An artifact and its readable file."""
    ref = await open_store(folder).put_bytes(content, filename="data.bin")
    assert ref.path is not None
    return ref, ref.path


@pytest.mark.load
async def test_verified_file_reads_across_chunks_like_plain_file(tmp_path: Path) -> None:
    chance = random.Random(7)
    content = chance.randbytes(3 * MB + 4321)
    ref, _ = await stored(tmp_path, content)
    plain = io.BytesIO(content)
    with ref.open() as file:
        for _ in range(60):
            offset, size = chance.randrange(len(content) + 1000), chance.choice((0, 1, 100, MB - 1, MB, MB + 1, 2 * MB))
            assert file.seek(offset) == plain.seek(offset)
            assert file.read(size) == plain.read(size) and file.tell() == plain.tell()
        assert file.seek(-10, os.SEEK_END) == len(content) - 10 and file.read() == content[-10:]


def edit(path: Path, position: int) -> None:
    """Change one byte in place, and leave no trace of it in the times of the file."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


async def test_modified_or_grown_file_is_rejected_on_open(tmp_path: Path) -> None:
    ref, path = await stored(tmp_path, bytes(2 * MB))
    edit(path, MB + 7)
    with pytest.raises(Corrupt, match="does not match its size"):
        ref.open()
    edit(path, MB + 7)  # as it was
    os.truncate(path, 1 << 40)  # which would take an hour to hash
    with pytest.raises(Corrupt, match="does not match its size"):
        ref.open()


async def test_chunk_changed_after_opening_is_not_returned(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(3 * MB)
    ref, path = await stored(tmp_path, content)
    with ref.open() as file:
        edit(path, 2 * MB + 7)
        assert file.read(MB) == content[:MB]
        file.seek(2 * MB + 100)
        with pytest.raises(Corrupt):
            file.read(1)
        file.seek(MB)
        assert file.read(100) == content[MB : MB + 100]
        os.truncate(path, MB + 5)
        file.seek(2 * MB)
        with pytest.raises(Corrupt):
            file.read(1)


def _symlink(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"content")
    path.symlink_to(other)


@pytest.mark.parametrize("make", [os.mkfifo, _symlink, os.mkdir, lambda path: None])
async def test_opening_missing_or_special_file_fails_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    ref, path = await stored(tmp_path, b"content")
    path.unlink()
    make(path)
    with pytest.raises(StoreError, match="cannot read an artifact"):
        ref.open()


async def test_verified_open_keeps_one_chunk_in_memory(tmp_path: Path) -> None:
    ref, _ = await stored(tmp_path, bytes(8 * MB))
    tracemalloc.start()
    try:
        with ref.open() as file:
            with pytest.raises(io.UnsupportedOperation):  # a descriptor would be a way past the comparison
                file.fileno()
            while file.read(64 << 10):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * MB


async def test_opening_ref_without_local_file_says_how_to_read() -> None:
    ref = await open_store("memory:").put_bytes(b"content")
    with pytest.raises(UsageError, match=r"await store\.get\(ref\).*fsspec\.open\('artifact://"):
        ref.open()
