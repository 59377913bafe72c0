"""The driver of the browsers, without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import psutil
import pytest
from playwright.async_api import Error

from transports.browser.process.driver import start_driver


async def test_the_end_of_a_driver_is_no_error_that_nobody_retrieved() -> None:
    """Its calls fail, and that is all: Playwright has a future of its own for the end, which nobody awaits."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    playwright, pids = await start_driver()
    psutil.Process(pids[0]).kill()
    with pytest.raises(Error):
        await asyncio.wait_for(playwright.request.new_context(), 15)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(playwright.stop(), 15)
    del playwright
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert logged == []
