"""Signing in to an app by hand in a visible browser (``abp login``), whose state is kept for later sessions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Error

from .. import playwright as browsers
from .._internal.tasks import cancel_and_wait
from ..artifacts._files import replacing
from ..errors import ConnectFailed, StoreError, UsageError, first_line
from ..protocol._plain_text import is_page, redact_url
from ._named_apps import NamedApp


async def sign_in(app: NamedApp, done: Callable[[], Awaitable[object]], *, headless: bool = False) -> Path:
    """Open the app's page in a visible browser until the person closes its windows, or until ``done()`` returns.

    Returns the path of the kept session: the file ``storage_state`` of the app's entry (mode 0600), or its
    ``profile``."""
    entry = app.entry
    place = entry.storage_state or entry.profile
    if not is_page(entry.url) or entry.cdp_url is not None:
        raise UsageError(
            f"{app.name} is not a page in a browser that abp starts; sign in to it with headers, or where it runs"
        )
    if place is None:
        raise UsageError(f'[apps.{app.name}] has no `storage_state`; add storage_state = "{app.name}.json"')

    async with browsers.Browser(headless=headless, name=entry.browser, profile=entry.profile, timeout=60.0) as browser:
        try:
            context = browser.context
            if context is None:
                context = await _new_context(browser, entry.storage_state)
            page = await context.new_page()
            await page.goto(entry.url)
        except Error as error:
            raise ConnectFailed(f"{redact_url(entry.url)} does not open: {first_line(error)}") from None

        state = await _read_state_until_closed(context, done)
        if entry.storage_state is not None:
            if state is None:
                raise ConnectFailed("the browser ended before its state could be read; sign in once more")
            await asyncio.to_thread(_write_state, entry.storage_state, json.dumps(state))
    return place


async def _new_context(browser: browsers.Browser, earlier_state: Path | None) -> BrowserContext:
    if earlier_state is not None and not earlier_state.exists():
        earlier_state = None
    return await browser.playwright.new_context(storage_state=earlier_state, no_viewport=True)


async def _read_state_until_closed(
    context: BrowserContext, done: Callable[[], Awaitable[object]]
) -> dict[str, Any] | None:
    """Return the last cookies and storage that could be read before the context closed or ``done()`` returned."""
    state: dict[str, Any] | None = None
    closed_by_user = asyncio.Event()
    context.on("close", lambda _: closed_by_user.set())
    waiting = [asyncio.ensure_future(done()), asyncio.ensure_future(closed_by_user.wait())]
    # Seconds between two reads of the state, which is lost when the last window closes.
    poll_interval = 1.0
    try:
        is_closed = False
        while not is_closed:
            finished, _ = await asyncio.wait(waiting, timeout=poll_interval, return_when=asyncio.FIRST_COMPLETED)
            is_closed = bool(finished) or not context.pages
            # The state is read once more at the end; a browser that has closed already cannot give it.
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(5.0):
                    state = dict(await context.storage_state(indexed_db=True))

        for task in finished:
            # Raises what `done` raised.
            task.result()
    finally:
        await cancel_and_wait(waiting)
    return state


def _write_state(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, mode=0o600) as file:
            file.write(text.encode())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
