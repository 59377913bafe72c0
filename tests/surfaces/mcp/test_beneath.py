"""Files that are swapped for symlinks between the check of a path and its use (docs/faults.md 43)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.mcp_clients import Serve, called, files_of, words

#: Functions on the way from the check of a path to its use.
_MOMENTS = ["pathlib.Path.resolve", "transports.routing._given_files.sniff"]


def _swap_after(monkeypatch: pytest.MonkeyPatch, moment: str, swap: Callable[[], None]) -> None:
    """Have ``swap`` called once, right after the first call of the function ``moment``."""
    owner, _, name = moment.rpartition(".")
    target = Path if owner == "pathlib.Path" else __import__(owner, fromlist=[""])
    original = getattr(target, name)
    done: list[bool] = []

    def swapping(*args: object, **kwargs: object) -> object:
        try:
            return original(*args, **kwargs)
        finally:
            if not done:
                done.append(True)
                swap()

    monkeypatch.setattr(target, name, swapping)


@pytest.mark.parametrize("era", ["legacy"])
@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize("swapped", ["file", "folder"])
async def test_a_symlink_that_is_swapped_in_is_not_read(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, swapped: str
) -> None:
    folder, outside = tmp_path / "root" / "deep", tmp_path / "outside"
    for parent, text in ((folder, "allowed"), (outside, "secret!")):
        parent.mkdir(parents=True)
        (parent / "a.txt").write_text(text)

    def swap() -> None:
        here, there = (folder, outside) if swapped == "folder" else (folder / "a.txt", outside / "a.txt")
        here.rename(tmp_path / "moved")
        here.symlink_to(there)

    async with serve(options={"roots": (tmp_path / "root",)}) as client:
        _swap_after(monkeypatch, moment, swap)
        file = {"param": "file", "path": str(folder / "a.txt")}
        answer = await client.call_tool("abp_file_digest", {"files": [file]})
        monkeypatch.undo()
        assert (folder / "a.txt").read_text() == "secret!"  # it was swapped
        stored = [Path(ref["path"]).read_text() for ref in (await called(client, "abp_artifacts"))["artifacts"]]
        assert not [text for text in stored if "secret!" in text]
        if moment == _MOMENTS[0]:
            assert answer.is_error and "may not be read" in words(answer)
        else:
            assert "allowed" in stored  # what was checked is what is stored


@pytest.mark.parametrize("era", ["legacy"])
async def test_a_folder_that_is_swapped_for_a_symlink_is_not_written_to(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, outside = tmp_path / "root" / "deep", tmp_path / "outside"
    folder.mkdir(parents=True)
    outside.mkdir()

    def swap() -> None:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(outside)

    async with serve(options={"export_roots": (tmp_path / "root",)}) as client:
        ref = files_of(await called(client, "abp_text_shout", text="hi"))[0]
        _swap_after(monkeypatch, _MOMENTS[0], swap)
        answer = await client.call_tool("abp_read_artifact", {"id": ref["id"], "path": str(folder / "a")})
        monkeypatch.undo()
        assert answer.is_error and list(outside.iterdir()) == [] and folder.is_symlink()
