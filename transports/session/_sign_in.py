"""Signing in to an app by hand in a visible browser (``abp login``), whose state is kept for later sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from playwright.async_api import BrowserContext, Error, StorageState

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
    kept_session = entry.storage_state or entry.profile
    if not is_page(entry.url) or entry.cdp_url is not None:
        raise UsageError(
            f"{app.name} is not a page in a browser that abp starts; sign in to it with headers, or where it runs"
        )
    if kept_session is None:
        raise UsageError(f'[apps.{app.name}] has no `storage_state`; add storage_state = "{app.name}.json"')

    async with browsers.Browser(headless=headless, name=entry.browser, profile=entry.profile, timeout=60.0) as browser:
        try:
            context = browser.context
            if context is None:
                context = await _new_context(browser, entry.storage_state)
            page = await context.new_page()
            # The person sees when the page has loaded, and may leave it before.
            await page.goto(entry.url, wait_until="commit")
        except Error as error:
            raise ConnectFailed(f"{redact_url(entry.url)} does not open: {first_line(error)}") from None

        await _wait_until_closed(context, done)
        if entry.storage_state is not None:
            await asyncio.to_thread(_write_state, entry.storage_state, json.dumps(await _read_state(context)))
    return kept_session


async def _new_context(browser: browsers.Browser, earlier_state: Path | None) -> BrowserContext:
    if earlier_state is not None and not earlier_state.exists():
        earlier_state = None
    return await browser.playwright.new_context(storage_state=earlier_state, no_viewport=True)


async def _wait_until_closed(context: BrowserContext, done: Callable[[], Awaitable[object]]) -> None:
    closed_by_user = asyncio.Event()
    context.on("close", lambda _: closed_by_user.set())
    waiting = [asyncio.ensure_future(done()), asyncio.ensure_future(closed_by_user.wait())]
    try:
        finished: set[asyncio.Future[object]] = set()
        while not finished and context.pages:
            finished, _ = await asyncio.wait(waiting, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            # Raises what `done` raised.
            task.result()
    finally:
        await cancel_and_wait(waiting)


async def _read_state(context: BrowserContext) -> StorageState:
    """Return the cookies and storage of a context, whose windows may have closed.

    This must not run while the person types: for an origin without a window, Playwright opens a tab in front of the
    others."""
    try:
        async with asyncio.timeout(30.0):
            return await context.storage_state(indexed_db=True)
    except (Error, TimeoutError) as error:
        reason = "it took longer than 30 s" if isinstance(error, TimeoutError) else first_line(error)
        raise ConnectFailed(
            f"the state of the browser could not be read: {reason}; sign in once more and press Enter before you close "
            "the browser, or give the app a `profile` in place of `storage_state`"
        ) from None


def _write_state(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, mode=0o600) as file:
            file.write(text.encode())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
