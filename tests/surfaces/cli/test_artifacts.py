"""Artifacts by the beginning of an id and by name, and opening them."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from transports import ArtifactRef, LocalStore
from transports.artifacts import Scope


def put(folder: Path, **contents: bytes) -> list[ArtifactRef]:
    async def work() -> list[ArtifactRef]:
        async with LocalStore(folder) as store:
            return [
                await store.put_bytes(content, filename=f"{name}.txt", mime_type="text/plain")
                for name, content in contents.items()
            ]

    return asyncio.run(work())


def test_artifact_is_found_by_id_prefix_and_by_name(abp: CommandLine, tmp_path: Path) -> None:
    one, two, three = put(tmp_path / "out", one=b"one", two=b"two", three=b"three")
    beginning = next(one.id[:n] for n in range(1, 40) if not any(ref.id.startswith(one.id[:n]) for ref in (two, three)))
    assert abp("artifacts", "get", beginning).out == abp("artifacts", "get", "one.txt").out == "one"
    assert abp("artifacts", "show", beginning, "--json").document["artifact"]["id"] == one.id
    for command in ("show", "get", "rm", "open", "link"):
        ran = abp("artifacts", command, "artifact_")
        assert ran.status == 2 and "'artifact_' matches 3 artifacts" in ran.err
        assert one.id in ran.err and three.id in ran.err and "give more of the id" in ran.err
    assert abp("artifacts", "rm", "").status == 1
    ran = abp("artifacts", "rm", "one.txt", "nothing", two.id)
    assert ran.status == 1 and "'nothing'" in ran.err and "; nothing was removed [ARTIFACT_NOT_FOUND]" in ran.err
    assert len(abp("artifacts", "list", "--json").document["artifacts"]) == 3
    ran = abp("artifacts", "rm", "one.txt", two.id, one.id)
    assert (ran.status, ran.err) == (0, f"abp: removed {one.id} (one.txt)\nabp: removed {two.id} (two.txt)\n")
    assert [one["id"] for one in abp("artifacts", "list", "--json").document["artifacts"]] == [three.id]


def test_an_artifact_of_another_store_is_told_how_to_name_the_store(abp: CommandLine, tmp_path: Path) -> None:
    (ref,) = put(tmp_path / "reports", one=b"one")
    ran = abp("artifacts", "get", ref.id, "--store", tmp_path / "out")
    assert ran.status == 1 and "if the call had --out DIR, give --store DIR here, too" in ran.err
    assert abp("artifacts", "get", ref.id, "--store", tmp_path / "reports").out == "one"


def test_artifact_list_has_dates_and_limit(abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")  # POSIX: two hours east
    time.tzset()
    try:
        refs = put(tmp_path / "out", one=b"one", two=b"two", three=b"three")
        lines = abp("artifacts", "list").out.splitlines()
        for ref, line in zip(refs, lines, strict=True):
            stored = datetime.fromisoformat(str(ref.source["created"])) + timedelta(hours=2)
            assert f" {stored:%Y-%m-%d %H:%M}  {ref.filename}" in line
    finally:
        monkeypatch.undo()
        time.tzset()
    ran = abp("artifacts", "list", "--limit", 2, "--out", tmp_path / "out")
    assert [line.split()[0] for line in ran.out.splitlines()] == [refs[1].id, refs[2].id]
    assert ran.err == "abp: Showing the 2 most recent; `--limit` shows more\n"
    assert abp("artifacts", "list", "--limit", 3, "--out", tmp_path / "out").err == ""
    assert abp("artifacts", "list", "--limit", 0).status == 2


def test_store_is_named_by_its_url(
    abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_bucket: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"no artifacts in {memory_bucket}" in abp("artifacts", "list", "--out", memory_bucket).err
    for wrong in ("ftp://host/place", ""):
        assert "unknown artifact store" in abp("artifacts", "list", "--out", wrong).err
    for command in (("demo",), ("batch", "run", "jobs.jsonl"), ("batch", "export", "run")):
        ran = abp(*command, "--out", memory_bucket)
        assert (
            ran.status == 2 and f"{memory_bucket} is not a folder of this machine; ABP_STORE={memory_bucket}" in ran.err
        )
        ran = abp(*command, "--out", "")
        assert ran.status == 2 and "the name of the folder is empty" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_artifacts_open_uses_desktop_program(abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ref,) = put(tmp_path / "out", one=b"one")
    programs, opened = tmp_path / "bin", tmp_path / "opened"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    ran = abp("artifacts", "open", "one.txt")
    assert ran.status == 1 and f"no program is registered for text/plain; open {ref.path} yourself" in ran.err
    for name in ("xdg-open", "open"):
        (programs / name).write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
        (programs / name).chmod(0o700)
    ran = abp("artifacts", "open", "one.txt")
    assert (ran.status, opened.read_text()) == (0, f"{ref.path}\n") and f"opened {ref.path}" in ran.err
    monkeypatch.setenv("ABP_STORE", "memory:")
    assert "ARTIFACT_NOT_FOUND" in abp("artifacts", "open", "one.txt").err


def test_artifacts_list_is_filtered_by_options(abp: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    store = LocalStore(out)

    async def fill() -> list[ArtifactRef]:
        texts = [await store.put_text(name, meta={"capability": name, "app": "x"}) for name in ("one", "twelve")]
        return [*texts, await store.put_bytes(b"\x89PNG\r\n\x1a\n", meta={"capability": "one", "app": "y"})]

    one, twelve, picture = asyncio.run(fill())

    def listed(*options: object) -> set[str]:
        ran = abp("artifacts", "list", "--out", out, *options)
        assert ran.status == 0
        return {line.split()[0] for line in ran.out.splitlines()}

    assert listed("--capability", "one") == {one.id, picture.id} and listed("--app", "y") == {picture.id}
    assert listed("--type", "image/") == {picture.id} and listed("--min-bytes", 4, "--max-bytes", 6) == {twelve.id}
    assert listed("--since", "1h") == {one.id, twelve.id, picture.id} == listed("--since", "2020-01-01")
    assert listed("--until", "2020-01-01T00:00Z") == set() == listed("--since", "2999-01-01")
    assert "no such artifacts in" in abp("artifacts", "list", "--out", out, "--app", "z").err
    for bad in ("soon", "2020-13-01", "7"):
        assert "--since must be a date" in abp("artifacts", "list", "--since", bad).err
    assert "has no index to rebuild" in abp("artifacts", "reindex", "--out", out).err


def test_gc_with_ttl_applies_no_other_limit(abp: CommandLine, tmp_path: Path) -> None:
    async def fill() -> None:
        async with LocalStore(tmp_path / "out") as store:
            in_trace = store.scoped(Scope(session="s", trace="t"))
            for number in range(101):  # more than a trace may keep by default
                await in_trace.put_bytes(b"%d" % number, durability="process")

    asyncio.run(fill())
    assert abp("artifacts", "gc", "--ttl", "7d", "--json").document["removed"] == []
