"""Inputs of calls in a browser that may be on another machine."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from transports.errors import TransportError
from transports.playwright._agent import PageObject
from transports.playwright._content import Uploads
from transports.protocol._params import prepare_params


class FarPage:
    """What the uploads see of a page, whose browser reads the disk of another machine, or ours."""

    def __init__(self, disk: dict[str, bytes] | None) -> None:
        self.disk = disk
        self.chosen: list[str] = []
        self.text = b""
        self.released = 0

    async def set_file(self, element: PageObject, path: Path, *, timeout: float) -> None:
        self.chosen.append(str(path))
        if self.disk is not None and str(path) not in self.disk:
            raise TransportError("no such file")

    async def invoke(self, method: str, *args: Any, timeout: float, returns: object = None) -> object:
        if method == "chosenSize":
            return Path(self.chosen[-1]).stat().st_size if self.disk is None else len(self.disk[self.chosen[-1]])
        if method == "appendToBuffer":
            self.text += base64.b64decode(args[1])
        return PageObject(method)

    async def release_object(self, page_object: PageObject) -> None:
        self.released += 1


@pytest.mark.parametrize("shares", [True, False])
async def test_a_file_of_the_same_path_and_size_elsewhere_is_not_taken_for_ours(tmp_path: Path, shares: bool) -> None:
    file, data = tmp_path / "in.bin", b"ours" * 50_000
    file.write_bytes(data)
    page = FarPage(None if shares else {str(file): b"else" * 50_000})
    uploads = Uploads(page, tmp_path, near=False)  # type: ignore[arg-type]
    for _ in range(2):
        params, content = prepare_params({"file": file})
        async with uploads.prepare({"params": params}, content, timeout=5) as (_, elements):
            assert [one.ref for one in elements] == ["createFileInput" if shares else "createFileBuffer"]
    if shares:
        assert page.text == b"" and page.chosen[1:] == [str(file)] * 2
    else:
        assert page.text == data * 2 and str(file) not in page.chosen
    assert len(page.chosen) == (3 if shares else 1)  # the disk is looked for once
    assert list(tmp_path.iterdir()) == [file]


async def test_a_browser_that_was_started_here_gets_the_path_at_once(tmp_path: Path) -> None:
    file = tmp_path / "in.bin"
    file.write_bytes(bytes(100_000))
    page = FarPage(None)
    params, content = prepare_params({"file": file})
    async with Uploads(page, tmp_path, near=True).prepare({"params": params}, content, timeout=5):  # type: ignore[arg-type]
        assert page.chosen == [str(file)]
