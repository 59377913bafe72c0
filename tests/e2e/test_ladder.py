"""The ladder: large content out of a page, by every rung, in bulk, and where rungs are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.conftest import Connect
from tests.e2e.test_attach import ladder_of
from tests.support.eventually import eventually
from transports import Browser, Session, connect
from transports.playwright._content import Ladder
from transports.playwright._downloads import LIMITS, CdpDownloads
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(fixture: Fixture, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    async with connect(fixture.url, browser=browser, store=tmp_path_factory.mktemp("ladder")) as opened:
        yield opened


async def generated(app: Session, size: int, seed: int, way: str = "buffer") -> str:
    result = await app.call("file.generate", {"bytes": size, "seed": seed, "as": way})
    ref = result.artifacts["file"]
    assert ref.size_bytes == size
    return ref.sha256


def used_since(app: Session, before: Mapping[str, int]) -> dict[str, int]:
    return {rung: count - before[rung] for rung, count in app.transport.rungs.items()}


async def test_content_size_selects_transfer_method(app: Session) -> None:
    for size, rung in ((256 * 1024, None), (256 * 1024 + 1, "stream"), (4 * MB + 3, "download")):
        for way in ("buffer", "blob"):
            before = app.transport.rungs
            assert await generated(app, size, 1, way) == digest(size, 1)
            expected = {name: int(name == rung) for name in ("download", "stream", "slices")}
            assert used_since(app, before) == expected, (size, way)


@pytest.mark.parametrize("way", ["buffer", "blob"])
@pytest.mark.slow
async def test_stream_survives_garbage_collection(
    connected: Connect, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    save_stream = Ladder.save_stream

    async def later(self: Ladder, *args: Any, **options: Any) -> None:
        await self._agent.channel.collect_garbage()
        await asyncio.sleep(0.5)
        await save_stream(self, *args, **options)

    monkeypatch.setattr(Ladder, "save_stream", later)
    async with connected() as app:
        assert await generated(app, MB // 2, 4, way) == digest(MB // 2, 4)
        assert ladder_of(app).used == {"download": 0, "stream": 1, "slices": 0}


@pytest.mark.parametrize("way", ["buffer", pytest.param("blob", marks=pytest.mark.slow)])
async def test_text_slices_transfer_content_alone(app: Session, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(Ladder, "_usable_rungs", lambda self, size: {"slices": self._save_by_slices})
    before = app.transport.rungs
    assert await generated(app, 6 * MB + 5, 3, way) == digest(6 * MB + 5, 3)
    assert used_since(app, before)["slices"] == 1


@pytest.mark.slow
async def test_100_results_in_a_row_are_not_lost(connected: Connect) -> None:
    """More than ten downloads a second would be dropped by the browser without a word."""
    async with connected() as app:
        for seed in range(100):
            assert await generated(app, 1 * MB, seed % 5) == digest(1 * MB, seed % 5)
        assert sum(ladder_of(app).used.values()) == 100

        sums = await asyncio.gather(*(generated(app, 12 * MB, seed) for seed in range(12)))
        assert sums == [digest(12 * MB, seed) for seed in range(12)]


async def test_very_large_content_is_sliced_with_one_download_each(
    app: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder_of(app), "limits", replace(LIMITS, max_whole=2 * MB, slice_size=1 * MB))
    before = app.transport.rungs
    for way in ("buffer", "blob"):
        assert await generated(app, 2 * MB + 7, 5, way) == digest(2 * MB + 7, 5)
    assert used_since(app, before) == {"download": 2, "stream": 0, "slices": 0}


@pytest.mark.slow
async def test_half_gigabyte_content_uses_download(connected: Connect) -> None:
    async with connected() as app:
        assert await generated(app, 512 * MB, 6) == digest(512 * MB, 6)
        assert ladder_of(app).used["download"] == 1


async def gone(folder: Path) -> None:
    """Wait until the folder holds no file: the browser may still be cancelling a download."""
    await eventually(lambda: not any(path.is_file() for path in folder.rglob("*")), within=10)


async def test_download_started_after_cancellation_is_not_attributed_to_app(
    connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: object, **__: object) -> str:
        raise asyncio.CancelledError

    async with connected() as app:
        with monkeypatch.context() as patch:
            patch.setattr(CdpDownloads, "_wait_for_start", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await app.call("file.generate", {"megabytes": 40, "as": "blob"})
        await asyncio.sleep(0.5)  # the download begins now
        result = await app.call("file.generate", {"megabytes": 1})
        assert len(result.artifacts) == 1 and not result.effects and not result.warnings
        await gone(tmp_path / "out" / ".abp" / "staging")


@pytest.mark.slow
async def test_cancelling_a_large_transfer_leaves_no_file(connected: Connect, tmp_path: Path) -> None:
    async with connected() as app:
        call = asyncio.ensure_future(app.call("file.generate", {"megabytes": 128, "as": "blob"}))
        staging = tmp_path / "out" / ".abp" / "staging"
        await eventually(lambda: staging.is_dir() and list(staging.iterdir()), pause=0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await gone(tmp_path / "out")
        assert await generated(app, 5 * MB, 7) == digest(5 * MB, 7)
