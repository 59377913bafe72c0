"""A page of a browser that is driven over its debugging port, without Playwright's driver: for information only.

The port is open to every user of the machine, so the kit takes no such way.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from transports.playwright._find import find_browser

__all__ = ["WiredPage", "page_without_driver"]

_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--remote-debugging-port=0", "--disable-background-networking", "--disable-renderer-backgrounding"),
)


class WiredPage:
    """One page; :meth:`send` sends it a command."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = count(1)

    async def send(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        """Send a command and return its result, one after the other. Raises :class:`RuntimeError` if it fails."""
        number = next(self._ids)
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            reply: dict[str, Any] = json.loads(await self._socket.recv())
            if reply.get("id") == number:
                if "result" not in reply:
                    raise RuntimeError(str(reply["error"]))
                result: dict[str, Any] = reply["result"]
                return result


@asynccontextmanager
async def page_without_driver(url: str, profile: Path) -> AsyncIterator[WiredPage]:
    """A page with the app at ``url``, initialized, in a browser of its own."""
    browser = find_browser()
    assert browser is not None
    process = await asyncio.create_subprocess_exec(
        browser.path,
        *_OPTIONS,
        f"--user-data-dir={profile}",
        "about:blank",
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        address = await _address(profile / "DevToolsActivePort")
        async with connect(address, max_size=None, compression=None) as socket:
            browser_wide = WiredPage(socket)
            target = (await browser_wide.send("Target.createTarget", {"url": url}))["targetId"]
        page_address = f"{address.partition('/devtools/')[0]}/devtools/page/{target}"
        async with connect(page_address, max_size=None, compression=None) as socket:
            page = WiredPage(socket)
            begin = "window.abp?.initialize({agent: {name: 'plain', version: '1'}})"
            given: dict[str, object] = {"expression": begin, "awaitPromise": True, "returnByValue": True}
            while not await _succeeds(page, given):
                await asyncio.sleep(0.05)
            yield page
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _succeeds(page: WiredPage, given: dict[str, object]) -> bool:
    with suppress(RuntimeError):  # the page is loading
        return "value" in (await page.send("Runtime.evaluate", given))["result"]
    return False


async def _address(file: Path) -> str:
    """The address of the browser, once it has written it."""
    async with asyncio.timeout(30):
        while not file.is_file() or file.read_text().count("\n") < 1:
            await asyncio.sleep(0.05)
    port, path = file.read_text().split()
    return f"ws://127.0.0.1:{port}{path}"
