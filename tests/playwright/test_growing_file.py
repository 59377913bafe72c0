"""A download gets its last name while the browser writes it, and holds what the browser wrote at the end."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Set
from pathlib import Path

import pytest

from transports.playwright._downloads import GrowingFile


class _Places:
    """The folders of a browser and of a store, and what a download is called in them."""

    def __init__(self, root: Path) -> None:
        self.temporary, self.store = root / "temporary", root / "store"
        self.temporary.mkdir()
        self.store.mkdir()
        (self.temporary / ".lock").touch()
        self.hidden = self.temporary / ".org.chromium.Chromium.x"
        self.written, self.path = self.store / "guid", self.store / "staged"
        self.growing = GrowingFile(self.path, self.temporary)

    async def linked(self) -> None:
        async with asyncio.timeout(15):
            while not self.path.exists():
                await asyncio.sleep(0.001)


@pytest.fixture
def places(tmp_path: Path) -> _Places:
    return _Places(tmp_path)


async def test_a_download_is_read_at_its_last_name_from_its_first_bytes_on(places: _Places) -> None:
    places.growing.begin()
    with places.hidden.open("wb", buffering=0) as file:
        file.write(b"first")
        await places.linked()
        file.write(b", second")
        assert places.path.read_bytes() == b"first, second"
    places.hidden.rename(places.written)
    await places.growing.take(places.written)
    assert [found.name for found in places.store.iterdir()] == ["staged"]
    assert places.path.read_bytes() == b"first, second" and places.path.stat().st_nlink == 1


@pytest.mark.parametrize("moved", ["renamed", "copied"])
async def test_a_file_that_was_taken_for_the_download_gives_way_to_it(
    places: _Places, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    def another_file_system(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    if moved == "copied":
        monkeypatch.setattr(Path, "rename", another_file_system)
        monkeypatch.setattr(os, "rename", another_file_system)
    places.hidden.write_bytes(b"another one")
    places.growing.begin()
    await places.linked()
    places.written.write_bytes(b"the download")
    await places.growing.take(places.written)
    assert places.path.read_bytes() == b"the download" and places.hidden.read_bytes() == b"another one"


async def test_no_file_is_taken_where_several_are_new_or_there_is_no_folder(
    places: _Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = GrowingFile._hidden_files

    def counted(growing: GrowingFile) -> Set[str]:
        nonlocal looks
        looks += 1
        return look(growing)

    monkeypatch.setattr(GrowingFile, "_hidden_files", counted)
    for growing in (places.growing, GrowingFile(places.path, places.store / "none")):
        for number in range(2):
            (places.temporary / f".{number}").touch()
        before = looks
        growing.begin()
        while looks < before + 3:
            await asyncio.sleep(0)
        assert not places.path.exists()
        places.written.write_bytes(b"the download")
        await growing.take(places.written)
        assert [found.name for found in places.store.iterdir()] == ["staged"]
        assert places.path.read_bytes() == b"the download" and not growing._looking
        places.path.unlink()


async def test_a_download_that_is_given_up_loses_the_name(places: _Places) -> None:
    places.hidden.write_bytes(b"half of")
    places.growing.begin()
    await places.linked()
    await places.growing.drop()
    assert not list(places.store.iterdir()) and places.hidden.exists()
    await GrowingFile(places.path, places.temporary).drop()


async def test_a_download_is_read_at_its_end_where_open_files_cannot_be_renamed(
    places: _Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transports.playwright._downloads.OPEN_FILES_MOVE", False)
    places.growing.begin()
    places.hidden.write_bytes(b"all")
    assert not places.growing._looking and not places.path.exists()
    places.hidden.rename(places.written)
    await places.growing.take(places.written)
    assert places.path.read_bytes() == b"all"
