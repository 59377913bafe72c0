"""Artifacts by the beginning of an id and by name, and opening them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from transports import ArtifactRef, LocalStore


def put(folder: Path, **contents: bytes) -> list[ArtifactRef]:
    async def work() -> list[ArtifactRef]:
        async with LocalStore(folder) as store:
            return [
                await store.put_bytes(content, filename=f"{name}.txt", mime_type="text/plain")
                for name, content in contents.items()
            ]

    return asyncio.run(work())


def test_an_artifact_by_the_beginning_of_its_id_and_by_its_name(abp: CommandLine, tmp_path: Path) -> None:
    one, two, three = put(tmp_path / "out", one=b"one", two=b"two", three=b"three")
    beginning = next(one.id[:n] for n in range(1, 40) if not any(ref.id.startswith(one.id[:n]) for ref in (two, three)))
    assert abp("artifacts", "get", beginning).out == abp("artifacts", "get", "one.txt").out == "one"
    assert abp("artifacts", "show", beginning, "--json").document["artifact"]["id"] == one.id
    for command in ("show", "get", "rm", "open", "link"):
        ran = abp("artifacts", command, "artifact_")
        assert ran.status == 2 and "'artifact_' may be any of 3 artifacts" in ran.err
        assert one.id in ran.err and three.id in ran.err and "give more of the id" in ran.err
    assert abp("artifacts", "rm", "").status == 1
    ran = abp("artifacts", "rm", "one.txt", "nothing", two.id)
    assert ran.status == 1 and "'nothing'" in ran.err
    assert [one["id"] for one in abp("artifacts", "list", "--json").document["artifacts"]] == [three.id]


def test_open_hands_the_file_to_the_desktop(abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ref,) = put(tmp_path / "out", one=b"one")
    programs, opened = tmp_path / "bin", tmp_path / "opened"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    ran = abp("artifacts", "open", "one.txt")
    assert ran.status == 1 and f"nothing here opens text/plain; the file is {ref.path}" in ran.err
    for name in ("xdg-open", "open"):
        (programs / name).write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
        (programs / name).chmod(0o700)
    ran = abp("artifacts", "open", "one.txt")
    assert (ran.status, opened.read_text()) == (0, f"{ref.path}\n") and f"opened {ref.path}" in ran.err
    monkeypatch.setenv("ABP_STORE", "memory:")
    assert "ARTIFACT_NOT_FOUND" in abp("artifacts", "open", "one.txt").err
