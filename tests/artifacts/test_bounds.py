"""Every bound of the room: a case at it, and one beyond it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from transports.artifacts import (
    ArtifactRef,
    LocalStore,
    MemoryStore,
    Retention,
)
from transports.artifacts._content import Meter, describe
from transports.artifacts._opening import sweeping
from transports.artifacts.local import _maintenance as maintenance

HASH = "a" * 64


# --- content ----------------------------------------------------------------------------------------------------------


def kept(**meta: object) -> dict[str, object]:
    source = describe(Meter(1), meta=meta).source
    return {key: value for key, value in source.items() if key in (*meta, "warnings")}


def test_metadata_over_32_kib_is_dropped_with_a_warning() -> None:
    def said(size: int) -> dict[str, object]:
        texts = ["x" * 95] * 300
        rest = size - len(json.dumps({"a": [*texts, ""]}, separators=(",", ":")))
        return kept(a=[*texts, *(["y" * 95] * (rest // 98)), "z" * (rest % 98)])

    assert "a" in said(32_768) and "warnings" not in said(32_768)
    assert said(32_769) == {"warnings": ["meta had 32,769 bytes of JSON and was left out"]}


# --- metadata ---------------------------------------------------------------------------------------------------------


# --- time -------------------------------------------------------------------------------------------------------------


async def test_leftovers_are_collected_every_60th_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(retention=Retention())
    done: list[str] = []

    def noting(what: str) -> object:
        async def sweep() -> list[object]:
            done.append(what)
            return []

        return sweep

    monkeypatch.setattr(store, "gc", noting("gc"))
    monkeypatch.setattr(store, "enforce_retention", noting("retention"))
    waited: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 62:
            enough.set()
            await asyncio.Event().wait()

    async with sweeping(store, sleep=sleep):
        async with asyncio.timeout(15):
            await enough.wait()
    assert set(waited) == {60.0}
    assert done == ["gc", *["retention"] * 59, "gc", "retention"]


@pytest.mark.parametrize("beyond", [0.0, 0.5])
async def test_gc_keeps_orphans_an_hour_and_damaged_content_a_day(
    root: Path, monkeypatch: pytest.MonkeyPatch, beyond: float
) -> None:
    async with LocalStore(root) as store:
        ref: ArtifactRef = await store.put_bytes(b"x")
        inside = root / ".abp"
        (inside / "meta" / f"{ref.id}.json").unlink()
        (inside / "quarantine").mkdir(exist_ok=True)
        damaged = inside / "quarantine" / HASH
        damaged.touch()
        blob = inside / "blobs" / ref.sha256
        for file, stays, kinds in ((blob, 3600.0, {"content", "name"}), (damaged, 86400.0, {"quarantine"})):
            at = file.stat().st_ctime + stays + beyond
            monkeypatch.setattr(maintenance, "time", SimpleNamespace(time=lambda at=at: at))
            found = {one.kind for one in await store.gc(dry_run=True)}
            assert kinds.isdisjoint(found) if not beyond else kinds <= found
