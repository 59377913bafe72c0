"""Signing in to an app by hand, once: a visible browser, and the state that is kept of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifacts.replacing import replacing
from ..browser.process.launch import Browser
from ..errors import ConnectFailed, StoreError, UsageError, first_line
from ..protocol.urls import is_page, redact_url
from ..tasks import cancel_and_wait
from .named_apps import NamedApp

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

__all__ = ["sign_in"]

#: Seconds between two reads of what the browser holds: a window that is closed takes its state along.
_POLL_INTERVAL = 1.0
_START_TIMEOUT, _CLOSE_TIMEOUT = 60.0, 5.0


async def sign_in(app: NamedApp, done: Callable[[], Awaitable[object]], *, headless: bool = False) -> Path:
    """Open the app's page in a visible browser until the person closes its windows, or what ``done`` begins then has
    ended; return where what they are signed in to is kept: the file ``storage_state`` of the app's entry (mode 0600),
    else its ``profile``.

    Raises :class:`~transports.errors.UsageError` for an app that is no page, or whose entry names neither,
    :class:`~transports.errors.TransportError` for a browser or a page that does not open, and
    :class:`~transports.errors.StoreError` if the file cannot be written."""
    entry = app.entry
    kept = entry.storage_state or entry.profile
    if not is_page(entry.url) or entry.cdp_url is not None:
        raise UsageError(f"{app.name} is no page in a browser of ours; sign in to it with headers, or where it runs")
    if kept is None:
        raise UsageError(f'[apps.{app.name}] says nowhere what to keep; add storage_state = "{app.name}.json"')
    async with Browser(headless=headless, name=entry.browser, profile=entry.profile, timeout=_START_TIMEOUT) as browser:
        from playwright.async_api import Error

        try:
            context = browser.context or await browser.playwright.new_context(
                storage_state=entry.storage_state if entry.storage_state and entry.storage_state.exists() else None,
                no_viewport=True,
            )
            page = await context.new_page()
            await page.goto(entry.url)
        except Error as error:
            raise ConnectFailed(f"{redact_url(entry.url)} does not open: {first_line(error)}") from None
        state = await _until_closed(context, done)
        if entry.storage_state is not None:
            if state is None:
                raise ConnectFailed("the browser ended before it said what it holds; sign in once more")
            await asyncio.to_thread(_write, entry.storage_state, json.dumps(state))
    return kept


async def _until_closed(context: BrowserContext, done: Callable[[], Awaitable[object]]) -> dict[str, Any] | None:
    """Return the state of the context as it was last, ``None`` if it was never read."""
    from playwright.async_api import Error

    state: dict[str, Any] | None = None
    ended = asyncio.Event()
    context.on("close", lambda _: ended.set())
    waiting = [asyncio.ensure_future(done()), asyncio.ensure_future(ended.wait())]
    try:
        over = False
        while not over:
            finished, _ = await asyncio.wait(waiting, timeout=_POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
            over = bool(finished) or not context.pages
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    state = dict(await context.storage_state(indexed_db=True))
    finally:
        await cancel_and_wait(waiting)
    return state


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, whole or not at all."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, mode=0o600) as file:
            file.write(text.encode())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
