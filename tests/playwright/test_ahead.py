"""A driver that is started before its browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from transports.errors import BrowserNotFound
from transports.playwright import _process as browser_process
from transports.playwright._process import driver_ahead, next_process


class Playwright:
    """A driver that starts when it may, and knows that it was stopped."""

    def __init__(self) -> None:
        self.may_start = asyncio.Event()
        self.started = self.stopped = 0

    async def start(self) -> tuple[Any, list[int]]:
        self.started += 1
        await self.may_start.wait()
        return self, []

    async def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
async def playwright(monkeypatch: pytest.MonkeyPatch) -> Playwright:
    made = Playwright()
    monkeypatch.setattr(browser_process, "start_driver", made.start)
    return made


async def test_the_first_browser_of_a_block_takes_the_driver_that_was_started(
    playwright: Playwright, tmp_path: Path
) -> None:
    async with driver_ahead():
        first, second = next_process(), next_process()
        waiting = asyncio.ensure_future(first.start_driver(tmp_path))
        playwright.may_start.set()
        await asyncio.wait_for(waiting, 15)
        assert playwright.started == 1
        await second.start_driver(tmp_path)
        assert playwright.started == 2
    assert playwright.stopped == 0, "each ends with its browser"
    await first.end()
    await second.end()
    assert playwright.stopped == 2
    await next_process().start_driver(tmp_path)
    assert playwright.started == 3


@pytest.mark.parametrize("running", [True, False], ids=["running", "starting"])
async def test_a_driver_that_no_browser_takes_ends_with_its_block(playwright: Playwright, running: bool) -> None:
    with pytest.raises(RuntimeError, match="no browser"):
        async with driver_ahead():
            asyncio.get_running_loop().call_later(0 if running else 0.1, playwright.may_start.set)
            raise RuntimeError("no browser")
    assert (playwright.started, playwright.stopped) == (1, 1)


async def test_a_driver_that_cannot_run_is_an_error_of_its_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fail() -> None:
        raise BrowserNotFound("no library")

    monkeypatch.setattr(browser_process, "start_driver", fail)
    async with driver_ahead():
        pass
    async with driver_ahead():
        process = next_process()
        with pytest.raises(BrowserNotFound, match="no library"):
            await process.start_driver(tmp_path)
        await process.end()
