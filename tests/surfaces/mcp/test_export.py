"""Paths of a model: artifacts as files where it wants them, and no way out of the folders that are allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from mcp_types import ResourceLink, TextContent

from tests.support.mcp_clients import Serve, called, files_of, words
from tests.support.slow import slow_but
from transports.artifacts import ArtifactRef


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "deep").mkdir(parents=True)
    return tmp_path / "root"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_artifact_is_exported_once_without_replacing_file(serve: Serve, root: Path) -> None:
    async with serve(options={"export_roots": (root,)}) as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "abp_read_artifact"]
        assert tool.annotations and tool.annotations.read_only_hint is False  # it may write a file
        first = files_of(await called(client, "abp_text_shout", text="hi"))[0]
        other = files_of(await called(client, "abp_text_shout", text="ho"))[0]
        target = root / "deep" / "a.json"
        for _ in range(2):  # the second time it is there already
            done = await called(client, "abp_read_artifact", id=first["uri"], path=str(target))
            assert done["exported"] == str(target) and len(done["sha256"]) == 64
            assert target.read_bytes() == Path(first["path"]).read_bytes()
        refused = await client.call_tool("abp_read_artifact", {"id": other["id"], "path": str(target)})
        assert refused.is_error and "choose another name" in words(refused)
        assert target.read_bytes() == Path(first["path"]).read_bytes()
        assert sorted(root.rglob("*")) == [root / "deep", target]  # nothing half-made is left

        # Of several that are exported at once, one is.
        refs = [files_of(await called(client, "abp_text_shout", text=str(at)))[0] for at in range(5)]
        target = root / "a.json"
        tasks = [client.call_tool("abp_read_artifact", {"id": ref["id"], "path": str(target)}) for ref in refs]
        answers = await asyncio.gather(*tasks)
        assert [answer.is_error for answer in answers].count(False) == 1
        (won,) = [ref for ref, answer in zip(refs, answers, strict=True) if not answer.is_error]
        assert target.read_bytes() == Path(won["path"]).read_bytes()
    assert names(root) == ["a.json", "deep"]


async def test_export_outside_allowed_folders_is_rejected(serve: Serve, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "way").symlink_to(outside)
    (root / "file").symlink_to(outside / "a")
    (root / "folder").mkdir()
    paths = [
        str(outside / "a"),
        str(root / "way" / "a"),
        str(root / ".." / "outside" / "a"),
        str(root / "none" / "a"),
        str(root / ".."),
        "a.json",
        "",
        f"{root}/a\0b",
        str(tmp_path / "rooted"),
        str(root / "file"),
        str(root / "folder"),
    ]
    async with serve(options={"export_roots": (root,)}) as client:
        ref = files_of(await called(client, "abp_text_shout", text="hi"))[0]
        for path in paths:
            answer = await client.call_tool("abp_read_artifact", {"id": ref["id"], "path": path})
            assert answer.is_error, path
            assert answer.structured_content["error"]["code"] == "INVALID_PARAMS", path
            assert words(answer).endswith("Next: correct the argument path and call again"), path
        missing = await client.call_tool("abp_read_artifact", {"id": "nothing", "path": str(root / "a")})
        assert missing.structured_content["error"]["code"] == "ARTIFACT_NOT_FOUND"
    async with serve(options={"roots": (root,)}) as client:
        answer = await client.call_tool("abp_read_artifact", {"id": ref["id"], "path": str(root / "a")})
        assert answer.is_error and "ABP_MCP_EXPORT_ROOTS" in words(answer)
    assert names(outside) == [] and names(root) == ["deep", "file", "folder", "way"]


@pytest.mark.requirement("R2-5.5c", "R4-13f")
async def test_results_carry_urls_from_link_function(serve: Serve) -> None:
    def link(ref: ArtifactRef) -> str | None:
        return f"https://files.test/{ref.id}?sig=1" if ref.size_bytes < 100 else None

    async with serve(link=link) as client:
        answer = await client.call_tool("abp_text_shout", {"text": "hi"})
        (item,) = [item for item in answer.content if isinstance(item, ResourceLink)]
        url = f"https://files.test/{item.uri.removeprefix('artifact://')}?sig=1"
        assert f"Open: {url}" in words(answer).splitlines()
        (listed,) = (await client.list_resources()).resources
        assert listed.meta and listed.meta["url"] == url
        assert (await called(client, "abp_artifacts"))["artifacts"][0]["url"] == url
        header, _ = (await client.call_tool("abp_read_artifact", {"id": item.uri})).content
        assert isinstance(header, TextContent) and url in header.text
        large = await client.call_tool("abp_text_shout", {"text": "x" * 200})
        assert "Open: " not in words(large) and "files.test" not in large.model_dump_json()


# --- files that are swapped for symlinks after the check of a path ----------------------------------------------------

#: Functions on the way from the check of a path to its use.
_MOMENTS = ("pathlib.Path.resolve", "transports.routing._given_files.sniff")


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
@pytest.mark.parametrize(
    ("moment", "swapped"),
    slow_but(product(_MOMENTS, ("file", "folder")), (_MOMENTS[0], "folder"), (_MOMENTS[1], "file")),
)
async def test_swapped_in_symlink_is_not_read(
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
async def test_folder_swapped_for_symlink_is_not_written_to(
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
